"""Spark SQL that selects the records of a side that become dead letters, and builds the letters.

Input columns: those of `decoded` in dataflow/sides.py, the record as `original_key`,
`original_value` and `original_headers`, its value as `text` and `parsed`, `is_late`, and
`late_watermark`, the text of the watermark. This module only makes text.
"""

import re
from collections.abc import Mapping
from datetime import datetime

from job.dead_letters import event_time_text
from job.dead_letters import headers as names
from job.plan import decimal_sql, envelope_sql, key_sql, record_checks, record_sql
from job.plan.plan import JoinPlan
from job.plan.position import partition_sql, position_column
from job.plan.side_plan import SidePlan
from job.plan.timestamp_sql import iso_text
from job.plan.value_sql import value_sql
from job.spec.durations import duration_text
from job.spec.expressions import column_name
from job.spec.sides import SIDES
from job.sql.literals import quoted

KEPT = (
    "key AS original_key",
    "value AS original_value",
    "headers AS original_headers",
    *record_sql.EXPLAINED,
)
"""Columns that `decoded` keeps for dead letters."""

_LATE_WATERMARK = re.compile(r", not past the watermark (\S+)$")

# Bytes added to a record: the job's headers without the message (with two names of up to 249
# characters), and Kafka's overhead for a batch of one record.
_OVERHEAD_BYTES = 1_500
_SHOWN_CHARS = 200
# Name under which header `h` of the original record is kept.
_KEPT_NAME = (
    f"CASE WHEN startswith(h.key, '{names.RESERVED}') "
    f"THEN concat('{names.ORIGINAL}', h.key) ELSE h.key END"
)


def with_reason(plan: JoinPlan, side: SidePlan) -> list[str]:
    """All columns, and `dead_reason`: null for a record that is not a dead letter."""
    return ["*", f"{_reason(plan, side)} AS dead_reason"]


def letters(plan: JoinPlan, side: SidePlan, *, bytes_max: int) -> list[str]:
    """(key, value, headers, side, reason) of the records with a `dead_reason`."""
    size = (
        "coalesce(octet_length(original_key), 0) + coalesce(aggregate(original_headers, 0, "
        f"(sum, h) -> sum + octet_length({_KEPT_NAME}) + coalesce(octet_length(h.value), 0) + 10"
        "), 0)"
        f" + octet_length(dead_message) + {_OVERHEAD_BYTES}"
    )
    whole = f"({size} + coalesce(octet_length(original_value), 0)) <= {bytes_max}"
    rest = f"({size}) <= {bytes_max}"
    added = headers_of(
        {
            names.TOPIC: topic_of_record(side),
            names.PARTITION: _record(side, "record_partition"),
            names.OFFSET: _record(side, "record_offset"),
            names.TIMESTAMP: f"unix_millis({_record(side, 'record_timestamp')})",
            names.SIDE: quoted(side.side),
            names.REASON: "dead_reason",
            names.MESSAGE: "dead_message",
            names.QUERY: quoted(plan.name),
        }
    )
    omitted = headers_of({names.OMITTED_BYTES: "coalesce(octet_length(original_value), 0)"})
    nothing = "cast(array() AS ARRAY<STRUCT<key: STRING, value: BINARY>>)"
    original = (
        f"transform(original_headers, h -> named_struct('key', {_KEPT_NAME}, 'value', h.value))"
    )
    kept = f"CASE WHEN {rest} THEN coalesce({original}, {nothing}) ELSE {nothing} END"
    return [
        f"CASE WHEN {rest} THEN original_key END AS key",
        f"CASE WHEN {whole} THEN original_value END AS value",
        f"concat({kept}, {added}, CASE WHEN {whole} THEN {nothing} ELSE {omitted} END) AS headers",
        f"{quoted(side.side)} AS side",
        "dead_reason AS reason",
    ]


def message(side: SidePlan) -> str:
    """The error of a record with a `dead_reason`, as text.

    Uses no column that a batch without bad records would have to compute.
    """
    field = f"field {side.event_time}"
    if side.has_event_time_expression:
        field = f"event_time {side.event_time_text}"
    shown = f"left(written_event_time, {_SHOWN_CHARS})"
    nulls = [
        quoted(", "),
        *(
            f"CASE WHEN {value} IS NULL THEN {quoted(side.key[index].text)} END"
            for index, value in record_checks.null_checked(side).items()
        ),
    ]
    ahead = duration_text(side.max_event_time_ahead)
    texts = {
        "tombstone": "'the record has no value'",
        "malformed_json": _malformed(),
        "schema_mismatch": (
            f"coalesce({_broken(side)}, {value_sql(side).mismatch_message(side)}, "
            f"concat('not of the declared type: ', {_named_mismatches(side)}))"
        ),
        "undecodable_value": value_sql(side).undecodable_message,
        **dict.fromkeys(("unknown_schema", "incompatible_schema"), "text"),
        "missing_event_time": quoted(f"{field} is missing or null"),
        "unparsable_event_time": event_time_text.unparsable(side, field, shown),
        "absurd_event_time": event_time_text.absurd(side, field, shown),
        "future_event_time": (
            f"concat({quoted(f'{field} is more than {ahead} ahead of the record: ')}, {shown})"
        ),
        record_checks.EXPRESSION_FAILED: record_checks.failure_message(side),
        names.NULL_KEY: f"concat('null in the key: ', concat_ws({', '.join(nulls)}))",
        names.LATE: (
            f"concat({quoted(f'{field} is ')}, {iso_text(f'`{side.event_time_column}`')}, "
            "', not past the watermark ', late_watermark)"
        ),
    }
    cases = " ".join(f"WHEN {quoted(reason)} THEN {text}" for reason, text in texts.items())
    whole = f"CASE dead_reason {cases} END"
    if (of_key := key_sql.message(side)) is not None:
        whole = f"CASE WHEN value_reason IS NULL AND dead_reason = key_reason THEN {of_key} "
        whole += f"ELSE CASE dead_reason {cases} END END"
    return f"coalesce({whole}, '')"


