"""Optional columns of a result, besides key, value and headers."""

TIMESTAMP = "timestamp"
"""Timestamp of the record in milliseconds. Only if the spec has `output.timestamp: event_time`."""
PARTITION = "partition"
"""Partition of the record. Null: the key chooses the partition. Only with `output.partition_by`."""
