"""Fields of a sample that can be the event time, and the SQL that reads them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from statistics import median

from job.proposal.columns import Table
from job.proposal.fields import Field, fields_of, words
from job.proposal.zones import ZoneEvidence, zone_evidence
from job.semantics.input_records import micros_of
from job.semantics.json_lines import Json, Number
from job.sql.rows import SqlRows
from job.sql.types import BIGINT, DOUBLE, INT, STRING, TIMESTAMP

RECORD_TIMESTAMP = "record_timestamp"
"""The column with Kafka's timestamp of the record."""
SOURCE_TIMESTAMP = "record_source_timestamp"
"""The column with the time of a change in the database."""

_MICROS = 1_000_000
_MINUTE = 60 * _MICROS
_HOUR = 60 * _MINUTE
_YEAR = 366 * 24 * _HOUR
_ZONE_MAX = 14 * _HOUR
"""Largest offset of a zone."""
_NULLS_MAX = 0.1
"""Part of the records that may have no time: they are bad records."""
_FIRST, _LAST = 315_532_800, 4_102_444_800
"""1980 and 2100 in epoch seconds. In these years no number is plausible in two units."""

_UNITS = {
    1: "timestamp_seconds({})",
    1_000: "timestamp_millis({})",
    1_000_000: "timestamp_micros({})",
    1_000_000_000: "timestamp_micros({} div 1000)",
}
"""SQL of an epoch time, by its ticks a second."""
_MILLIS = 1_000

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?![\w-])|\d{4}-\d{2}-\d{2}[Tt]|\d{8}T\d{4}")
_TIME = re.compile(r"\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}([T ].*)?|\d{1,2}:\d{2}(:\d{2}.*)?")
"""Text that is a date or a time of day, in any format."""
_FORMATS = (
    "dd/MM/yyyy HH:mm:ss",
    "MM/dd/yyyy HH:mm:ss",
    "dd.MM.yyyy HH:mm:ss",
    "yyyy/MM/dd HH:mm:ss",
)
"""Of texts that are not ISO-8601. If two formats read all values, the times decide."""
_CAST = "cast({} AS TIMESTAMP)"
_MINUTES = "yyyy-MM-dd'T'HH:mmXXX"
_CAST_OR_MINUTES = f'coalesce(try_cast({{0}} AS TIMESTAMP), try_to_timestamp({{0}}, "{_MINUTES}"))'
"""Also of texts as Java writes full minutes, which a cast does not read."""
_OFFSET = re.compile(r"([Zz]|[+-]\d{2}(:?\d{2})?(\[.*\])?|\s?[A-Z]{3,4}|\s?[A-Za-z]+/[A-Za-z_/]+)$")
"""End of a text that names its offset or zone."""

_WORDS_OF_TIMES = {
    *("at", "on", "time", "timestamp", "ts", "date", "datetime", "day", "when", "created"),
    *("updated", "modified", "epoch", "ms", "us", "ns", "millis", "micro", "nano", "second"),
}
_WORDS_OF_OTHERS = {"expire", "expiry", "expiration", "due", "until", "valid", "birth", "deadline"}
"""Of times that are not the one of the event."""
WORDS_OF_KEYS = {"id", "key", "uuid", "guid", "code", "no", "nr", "num", "number", "ref", "sku"}


@dataclass(frozen=True)
class EventTime:
    sql: str
    """Expression of the spec."""
    times: list[int | None]
    """Microseconds since 1970 of each row of the table. None: the row has none."""
    path: tuple[str, ...] = ()
    """Names from a column to the field in it, or the column, that the schema declares as TIMESTAMP.
    Empty: the schema declares no TIMESTAMP for this time."""
    is_local: bool = False
    """A text without an offset."""
    field: str = ""
    """The column or field that contains the time."""
    zone: ZoneEvidence | None = None
    """Of a local time."""
    is_future: bool = False
    """Read as UTC, it is too far ahead of the records, and they do not show its zone."""

    @property
    def nulls(self) -> int:
        """Number of the records without a time."""
        return sum(at is None for at in self.times)

    @property
    def offset_minutes(self) -> int | None:
        """Offset of a local time, if the records show it."""
        return None if self.zone is None else self.zone.offset_minutes


