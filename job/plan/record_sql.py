"""From a Kafka record to typed columns in Spark SQL, with a reason for unreadable records.

Spark's from_json turns unreadable values into nulls. Here every record has either its columns or
one of reasons.REASONS. This module only builds SQL text, for the job and for simulations.
encoding/ decodes Avro and Protobuf; the later steps are the same.
"""

from job.formats.schemas import OF_A_REGISTRY
from job.plan import written_numbers
from job.plan.plan import SidePlan
from job.plan.position import position_column, position_sql
from job.plan.record_checks import EXPRESSION_FAILED
from job.protocol.reasons import REASONS
from job.spec.durations import milliseconds
from job.spec.expressions import column_name
from job.spec.value_schema import Column
from job.sql.literals import quoted
from job.sql.types import BIGINT, SMALLINT, STRING, TIMESTAMP, TINYINT, SqlType

_JSON_WHITESPACE = " \t\r\n"
_BRACES_MEET = ("}{", "} {", "}\n{")
"""A value with one of these may contain two documents."""
# 0001-01-01T00:00:00.000Z and 9999-12-31T23:59:59.999Z: other numbers are no epoch milliseconds.
_MILLIS_MIN, _MILLIS_MAX = -62_135_596_800_000, 253_402_300_799_999
_ISO_HYPHENS = (5, 8)
"""Positions of the hyphens in ISO-8601, from 1. Spark alone would also accept '12:00' and 'now'."""
# Spark's watermark begins at 0, so an event time must be after it.
_ABSURD_UP_TO = "timestamp_millis(0)"
_ABSURD_FROM = f"timestamp_millis({_MILLIS_MAX + 1})"
_ABSURD_YEAR = "^([+-][0-9]{4,}|[0-9]{5,})-[0-9]{2}-[0-9]{2}"
"""ISO-8601 with a sign or a year of more than four digits."""
_READ_AS = {TIMESTAMP: STRING, TINYINT: SMALLINT}
"""Column types whose JSON Spark parses as another type; then the value is converted and checked."""

_JSON_OPTIONS = "map('mode','PERMISSIVE','columnNameOfCorruptRecord','{unreadable}',"
_JSON_OPTIONS += "'allowSingleQuotes','false','allowNonNumericNumbers','false')"


MALFORMED_JSON = "malformed_json"

DECODED = "decoded"
"""Column with the decoded value of a record."""


def decoded_type(side: SidePlan) -> str:
    """DDL of the column DECODED. A TIMESTAMP is epoch microseconds, in any year."""
    fields = ", ".join(
        f"`{column.name}`: {BIGINT if column.type == TIMESTAMP else column.type}"
        for column in side.schema.columns
    )
    return f"reason STRING, message STRING, schema_id BIGINT, columns STRUCT<{fields}>"


def parsed(side: SidePlan) -> list[str]:
    """First step: the columns of the record, its value as the struct `parsed`, and `text`: the JSON
    text, or the decoder's error message for Avro and Protobuf."""
    if side.format.has_registry:
        return ["*", f"{DECODED}.message AS text", f"{DECODED}.columns AS parsed"]
    options = _JSON_OPTIONS.format(unreadable=_unreadable(side))
    fields = [f"`{column.name}` {_json_type(column)}" for column in side.schema.columns]
    schema = ", ".join([*fields, f"`{_unreadable(side)}` STRING"])
    return [
        "*",
        "cast(value AS STRING) AS text",
        f"from_json(cast(value AS STRING), {quoted(schema)}, {options}) AS parsed",
    ]


def restored(side: SidePlan) -> list[str]:
    """Second step: `parsed`, where a number in a STRING field has its original text."""
    if side.format.has_registry:
        return ["*"]
    options = _JSON_OPTIONS.format(unreadable=_unreadable(side))
    parsed_again = written_numbers.restored(side.schema.columns, [_unreadable(side)], options)
    return ["*"] if parsed_again is None else ["* EXCEPT (parsed)", f"{parsed_again} AS parsed"]


def typed(side: SidePlan) -> list[str]:
    """Third step: each column with its name in the dataflow, and `value_reason`."""
    columns = [
        f"{_value(side, column)} AS `{column_name(side.side, column.name)}`"
        for column in side.schema.columns
    ]
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
        f"{_written_event_time(side)} AS written_event_time",
        f"{_value_reason(side)} AS value_reason",
    ]


def classified(side: SidePlan) -> list[str]:
    """Fourth step: `reason`, which is null for a readable record."""
    return ["*", f"{_reason(side)} AS reason"]


def event_time_of_readable(side: SidePlan) -> str:
    """The event time; null for an unreadable record, which must not advance the watermark."""
    return f"CASE WHEN reason IS NULL THEN `{side.event_time_column}` END"


def reasons(side: SidePlan) -> list[str]:
    """The reasons that records of the side can have, in the order of reasons.REASONS."""
    foreign = {MALFORMED_JSON} if side.format.has_registry else set(OF_A_REGISTRY)
    if not side.checks.any:
        foreign |= {EXPRESSION_FAILED}
    return [reason for reason in REASONS if reason not in foreign]


def _unreadable(side: SidePlan) -> str:
    """Name of from_json's column for unreadable text. No column of the schema has it."""
    name = "unreadable"
    while side.schema.column(name) is not None:
        name += "_"
    return name


def _json_type(column: Column) -> SqlType:
    """The type of the column for from_json."""
    # from_json reads a number in a TIMESTAMP as seconds and 128 in a TINYINT as -128, and takes an
    # invalid time for an unreadable record.
    return _READ_AS.get(column.type, column.type)


