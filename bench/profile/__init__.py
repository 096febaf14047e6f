"""Where the CPU time of a program goes while it reads a backlog."""