def event_times(table: Table, rows: SqlRows, quoted: Mapping[str, str]) -> list[EventTime]:
    """Expressions that can be the event time, the likeliest first; then the record timestamp; then
    local times of a zone ahead of UTC."""
    recorded = [record.timestamp_us or 0 for record in table.records]
    found: list[tuple[tuple[bool, bool, float], EventTime]] = []
    of_zone: list[EventTime] = []
    for field in fields_of(table):
        is_other = bool(_WORDS_OF_OTHERS & set(words(field.parts[-1])))
        is_source = field.in_envelope and "source" in field.parts
        for utc in _event_times(field, table, recorded, rows, quoted):
            time = _in_zone(replace(utc, field=field.sql(quoted)), recorded)
            distances = [at - other for at, other in zip(time.times, recorded, strict=True) if at]
            distance = median(abs(each) for each in distances)
            ahead = max(distances)
            if ahead <= _HOUR:  # else future_event_time: see max_event_time_ahead
                found.append(((not is_source, is_other, distance), time))
            elif time.is_local and not is_other and ahead <= _ZONE_MAX + _HOUR:
                of_zone.append(replace(time, is_future=True))
    found += _source_times(table)
    likely = [time for _, time in sorted(found, key=lambda each: each[0])]
    return [*likely, EventTime(RECORD_TIMESTAMP, [*recorded]), *of_zone]


def _in_zone(time: EventTime, recorded: Sequence[int]) -> EventTime:
    """A local time with the evidence for its zone, and with its times in this zone."""
    if not time.is_local:
        return time
    time = replace(time, zone=zone_evidence(time.times, recorded))
    behind = (time.offset_minutes or 0) * _MINUTE
    return replace(time, times=[None if at is None else at - behind for at in time.times])


def _source_times(table: Table) -> Iterator[tuple[tuple[bool, bool, float], EventTime]]:
    """The time of the change in the database, if all envelopes have it."""
    if table.changes is not None:
        written = table.changes.source_ms
        if _ticks(written) == _MILLIS:
            times: list[int | None] = [int(Decimal(str(each))) * 1_000 for each in written]
            yield (False, False, -1), EventTime(SOURCE_TIMESTAMP, times, field=SOURCE_TIMESTAMP)


def can_be_declared(values: Sequence[Json]) -> bool:
    """Whether more than half of the values are times that a TIMESTAMP column reads."""
    read = [
        value
        for value in values
        if isinstance(value, str) and (_DATE.match(value.strip()) or _ticks([value]) == _MILLIS)
    ]
    return 2 * len(read) > len(values)


def is_time(field: Field) -> bool:
    """Whether the values look like times: then they are no keys."""
    present = [value for value in field.values if value is not None]
    if field.type.name in {"TIMESTAMP", "DATE"}:
        return True
    if field.in_envelope or not present:
        return field.in_envelope
    if field.type == STRING and not all(_is_digits(value) for value in present):
        return all(isinstance(value, str) and _TIME.fullmatch(value.strip()) for value in present)
    return _ticks(present) is not None and _is_named_as_time(field)


def _is_named_as_time(field: Field) -> bool:
    found = words(field.parts[-1])
    return bool(_WORDS_OF_TIMES & set(found)) and not set(found[-1:]) & WORDS_OF_KEYS


