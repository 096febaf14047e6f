"""From a Kafka record to column values, in Python: the rules of job/dataflow/record_sql.py.

A record has either a value for each column or one of reasons.REASONS.
"""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from job.evaluation.sql_cast import cast
from job.evaluation.sql_types import (
    BIGINT,
    INT_RANGES,
    STRING,
    TIMESTAMP,
    TINYINT,
    NotExactError,
    SqlRuntimeError,
    SqlType,
    Value,
)
from job.evaluation.time_text import timestamp_of
from job.evaluation.type_trees import parse_type
from job.join_spec import record_rules
from job.join_spec.durations import milliseconds
from job.join_spec.source_topics import PARTITIONS_MAX, SourceTopics
from job.plan.plan import RECORD_COLUMNS, SidePlan
from job.semantics.json_document import (
    Json,
    Members,
    Number,
    any_json,
    compact_text,
    document,
    has_duplicate_name,
    without_lone_surrogates,
)
from job.semantics.json_values import MismatchError, members_read, reader
from job.semantics.rows import MICROS_PER_MS


@dataclass(frozen=True)
class InputRecord:
    """A record of a topic."""

    value: str | bytes | None
    offset: int
    partition: int = 0
    key: str | None = None
    timestamp_us: int | None = None
    """Kafka timestamp. None: not known, and no event time is too far ahead."""
    batch: int | None = None
    """Batch that reads the record. None: the input has no batch numbers."""
    topic: str | None = None
    """None: the side has one topic."""
    number: int | None = None
    """Number of the partition among those of the side. None: the partition itself."""

    @property
    def partition_of_side(self) -> int:
        return self.partition if self.number is None else self.number


@dataclass(eq=False, slots=True)  # compared by identity: two records are two rows
class DecodedRow:
    """A readable record."""

    record: InputRecord
    values: tuple[Value, ...]
    """One value for each column of the side, including record metadata."""
    event_time_us: int
    late_time_us: int = field(default=0)
    """The event time, or the end of the tumbling window: it decides whether the row is late."""


class RecordDecoder:
    """Decodes the records of one side. NotExactError for a column whose type is not supported."""

    def __init__(self, side: SidePlan) -> None:
        self._columns = [
            (column.name, _type_of(side, column.name, column.type))
            for column in side.schema.columns
        ]
        self._readers = {name: reader(_READ_AS.get(kind, kind)) for name, kind in self._columns}
        self._event_time = side.event_time
        self._in_value = side.schema.column(side.event_time) is not None
        self._max_ahead_ms = milliseconds(side.max_event_time_ahead)

    @property
    def columns(self) -> list[tuple[str, SqlType]]:
        """Names and types of `DecodedRow.values`."""
        own = [(c.name, parse_type(c.type)) for c in RECORD_COLUMNS if not c.type.startswith("MAP")]
        return [*self._columns, *own]

    def decode(self, record: InputRecord) -> DecodedRow | str:
        """The row, or the reason of an unreadable record."""
        if record.value is None:
            return "tombstone"
        members = document(record.value)
        if members is None:
            return "malformed_json"
        read = self._read(members)
        if isinstance(read, str):
            return read
        written = self._written_event_time(record, read)
        at = timestamp(written)
        reason = _event_time_reason(written, at)
        if reason is not None or at is None:
            return reason or "unparsable_event_time"
        if self._is_too_far_ahead(at, record.timestamp_us):
            return "future_event_time"
        values = [_own_value(kind, read[name]) for name, kind in self._columns]
        own = (record.key, record.timestamp_us, record.partition, record.offset)
        return DecodedRow(record, (*values, *own), at, at)

    def _read(self, members: Members) -> dict[str, Value] | str:
        """The value of each column as in from_json, or the reason of an unreadable record."""
        try:
            read = members_read(members, self._readers)
        except MismatchError:
            # The job then parses the text with try_parse_json, which refuses duplicate names.
            return "malformed_json" if has_duplicate_name(members) else "schema_mismatch"
        for name, kind in self._columns:
            is_absent = read[name] is None or name == self._event_time
            if not is_absent and _own_value(kind, read[name]) is None:
                return "schema_mismatch"
        return read

    def _written_event_time(self, record: InputRecord, read: dict[str, Value]) -> str | None:
        if self._in_value:
            return _str(read[self._event_time])
        at = record.timestamp_us
        return None if at is None else str(cast(TIMESTAMP, STRING)(at))

    def _is_too_far_ahead(self, at_us: int, recorded_at_us: int | None) -> bool:
        return (
            recorded_at_us is not None
            and at_us // 1000 > recorded_at_us // 1000 + self._max_ahead_ms
        )


