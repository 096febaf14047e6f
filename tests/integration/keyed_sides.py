"""The inputs and the match window that the tests of all join types share."""

import json
from pathlib import Path

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
  schema: k STRING, t TIMESTAMP, a BIGINT
  key: [k]
  event_time: t
  watermark_delay: 10 seconds
  filter: a >= 0
right:
  topic: {name}.right
  schema: k STRING, t TIMESTAMP, b BIGINT
  key: [k]
  event_time: t
  watermark_delay: 10 seconds
join:
  type: {join_type}
  match_window: {{before: 2 seconds, after: 5 seconds}}
"""