def _event_times(
    field: Field,
    table: Table,
    recorded: Sequence[int],
    rows: SqlRows,
    quoted: Mapping[str, str],
) -> Iterator[EventTime]:
    """The SQL that reads all values as times."""
    present = [value for value in field.values if value is not None]
    if not present or len(present) < (1 - _NULLS_MAX) * len(field.values):
        return
    if field.expression is not None and not all(":" in str(value) for value in present):
        return  # a word of a text with a date, or with a number
    sql = field.sql(quoted)
    path = field.parts if field.expression is None and table.declares_types else ()
    if field.type == TIMESTAMP:
        times = _of_texts(field.values, rows)
        if times is not None:
            yield EventTime(sql, times)
        return
    if field.type == STRING and not _is_digits(present[0]):
        yield from _of_text(field, sql, path, rows)
        return
    ticks = _ticks(present)
    if ticks is None or field.type not in {BIGINT, INT, DOUBLE, STRING}:
        return
    numbers = [
        None if value is None else int(Decimal(str(value)) * _MICROS / ticks)
        for value in field.values
    ]
    is_time = _is_named_as_time(field) or _are_near(numbers, recorded)
    if not is_time or set(words(field.parts[-1])[-1:]) & WORDS_OF_KEYS:
        return
    if ticks == _MILLIS and field.type in {BIGINT, STRING} and len(path) == 1:
        yield EventTime(sql, numbers, path)
    else:
        number = f"cast({sql} AS BIGINT)" if field.type == STRING else sql
        yield EventTime(_UNITS[ticks].format(number), numbers)


def _of_text(field: Field, sql: str, path: tuple[str, ...], rows: SqlRows) -> Iterator[EventTime]:
    """`path`: of the field, if the schema can declare it as TIMESTAMP."""
    times = _of_texts(field.values, rows)
    present = [value for value in field.values if value is not None]
    if times is not None:
        is_local = not any(_OFFSET.search(str(value)[10:]) for value in present)
        if path:
            yield EventTime(sql, times, path, is_local)
        else:
            yield from _of_expression(field.values, sql, is_local, rows)
    elif all(isinstance(value, str) and _TIME.fullmatch(value) for value in present):
        for text_format in _FORMATS:
            read = _micros(field.values, f"try_to_timestamp(text, '{text_format}')", rows)
            if read.count(None) == len(field.values) - len(present):
                yield EventTime(f"to_timestamp({sql}, '{text_format}')", read, is_local=True)


def _of_expression(
    values: Sequence[Json], sql: str, is_local: bool, rows: SqlRows
) -> Iterator[EventTime]:
    """An expression, which reads fewer forms of ISO-8601 than a TIMESTAMP: the cast if it reads all
    texts, else the one that reads full minutes, too, if it reads enough of them."""
    cast = _micros(values, "try_cast(text AS TIMESTAMP)", rows)
    if cast.count(None) == values.count(None):
        yield EventTime(_CAST.format(sql), cast, is_local=is_local)
        return
    read = _micros(values, _CAST_OR_MINUTES.format("text"), rows)
    if read.count(None) <= _NULLS_MAX * len(values):
        yield EventTime(_CAST_OR_MINUTES.format(sql), read, is_local=is_local)


def _micros(values: Sequence[Json], sql: str, rows: SqlRows) -> list[int | None]:
    program = rows.program("text STRING", [[f"unix_micros({sql}) AS at"]], ["at"])
    store = rows.store()
    texts = [[None if value is None else str(value)] for value in values]
    answers = rows.run(program, texts, keep_in=store)
    rows.drop(store)
    return [answer["at"] for answer in answers]


def _of_texts(values: Sequence[Json], rows: SqlRows) -> list[int | None] | None:
    """The values as microseconds. None: one of them is no time."""
    present = [str(value).strip() for value in values if value is not None]
    if not all(isinstance(value, str | None) for value in values) or not all(
        _DATE.match(text) for text in present
    ):
        return None
    times = micros_of(present, rows)
    if None in times:
        return None
    read = iter(times)
    return [None if value is None else next(read) for value in values]


def _ticks(values: Sequence[Json]) -> int | None:
    """Ticks a second in which all numbers are in the years 1980 to 2100. None: there are none."""
    if not all(isinstance(value, Number) or _is_digits(value) for value in values):
        return None
    numbers = [Decimal(str(value)) for value in values]
    first, last = min(numbers), max(numbers)
    return next(
        (ticks for ticks in _UNITS if _FIRST * ticks <= first and last < _LAST * ticks), None
    )


def _is_digits(value: Json) -> bool:
    return isinstance(value, str) and value.isascii() and value.isdigit()


def _are_near(times: Sequence[int | None], recorded: Sequence[int]) -> bool:
    return all(
        at is None or abs(at - other) <= _YEAR for at, other in zip(times, recorded, strict=True)
    )