def _value(side: SidePlan, column: Column) -> str:
    raw = f"parsed.`{column.name}`"
    if column.type == TINYINT and not side.format.has_registry:
        return f"try_cast({raw} AS TINYINT)"
    if column.type != TIMESTAMP:
        return raw
    return _of_micros(raw) if side.format.has_registry else timestamp(raw)


def _of_micros(raw: str) -> str:
    in_range = f"{raw} BETWEEN {_MILLIS_MIN * 1_000} AND {_MILLIS_MAX * 1_000 + 999}"
    return f"CASE WHEN {in_range} THEN timestamp_micros({raw}) END"


def timestamp(raw: str) -> str:
    """Epoch milliseconds, or ISO-8601; without an offset it is UTC.

    The two hyphens are required, because Spark also accepts '12:00' (today) and 'now'.
    """
    millis = f"try_cast({raw} AS BIGINT)"
    in_range = f"{millis} BETWEEN {_MILLIS_MIN} AND {_MILLIS_MAX}"
    iso = " AND ".join(f"substr({raw}, {at}, 1) = '-'" for at in _ISO_HYPHENS)
    return (
        f"CASE WHEN {in_range} THEN timestamp_millis({millis}) "
        f"WHEN {iso} THEN try_cast({raw} AS TIMESTAMP) END"
    )


def record_columns(side: SidePlan) -> dict[str, str]:
    """The columns with metadata of the record: their SQL by name."""
    columns = {
        "record_key": "cast(key AS STRING)",
        "record_timestamp": "timestamp",
        "record_partition": "partition",
        "record_offset": "offset",
    }
    if side.reads_headers:
        entries = "transform(headers, h -> struct(h.key, cast(h.value AS STRING)))"
        columns["record_headers"] = f"map_from_entries({entries})"
    return columns


def _written_event_time(side: SidePlan) -> str:
    column = side.schema.column(side.event_time)
    if column is None:
        return "cast(timestamp AS STRING)"
    raw = f"parsed.`{column.name}`"
    if side.format.has_registry:
        return f"coalesce(cast({_of_micros(raw)} AS STRING), cast({raw} AS STRING))"
    return raw


def _value_reason(side: SidePlan) -> str:
    """The reason if the value is unreadable, whatever its event time; null otherwise."""
    if side.format.has_registry:
        bad_column = f"false{_unreadable_columns(side)}"
        return (
            f"CASE WHEN value IS NULL THEN 'tombstone' WHEN {DECODED}.reason IS NOT NULL "
            f"THEN {DECODED}.reason WHEN {bad_column} THEN 'schema_mismatch' END"
        )
    return _json_reason(side)


def _json_reason(side: SidePlan) -> str:
    """The reason if the JSON text is unreadable; null otherwise.

    from_json reads only the first of several documents and ignores text after the last brace. The
    whole text is parsed again only if two braces are adjacent, because that costs more.
    """
    cut = f"TRIM(TRAILING {quoted(_JSON_WHITESPACE)} FROM text)"
    braces_meet = " OR ".join(f"contains(text, {quoted(pair)})" for pair in _BRACES_MEET)
    two_documents = f"({braces_meet}) AND try_parse_json(concat('[', text, ']')) IS NULL"
    malformed = (
        f"parsed IS NULL OR NOT endswith({cut}, '}}') OR NOT is_valid_utf8(text) "
        f"OR ({two_documents})"
    )
    unreadable = f"parsed.`{_unreadable(side)}` IS NOT NULL"
    return (
        "CASE WHEN value IS NULL THEN 'tombstone' "
        f"WHEN {malformed} THEN '{MALFORMED_JSON}' "
        f"WHEN {unreadable} AND try_parse_json(text) IS NULL THEN '{MALFORMED_JSON}' "
        f"WHEN {unreadable}{_unreadable_columns(side)} THEN 'schema_mismatch' END"
    )


def _unreadable_columns(side: SidePlan) -> str:
    """Condition: a column that from_json reads as another type is not null, and has no value of its
    declared type. Excludes the event time."""
    others = [
        column
        for column in side.schema.columns
        if column.type in _READ_AS and column.name != side.event_time
    ]
    return "".join(
        f" OR (parsed.`{column.name}` IS NOT NULL AND {_value(side, column)} IS NULL)"
        for column in others
    )


def _reason(side: SidePlan) -> str:
    event_time = f"`{side.event_time_column}`"
    no_such_time = (
        "try_cast(written_event_time AS BIGINT) IS NOT NULL "
        f"OR written_event_time RLIKE {quoted(_ABSURD_YEAR)}"
    )
    absurd = f"{event_time} <= {_ABSURD_UP_TO} OR {event_time} >= {_ABSURD_FROM}"
    return (
        "CASE WHEN value_reason IS NOT NULL THEN value_reason "
        "WHEN written_event_time IS NULL THEN 'missing_event_time' "
        f"WHEN {event_time} IS NULL AND ({no_such_time}) THEN 'absurd_event_time' "
        f"WHEN {event_time} IS NULL THEN 'unparsable_event_time' "
        f"WHEN {absurd} THEN 'absurd_event_time' "
        f"WHEN {_too_far_ahead(side)} THEN 'future_event_time' END"
    )


def _too_far_ahead(side: SidePlan) -> str:
    """Compares the event time with the timestamp of the record, not with the clock.

    So the result does not depend on when a record is read: in a backlog of days, the clock would
    accept event times of those days. And the time of the batch would be a new literal, for which
    Spark would compile the query again in each batch.
    """
    recorded_at = f"unix_millis(`{column_name(side.side, 'record_timestamp')}`)"
    ahead = milliseconds(side.max_event_time_ahead)
    return f"unix_millis(`{side.event_time_column}`) > {recorded_at} + {ahead}"
