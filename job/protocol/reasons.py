"""Reasons for which a record or a result is dropped or becomes a dead letter."""

REASONS = (
    "tombstone",
    "malformed_json",
    "schema_mismatch",
    "undecodable_value",
    "unknown_schema",
    "incompatible_schema",
    "missing_event_time",
    "unparsable_event_time",
    "absurd_event_time",
    "future_event_time",
    "expression_failed",
)
"""Reasons for which a record is a bad record. The first five may be those of its key.

tombstone: no value. malformed_json: not exactly one JSON object in UTF-8. schema_mismatch: a field
does not have its declared type, a number does not fit its DECIMAL, or a CSV value is not one line
with the declared fields. undecodable_value: not in Confluent's wire format (Avro, Protobuf,
json_schema); CSV or text that is not UTF-8. unknown_schema: the registry has no schema with the id
of the value or key. incompatible_schema: the side's schema cannot read what has that schema.
missing_event_time: absent or null. unparsable_event_time: neither ISO-8601 nor epoch milliseconds.
absurd_event_time: before min_event_time of the side, or after the year 9999. future_event_time:
ahead of the record's Kafka timestamp by more than max_event_time_ahead. expression_failed: the
side's filter, its key or its part of join.condition cannot be evaluated on the record, for example
a cast.
"""

DEAD_LETTER_REASONS = (*REASONS, "null_key", "late")
"""Reasons for which a record of a side becomes a dead letter."""

RESULT_REASONS = ("value_too_large", "expression_failed", "null_key")
"""Reasons for which a result is not written. value_too_large: larger than the output topic accepts.
expression_failed: an output column, the output's filter or key, or join.condition on the pair.
null_key: output.key is null, and the output topic is compacted."""