def late_watermark(message: str) -> datetime | None:
    """The watermark in the message of a late row. None: the message has none."""
    match = _LATE_WATERMARK.search(message)
    return None if match is None else datetime.fromisoformat(match[1])


def _reason(plan: JoinPlan, side: SidePlan) -> str:
    """The first check that fails: decoding, filter, key, event time."""
    passes = record_checks.enters(side)
    cases = ["WHEN reason IS NOT NULL THEN reason"]
    if plan.dead_letter is not None and plan.dead_letter.takes_null_keys:
        null_key = record_checks.has_null_key(side)
        cases.append(f"WHEN {passes} AND {null_key} THEN {quoted(names.NULL_KEY)}")
    return f"CASE {' '.join(cases)} WHEN is_late THEN {quoted(names.LATE)} END"


def result_headers(plan: JoinPlan, id_header: str, *, message: str, size: str) -> str:
    """Headers for a result that is not written, computed from its `id` and `reason`. The id
    contains the positions of its records."""
    side = plan.join_type.shown_sides[0]
    place = f"split(split(id, '[|]')[{SIDES.index(side)}], '/')"
    return headers_of(
        {
            names.TOPIC: _topic_of_result(plan.side(side), f"{place}[0]"),
            names.PARTITION: f"coalesce(try_element_at({place}, 2), '-1')",
            names.OFFSET: f"coalesce(try_element_at({place}, 3), '-1')",
            names.TIMESTAMP: "''",
            names.SIDE: "'output'",
            names.REASON: "reason",
            names.MESSAGE: message,
            names.QUERY: quoted(plan.name),
            names.OMITTED_BYTES: size,
            id_header: "id",
        }
    )


def _malformed() -> str:
    """Confluent's wire format is a byte 0, the id of a schema in four bytes, and the value."""
    has_id = "octet_length(text) > 5 AND ascii(text) = 0"
    with_id = (
        "the value begins with the id of a schema of a registry: `format: json_schema`, avro or "
        "protobuf read such values"
    )
    other = "the value is not one JSON object in UTF-8"
    return f"if({has_id}, {quoted(with_id)}, {quoted(other)})"


def _broken(side: SidePlan) -> str:
    cases = [f"WHEN {fails} THEN {text}" for fails, text in envelope_sql.messages(side)]
    return f"CASE {' '.join(cases)} END" if cases else "NULL"


def _named_mismatches(side: SidePlan) -> str:
    if side.envelope is None:
        return _mismatches(side)
    other = "a field of the other row in the envelope (`before` or `after`)"
    return f"coalesce(nullif({_mismatches(side)}, ''), {quoted(other)})"


def _mismatches(side: SidePlan) -> str:
    """Fields that are present and cannot be read as their types, with these types."""
    parts = []
    for column in side.schema.columns:
        there = value_sql(side).is_present(side, column.name)
        # A TIMESTAMP is read as text first.
        is_bad = f"`{column_name(side.side, column.name)}` IS NULL AND {there}"
        shown = quoted(f"{column.name} {column.type}")
        if column.type.is_decimal and not side.format.has_registry:
            problem = decimal_sql.problem(f"parsed.`{column.name}`", column.type)
            shown = f"concat({shown}, coalesce(concat(' (', {problem}, ')'), ''))"
        if column.name != side.event_time:
            parts.append(f"CASE WHEN {is_bad} THEN {shown} END")
    return f"concat_ws(', ', {', '.join(parts)})" if parts else "''"


def topic_of_record(side: SidePlan) -> str:
    return side.topics.topic_sql(partition_sql(position_column(side.side)))


def _topic_of_result(side: SidePlan, named: str) -> str:
    """The topic of the side's record; without a record the first topic."""
    first = quoted(side.topics.names[0])
    return f"coalesce(nullif({named}, ''), {first})" if side.topics.are_several else first


def _record(side: SidePlan, name: str) -> str:
    return f"`{column_name(side.side, name)}`"


def headers_of(contents: Mapping[str, str]) -> str:
    """An array of headers. `contents`: SQL of the value of each header."""
    entries = ", ".join(
        f"named_struct('key', {quoted(name)}, 'value', "
        f"cast(coalesce(cast({sql} AS STRING), '') AS BINARY))"
        for name, sql in contents.items()
    )
    return f"array({entries})"
