"""The inputs and the match window that the tests of all join types share."""

import json
from pathlib import Path
from typing import Any

# Event times are seconds after this, epoch milliseconds.
T0 = 1_700_000_000_000
OUTPUT_PARTITIONS = 2
# Compared with the Java client by tests/semantics/test_partitions_of_kafka.py.
_JAVA_PARTITIONS = Path(__file__).parents[1] / "golden" / "java_partitions.json"
JAVA_PARTITIONS = json.loads(_JAVA_PARTITIONS.read_text())[str(OUTPUT_PARTITIONS)]
"""Partition of an output topic with OUTPUT_PARTITIONS, by key."""

KEYED_SIDES = """
kafka: {{bootstrap_servers: "{servers}"}}
left:
  topic: {name}.left
  schema: k STRING, t BIGINT, a BIGINT
  columns: {{at: timestamp_millis(millis), millis: t, key: k}}
  key: [key]
  event_time: at
  watermark_delay: 10 seconds
  filter: a >= 0
right:
  topic: {name}.right
  schema: k STRING, t TIMESTAMP, b BIGINT
  key: [k]
  event_time: coalesce(t, record_timestamp)
  watermark_delay: 10 seconds
join:
  type: {join_type}
  match_window: {{before: 2 seconds, after: 5 seconds}}
"""

LEFT_IN_ENVELOPES = {
    "left__envelope": "debezium",
    "left__operations": ["create", "update", "delete"],
}
"""Changes of a spec with KEYED_SIDES whose left rows are in envelopes of Debezium."""


def change(row: dict[str, Any], n: int) -> dict[str, Any]:
    """The row as the one of a create, an update or a delete, by `n`. The row that the operation
    does not read has other values."""
    operation, other = "cud"[n % 3], {**row, "a": 77}
    images = {"c": (None, row), "u": (other, row), "d": (row, None)}
    before, after = images[operation]
    return {"before": before, "after": after, "op": operation, "source": {"ts_ms": T0 + 1}}


def filtered_changes(k: str, second: int) -> list[dict[str, Any] | None]:
    """Records that a side with LEFT_IN_ENVELOPES filters: a row of a snapshot, which would match,
    and the tombstone of a delete."""
    row = {"k": k, "t": T0 + second * 1000, "a": 3}
    return [{"before": None, "after": row, "op": "r", "source": {"ts_ms": T0 + 1}}, None]
