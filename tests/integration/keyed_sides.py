"""The inputs and the match window that the tests of all join types share."""

# Event times are seconds after this, epoch milliseconds.
T0 = 1_700_000_000_000

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
