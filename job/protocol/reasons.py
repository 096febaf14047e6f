"""Why a record or a result is left out."""

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
"""Why a record cannot be read.

tombstone: no value. malformed_json: not one JSON object in UTF-8. schema_mismatch: a field is not
of its declared type. undecodable_value: not Avro or Protobuf in Confluent's wire format.
unknown_schema: the registry knows no schema with the value's id. incompatible_schema: it knows it,
and the side's own cannot read the value. missing_event_time: absent or null. unparsable_event_time:
neither ISO-8601 nor epoch milliseconds. absurd_event_time: not after 1970-01-01T00:00:00Z, where
Spark's watermark begins, or after the year 9999. future_event_time: ahead of the record's Kafka
timestamp by more than max_event_time_ahead. expression_failed: the side's filter, its key or its
part of join.condition cannot be evaluated on the record, e.g. a cast.
"""

DEAD_LETTER_REASONS = (*REASONS, "null_key", "late")
"""Why a record of a side is a dead letter."""

RESULT_REASONS = ("value_too_large", "expression_failed")
"""Why a result is not written. value_too_large: the output topic takes none that large.
expression_failed: an output column, the output's filter or key, or join.condition on the pair."""
