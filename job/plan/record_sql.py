"""From a Kafka record to typed columns in Spark SQL, with a reason for unreadable records.

Spark's from_json turns unreadable values into nulls. Here every record has either its columns or
one of reasons.REASONS. This module only builds SQL text, for the job and for simulations.
encoding/ decodes Avro and Protobuf; the later steps are the same.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from job.formats.schemas import ReaderSchema
from job.instants import EPOCH
from job.plan import envelope_sql, key_sql, record_checks
from job.plan.position import position_column, position_sql
from job.plan.record_checks import EXPRESSION_FAILED, IS_TOMBSTONE
from job.plan.side_plan import SidePlan
from job.plan.timestamp_sql import MILLIS_MAX
from job.plan.value_sql import (
    DECODED,
    DECODED_KEY,
    SCHEMA_MISMATCH,
    conversions,
    reason,
    reasons_of_other_formats,
    value_sql,
    values,
)
from job.protocol.reasons import REASONS
from job.spec.durations import milliseconds
from job.spec.expressions import column_name
from job.sql.literals import quoted
from job.sql.types import BIGINT, TIMESTAMP, SqlType

_ABSURD_FROM = f"timestamp_millis({MILLIS_MAX + 1})"
_ABSURD_YEAR = "^([+-][0-9]{4,}|[0-9]{5,})-[0-9]{2}-[0-9]{2}"
"""ISO-8601 with a sign or a year of more than four digits."""
EXPLAINED = ("text", "parsed")
"""Columns of the first steps that the message of a bad record needs."""


def decoded_type(reader: ReaderSchema) -> str:
    """DDL of the columns DECODED and DECODED_KEY. A TIMESTAMP is epoch microseconds, in any
    year."""
    fields = ", ".join(f"`{name}`: {_in_micros(kind)}" for name, kind in reader.decoded.fields)
    return f"reason STRING, message STRING, schema_id BIGINT, columns STRUCT<{fields}>"


def _in_micros(kind: SqlType) -> SqlType:
    if kind == TIMESTAMP:
        return BIGINT
    return replace(kind, fields=tuple((name, _in_micros(each)) for name, each in kind.fields))


def parsed(side: SidePlan) -> list[str]:
    """The columns of the record, its value as the struct `parsed`, and `text`: the text
    of the value, or the decoder's error message for Avro and Protobuf."""
    of_format = value_sql(side)
    text = f"{of_format.text} AS text"
    return ["*", text, f"{of_format.parsed(side)} AS parsed", *key_sql.parsed(side)]


def restored(side: SidePlan) -> list[str]:
    """`parsed`, where a number in a STRING field has its original text."""
    again = {"parsed": value_sql(side).restored(side), "parsed_key": key_sql.restored(side)}
    changed = {name: sql for name, sql in again.items() if sql is not None}
    if not changed:
        return ["*"]
    return [f"* EXCEPT ({', '.join(changed)})", *(f"{sql} AS {n}" for n, sql in changed.items())]


def typed(side: SidePlan) -> list[str]:
    """Each column with its name in the dataflow, and `value_reason`."""
    columns = [f"{sql} AS `{column_name(side.side, name)}`" for name, sql in values(side).items()]
    key_reason = key_sql.reason(side)
    number = side.topics.number_sql("topic", "partition")
    position = f"{position_sql(number, 'offset')} AS {position_column(side.side)}"
    return [
        *columns,
        *(
            f"{source} AS `{column_name(side.side, name)}`"
            for name, source in record_columns(side).items()
        ),
        position,
        *([f"{DECODED}.schema_id AS schema_id"] if side.format.has_registry else []),
        *(
            [f"{DECODED_KEY}.schema_id AS key_schema_id", "key_text"]
            if side.keys_have_registry
            else []
        ),
        *_written_event_time(side),
        *([f"value IS NULL AS {IS_TOMBSTONE}"] if side.has_tombstones else []),
        f"{reason(side)} AS value_reason",
        *([] if key_reason is None else [f"{key_reason} AS key_reason"]),
    ]


def steps(side: SidePlan, keep: Sequence[str] = ()) -> list[list[str]]:
    """All steps from a record to its typed columns, `reason`, and the event time. Each step is a
    projection.

    `reason` is null for a record without a problem, and for one that the filter drops. The event
    time is null for a record with a problem, which must not advance the watermark.
    `keep`: further columns of the record and of the first steps.
    """
    read = [name for name in EXPLAINED if side.drops_records and name not in keep]
    event_time = f"`{side.event_time_column}`"
    valid = f"CASE WHEN problem IS NULL AND reason IS NULL THEN {event_time} END AS {event_time}"
    return [
        parsed(side),
        restored(side),
        *envelope_sql.opened(side),
        ["*", *conversions(side)],
        [*typed(side), *read, *keep],
        *record_checks.computed(side),
        *_with_time_of_tombstones(side),
        ["*", f"{_problem(side)} AS problem"],
        *record_checks.steps(side),
        [f"* EXCEPT ({', '.join([event_time, 'problem', *read])})", valid],
    ]


