"""How the values of each format become the columns of a side, in Spark SQL.

The value of a record is first the struct `parsed`, with a field for each column, and `text`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from job.formats.schemas import NO_SCHEMA_ID, OF_A_REGISTRY, UNDECODABLE_VALUE
from job.plan import csv_sql, envelope_sql, json_sql
from job.plan.side_plan import SidePlan
from job.plan.timestamp_sql import of_micros, timestamp
from job.spec.value_format import Format
from job.spec.value_schema import Column
from job.sql.literals import quoted
from job.sql.time_zones import in_time_zone
from job.sql.types import TIMESTAMP, SqlType

MALFORMED_JSON = "malformed_json"
TOMBSTONE = "tombstone"
SCHEMA_MISMATCH = "schema_mismatch"

DECODED = "decoded"
"""Column with the decoded value of a record, for formats with a registry."""
DECODED_KEY = "decoded_key"
"""As DECODED, with the key."""


_CONVERTED = "converted_"


@dataclass(frozen=True)
class ValueSql:
    """SQL that reads the values of a format."""

    text: str
    """`text`: the text of the value, or the error message of the decoder."""
    parsed: Callable[[SidePlan], str]
    raw: Callable[[Column], str]
    """The value of a column as `parsed` has it."""
    converted: Callable[[SidePlan, SqlType, str], str]
    """The value of the declared type, from SQL of one as `parsed` has it. Null: it is not of this
    type. Returns the same SQL if `parsed` has values of the declared type."""
    is_present: Callable[[SidePlan, str], str]
    """Condition over `text` and `parsed`: the row has the column with this name, of any type."""
    written_time: Callable[[Column], str]
    """The event time as it is written."""
    unreadable: Callable[[SidePlan], str]
    """Cases with the reason of a value that is not readable as a whole."""
    reasons: frozenset[str]
    """The reasons that not every format has, and this one has."""
    undecodable_message: str = "text"
    mismatch_message: Callable[[SidePlan], str] = lambda _: "NULL"
    """The message of schema_mismatch of a value as a whole; null if a field has another type."""
    restored: Callable[[SidePlan], str | None] = lambda _: None
    """`parsed`, where texts of numbers are as they are written. None: they are already."""


def value_sql(side: SidePlan) -> ValueSql:
    return _FORMATS[side.format]


def conversions(side: SidePlan) -> list[str]:
    """Columns with the values that `parsed` has as another type than the declared one.

    The values of one type are one array, so that Spark generates the code of a conversion once. A
    method has at most 64 KB, and the code of 20 timestamps is larger.
    """
    of_format = value_sql(side)
    columns = []
    for index, (kind, converted) in enumerate(_converted(side).items()):
        raw = [of_format.raw(column) for column in converted]
        if len(raw) == 1:
            sql = of_format.converted(side, kind, raw[0])
        else:
            each = of_format.converted(side, kind, "raw")
            sql = f"transform(array({', '.join(raw)}), raw -> {each})"
        columns.append(f"{sql} AS {_CONVERTED}{index}")
    return columns


def values(side: SidePlan) -> dict[str, str]:
    """SQL of each column of the value by its name, over `parsed` and `conversions`. Null if
    `parsed` has a value that is not of the declared type."""
    of_format = value_sql(side)
    sql = {column.name: of_format.raw(column) for column in side.schema.columns}
    for index, converted in enumerate(_converted(side).values()):
        for place, column in enumerate(converted):
            element = f"[{place}]" if len(converted) > 1 else ""
            sql[column.name] = f"{_CONVERTED}{index}{element}"
    return sql


def _converted(side: SidePlan) -> dict[SqlType, list[Column]]:
    """The columns whose values are converted, by type."""
    of_type: dict[SqlType, list[Column]] = {}
    for column in side.schema.columns:
        of_type.setdefault(column.type, []).append(column)
    convert = value_sql(side).converted
    return {kind: each for kind, each in of_type.items() if convert(side, kind, "raw") != "raw"}


def reasons_of_other_formats(side: SidePlan) -> frozenset[str]:
    """The reasons that no value of the side can have."""
    return _OF_SOME_FORMATS - value_sql(side).reasons


def reason(side: SidePlan) -> str:
    """The reason if the value is unreadable, whatever its event time; null otherwise."""
    cases = value_sql(side).unreadable(side)
    if SCHEMA_MISMATCH in value_sql(side).reasons:
        unreadable = " OR ".join(["false", *_unreadable_columns(side)])
        cases += f" WHEN {unreadable} THEN '{SCHEMA_MISMATCH}'"
    tombstone = "NULL" if side.has_tombstones else f"'{TOMBSTONE}'"
    return f"CASE WHEN value IS NULL THEN {tombstone} {cases} END"


def _unreadable_columns(side: SidePlan) -> list[str]:
    """For each column that is converted: the condition that it is not null, and has no value of its
    declared type. Excludes the event time."""
    raw, value = value_sql(side).raw, values(side)
    return [
        f"({raw(column)} IS NOT NULL AND {value[column.name]} IS NULL)"
        for converted in _converted(side).values()
        for column in converted
        if column.name != side.event_time
    ]


def _json_unreadable(side: SidePlan) -> str:
    columns = side.schema.columns
    broken = envelope_sql.is_broken(side)
    of_envelope = "" if broken is None else f" OR {broken}"
    return (
        f"WHEN {json_sql.is_malformed(columns)} THEN '{MALFORMED_JSON}' "
        f"WHEN {json_sql.is_unreadable(columns)}{of_envelope} THEN '{SCHEMA_MISMATCH}'"
    )


def _json_is_present(side: SidePlan, name: str) -> str:
    text = "text" if side.envelope is None else envelope_sql.row_text(side)
    return json_sql.is_present(name, text)


def _json_schema_unreadable(side: SidePlan) -> str:
    no_id = json_sql.lacks_schema_id("value")
    return f"WHEN {no_id} THEN '{UNDECODABLE_VALUE}' {_json_unreadable(side)}"


def _decoded_unreadable(side: SidePlan) -> str:
    broken = envelope_sql.is_broken(side)
    of_envelope = "" if broken is None else f" WHEN {broken} THEN '{SCHEMA_MISMATCH}'"
    return f"WHEN {DECODED}.reason IS NOT NULL THEN {DECODED}.reason{of_envelope}"


def _text_unreadable(_: SidePlan) -> str:
    return f"WHEN NOT is_valid_utf8(text) THEN '{UNDECODABLE_VALUE}'"


def _csv_unreadable(side: SidePlan) -> str:
    return f"{_text_unreadable(side)} WHEN {csv_sql.is_broken(side)} THEN '{SCHEMA_MISMATCH}'"


def _of_decoded(_: SidePlan, kind: SqlType, raw: str) -> str:
    return of_micros(raw) if kind == TIMESTAMP else raw


def _of_csv(side: SidePlan, kind: SqlType, raw: str) -> str:
    if kind == TIMESTAMP:
        return in_time_zone(timestamp(raw), side.time_zone)
    return csv_sql.converted(raw, kind)


def _decoded_time(column: Column) -> str:
    raw = _field(column)
    return f"coalesce(cast({of_micros(raw)} AS STRING), cast({raw} AS STRING))"


def _field(column: Column) -> str:
    return f"parsed.`{column.name}`"


def _field_is_present(_: SidePlan, name: str) -> str:
    return f"parsed.`{name}` IS NOT NULL"


_OF_SOME_FORMATS = OF_A_REGISTRY | {MALFORMED_JSON, SCHEMA_MISMATCH}
_NOT_UTF_8 = "'the value is not text in UTF-8'"
_TEXT_OF_VALUE = "cast(value AS STRING)"
_TEXT_AFTER_ID = json_sql.text_after_schema_id("value")
_JSON = ValueSql(
    text=_TEXT_OF_VALUE,
    parsed=lambda side: json_sql.parsed(envelope_sql.value_columns(side), _TEXT_OF_VALUE),
    raw=_field,
    converted=lambda side, kind, raw: json_sql.converted(raw, kind, side.time_zone),
    is_present=_json_is_present,
    written_time=_field,
    unreadable=_json_unreadable,
    reasons=frozenset({MALFORMED_JSON, SCHEMA_MISMATCH}),
    restored=lambda side: json_sql.restored(envelope_sql.value_columns(side)),
)
_DECODED = ValueSql(
    text=f"{DECODED}.message",
    parsed=lambda _: f"{DECODED}.columns",
    raw=_field,
    converted=_of_decoded,
    is_present=_field_is_present,
    written_time=_decoded_time,
    unreadable=_decoded_unreadable,
    reasons=OF_A_REGISTRY | {SCHEMA_MISMATCH},
)
_FORMATS = {
    Format.JSON: _JSON,
    Format.JSON_SCHEMA: replace(
        _JSON,
        text=_TEXT_AFTER_ID,
        parsed=lambda side: json_sql.parsed(envelope_sql.value_columns(side), _TEXT_AFTER_ID),
        unreadable=_json_schema_unreadable,
        reasons=_JSON.reasons | {UNDECODABLE_VALUE},
        undecodable_message=quoted(f"the value {NO_SCHEMA_ID}"),
    ),
    Format.AVRO: _DECODED,
    Format.PROTOBUF: _DECODED,
    Format.CSV: ValueSql(
        text=csv_sql.line(),
        parsed=csv_sql.fields,
        raw=csv_sql.field_text,
        converted=_of_csv,
        is_present=_field_is_present,
        written_time=csv_sql.field_text,
        unreadable=_csv_unreadable,
        reasons=frozenset({UNDECODABLE_VALUE, SCHEMA_MISMATCH}),
        undecodable_message=_NOT_UTF_8,
        mismatch_message=csv_sql.broken_message,
    ),
    Format.TEXT: ValueSql(
        text=_TEXT_OF_VALUE,
        parsed=lambda _: f"named_struct('value', {_TEXT_OF_VALUE})",
        raw=_field,
        converted=lambda _, __, raw: raw,
        is_present=_field_is_present,
        written_time=_field,
        unreadable=_text_unreadable,
        reasons=frozenset({UNDECODABLE_VALUE}),
        undecodable_message=_NOT_UTF_8,
    ),
}
