"""The checkpoint folder: its files and lease, maintenance, and the rows in state."""
