"""Columns that a result has besides key, value and headers. Executors import this module."""

TIMESTAMP = "timestamp"
"""Timestamp of the record in milliseconds. Only if the spec has `output.timestamp: event_time`."""
PARTITION = "partition"
"""Partition of the record; null: the key chooses it. Only if the spec has `output.partition_by`."""