def _with_time_of_tombstones(side: SidePlan) -> list[list[str]]:
    """A projection: a tombstone has no event time but the timestamp of its record."""
    if not side.has_tombstones:
        return []
    recorded = f"`{column_name(side.side, 'record_timestamp')}`"
    time = f"greatest({recorded}, {min_event_time(side)})"  # without null
    times = {
        f"`{side.event_time_column}`": time,
        "written_event_time": f"cast({time} AS STRING)",
    }
    changed = (f"if({IS_TOMBSTONE}, {sql}, {name}) AS {name}" for name, sql in times.items())
    return [[f"* EXCEPT ({', '.join(times)})", *changed]]


def reasons(side: SidePlan) -> list[str]:
    """The reasons that records of the side can have, in the order of reasons.REASONS."""
    foreign = reasons_of_other_formats(side) - key_sql.reasons(side)
    if not side.checks.any:
        foreign |= {EXPRESSION_FAILED}
    return [reason for reason in REASONS if reason not in foreign]


def record_columns(side: SidePlan) -> dict[str, str]:
    """The columns with metadata of the record: their SQL by name."""
    columns = {
        "record_key": key_sql.value(side),
        "record_timestamp": "timestamp",
        "record_partition": "partition",
        "record_offset": "offset",
    }
    if side.reads_headers:
        entries = "transform(headers, h -> struct(h.key, cast(h.value AS STRING)))"
        columns["record_headers"] = f"map_from_entries({entries})"
    return {**columns, **envelope_sql.record_columns(side)}


def _written_event_time(side: SidePlan) -> list[str]:
    """Column with the text of the event time, if it is a column of the value or of the record."""
    if side.computes_event_time:
        return []
    column = side.schema.column(side.event_time)
    if column is not None:
        sql = value_sql(side).written_time(column)
    elif side.event_time == "record_source_timestamp":
        sql = envelope_sql.written_source_timestamp()
    else:
        sql = f"cast({record_columns(side)[side.event_time]} AS STRING)"
    return [f"{sql} AS written_event_time"]


def _problem(side: SidePlan) -> str:
    """The reason of a record that cannot be read, without regard to filter and key."""
    event_time = f"`{side.event_time_column}`"
    no_such_time = (
        "try_cast(written_event_time AS BIGINT) IS NOT NULL "
        f"OR written_event_time RLIKE {quoted(_ABSURD_YEAR)}"
    )
    absurd = f"{event_time} < {min_event_time(side)} OR {event_time} >= {_ABSURD_FROM}"
    key = "" if key_sql.reason(side) is None else "WHEN key_reason IS NOT NULL THEN key_reason"
    lacking = envelope_sql.lacks_key(side)
    keyless = "" if lacking is None else f"WHEN {lacking} THEN '{SCHEMA_MISMATCH}' "
    failed = f"WHEN {record_checks.failed_column(side)} IS NOT NULL THEN '{EXPRESSION_FAILED}' "
    return (
        f"CASE WHEN value_reason IS NOT NULL THEN value_reason {key} {keyless}"
        f"{failed if side.checks.columns else ''}"
        "WHEN written_event_time IS NULL THEN 'missing_event_time' "
        f"WHEN {event_time} IS NULL AND ({no_such_time}) THEN 'absurd_event_time' "
        f"WHEN {event_time} IS NULL THEN 'unparsable_event_time' "
        f"WHEN {absurd} THEN 'absurd_event_time' "
        f"WHEN {_too_far_ahead(side)} THEN 'future_event_time' END"
    )


def min_event_time(side: SidePlan) -> str:
    """The earliest event time of the side. It is after Spark's first watermark, which is 0."""
    return f"timestamp_micros({(side.min_event_time - EPOCH) // timedelta(microseconds=1)})"


def _too_far_ahead(side: SidePlan) -> str:
    """Compares the event time with the timestamp of the record, not with the clock.

    So the result does not depend on when a record is read: in a backlog of days, the clock would
    accept event times of those days. And the time of the batch would be a new literal, for which
    Spark would compile the query again in each batch.
    """
    recorded_at = f"unix_millis(`{column_name(side.side, 'record_timestamp')}`)"
    ahead = milliseconds(side.max_event_time_ahead)
    return f"unix_millis(`{side.event_time_column}`) > {recorded_at} + {ahead}"