def _type_of(side: SidePlan, name: str, ddl: str) -> SqlType:
    try:
        return parse_type(ddl)
    except NotExactError as error:
        raise NotExactError(f"{error}, in the {side.side} side's column {name}") from error


_READ_AS = {parse_type(own): parse_type(first) for own, first in record_rules.READ_AS.items()}


def _own_value(kind: SqlType, read: Value) -> Value:
    """The value of a column that from_json reads as another type. None: it has no value of its
    declared type."""
    if kind == TIMESTAMP:
        return timestamp(_str(read))
    if kind == TINYINT and isinstance(read, int):
        low, high = INT_RANGES["TINYINT"]
        return read if low <= read <= high else None
    return read


def _str(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def timestamp(raw: str | None) -> int | None:
    """Microseconds since 1970 of epoch milliseconds or ISO-8601 text (UTC without an offset)."""
    if raw is None:
        return None
    millis = _bigint(raw)
    low, high = record_rules.TIMESTAMP_MILLIS_MIN, record_rules.TIMESTAMP_MILLIS_MAX
    if millis is not None and low <= millis <= high:
        return millis * MICROS_PER_MS
    is_iso = all(raw[at - 1 : at] == "-" for at in record_rules.ISO_HYPHENS)
    return timestamp_of(raw) if is_iso else None


def _bigint(raw: str) -> int | None:
    """try_cast(raw AS BIGINT)."""
    try:
        value = _TO_BIGINT(raw)
    except SqlRuntimeError:
        return None
    return value if isinstance(value, int) else None


_TO_BIGINT = cast(STRING, BIGINT)
_ABSURD_YEAR = re.compile(record_rules.ABSURD_YEAR)


def _event_time_reason(written: str | None, at: int | None) -> str | None:
    if written is None:
        return "missing_event_time"
    if at is None:
        is_no_such_time = _bigint(written) is not None or _ABSURD_YEAR.match(written)
        return "absurd_event_time" if is_no_such_time else "unparsable_event_time"
    above, below = record_rules.EVENT_TIME_ABOVE_MILLIS, record_rules.EVENT_TIME_BELOW_MILLIS
    is_real = above * MICROS_PER_MS < at < below * MICROS_PER_MS
    return None if is_real else "absurd_event_time"


class InputLineError(ValueError):
    """A line or row that is not a record. The message contains line, problem and fix."""


def records_of_jsonl(
    lines: Sequence[str], side: SidePlan | None = None, unit: str = "line"
) -> list[InputRecord]:
    """The records of a JSONL file. `unit`: name of a line in messages of InputLineError.

    A line is the value of a record; or an envelope: an object of `value` and any of `key`,
    `partition`, `offset`, `timestamp` (as an event time is written) and `batch`. There `value`
    may be an object, text (a value that is not JSON) or null (a tombstone).

    If the side has several topics, an envelope may also have `topic`. Without it the record is in
    the first topic.

    A line whose members are columns of the side is a value, whatever their names. A line that
    may be either is refused; `"envelope": true` in it makes it an envelope.
    """
    columns = {} if side is None else {c.name: c.type for c in side.schema.columns}
    topics = side.topics if side is not None and side.topics.are_several else None
    records: list[InputRecord] = []
    for number, line in enumerate(lines, start=1):
        text = line.strip("\r\n")
        if not text.strip(record_rules.JSON_WHITESPACE):
            continue
        try:
            records.append(_record(text, len(records), columns, topics))
        except InputLineError as error:
            raise InputLineError(f"{unit} {number}: {error}") from None
    return records


_MARK = "envelope"
_ENVELOPE = {"value", "key", "partition", "offset", "timestamp", "batch"}


def _record(
    text: str, number: int, columns: Mapping[str, str], topics: SourceTopics | None
) -> InputRecord:
    try:
        members = any_json(text)
    except ValueError:
        members = None
    if not isinstance(members, Members) or not _is_envelope(dict(members), columns, topics):
        return _of_topic(InputRecord(text, offset=number), {}, topics)
    line = dict(members)
    value = line["value"]
    record = InputRecord(
        value if value is None or isinstance(value, str) else compact_text(value),
        offset=_whole_number(line, "offset", number),
        partition=_whole_number(line, "partition", 0),
        key=_key(line),
        timestamp_us=_record_timestamp(line),
        batch=_whole_number(line, "batch", None),
    )
    return _of_topic(record, line, topics)


def _of_topic(
    record: InputRecord, line: Mapping[str, Json], topics: SourceTopics | None
) -> InputRecord:
    if topics is None:
        return record
    topic = line.get("topic", topics.names[0])
    if not isinstance(topic, str) or topic not in topics.names:
        raise InputLineError(f"`topic` must be one of {topics} (written: {_shown(topic)})")
    if record.partition >= PARTITIONS_MAX:
        raise InputLineError(f"`partition` must be below {PARTITIONS_MAX} with several topics")
    return replace(record, topic=topic, number=topics.number(topic, record.partition))


def _is_envelope(
    line: Mapping[str, Json], columns: Mapping[str, str], topics: SourceTopics | None
) -> bool:
    """Whether a line is an envelope; InputLineError if it may also be a value."""
    allowed = _ENVELOPE if topics is None else _ENVELOPE | {"topic"}
    if line.get(_MARK) is True and _MARK not in columns:
        return _is_well_marked(line, allowed)
    value = line.get("value", _MISSING)
    if not set(line) <= allowed or not isinstance(value, Members | str | None):
        return False
    if isinstance(value, Number):
        return False
    names = set(line) & set(columns)
    if isinstance(value, Members):
        may_be_a_field = columns.get("value", "INT").startswith(("STRING", "STRUCT", "MAP"))
        if not may_be_a_field:
            return True
        if not {name for name, _ in value} & set(columns):
            return False
        is_clear = names == {"value"}
    else:
        if names == set(line):
            return False
        is_clear = not names
    if is_clear:
        return True
    raise InputLineError(
        f"may be the value of a record ({', '.join(sorted(names))} are columns of the side) or an "
        f'envelope: write {{"{_MARK}": true, "value": …}}, with the row as its value'
    )


def _is_well_marked(line: Mapping[str, Json], allowed: Set[str]) -> bool:
    unknown = sorted(set(line) - allowed - {_MARK})
    if unknown:
        raise InputLineError(
            f"has the unknown field {unknown[0]}: an envelope has {', '.join(sorted(allowed))}"
        )
    if "value" not in line or not isinstance(line["value"], Members | str | None):
        raise InputLineError("needs `value` in its envelope: an object, text or null")
    return True


def _whole_number(line: Mapping[str, Json], name: str, missing: Any) -> Any:
    """A number of the envelope; `missing` if the envelope has none."""
    if name not in line:
        return missing
    raw = line[name]
    if not isinstance(raw, Number) or not _WHOLE_NUMBER.fullmatch(raw):
        raise InputLineError(f"`{name}` must be a whole number, 0 or more (written: {_shown(raw)})")
    return int(raw)


def _key(line: Mapping[str, Json]) -> str | None:
    raw = line.get("key")
    if raw is None:
        return None
    if isinstance(raw, Number) or not isinstance(raw, str):
        raise InputLineError(f"`key` must be text or null (written: {_shown(raw)})")
    return without_lone_surrogates(raw)


def _record_timestamp(line: Mapping[str, Json]) -> int | None:
    raw = line.get("timestamp")
    if raw is None:
        return None
    at = timestamp(raw) if isinstance(raw, str) else None
    if at is None:
        raise InputLineError(
            "`timestamp` must be epoch milliseconds or ISO-8601, e.g. 2026-01-01T00:00:00Z "
            f"(written: {_shown(raw)})"
        )
    return at


def _shown(raw: Json) -> str:
    text = compact_text(raw)
    return text if len(text) <= _SHOWN_CHARS_MAX else f"{text[:_SHOWN_CHARS_MAX]}…"


_SHOWN_CHARS_MAX = 40
_WHOLE_NUMBER = re.compile("[0-9]{1,18}")
_MISSING = ()
