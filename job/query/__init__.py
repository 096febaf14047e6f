"""Life cycle, statistics and state of the running query."""
