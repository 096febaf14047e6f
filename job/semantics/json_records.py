"""From a Kafka record to column values, in Python: the rules of job/decoding.py.

A record has either a value for each column or one of reasons.REASONS.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from job.join_spec.durations import milliseconds
from job.plan.model import RECORD_COLUMNS, SidePlan
from job.semantics.sql_cast import as_float32, cast, date_of, fit, timestamp_of
from job.semantics.sql_types import (
    BIGINT,
    INT_RANGES,
    STRING,
    TIMESTAMP,
    NotExactError,
    SqlRuntimeError,
    SqlType,
    Value,
    parse_type,
)

_MILLIS_MIN, _MILLIS_MAX = -62_135_596_800_000, 253_402_300_799_999
_ABSURD_FROM_US = 253_402_300_800_000_000
_BRACES_MEET = re.compile(r"\}[ \n]?\{")
_WHITESPACE = " \t\r\n"


@dataclass(frozen=True)
class InputRecord:
    """A record as it stands in a topic."""

    value: str | bytes | None
    offset: int
    partition: int = 0
    key: str | None = None
    timestamp_us: int | None = None
    """Kafka's; None: not known, and no event time is too far ahead of it."""
    batch: int | None = None
    """The batch it is to be read in, where the user says so."""


@dataclass(eq=False, slots=True)  # two records are never the same row
class DecodedRow:
    """A record that could be read."""

    record: InputRecord
    values: tuple[Value, ...]
    """One for each of the side's columns, Kafka's own included."""
    event_time_us: int
    late_time_us: int = field(default=0)
    """What it is late by: its event time, or the end of its tumbling window."""


class _Mismatch(Exception):  # noqa: N818 - control flow within this module
    """A field that is not of its declared type."""


class _Number(str):
    """A number as it was written, for Spark reads it by its declared type."""

    __slots__ = ()


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_int=_Number, parse_float=_Number, parse_constant=_no_constant)


class RecordDecoder:
    """Reads the records of one side."""

    def __init__(self, side: SidePlan) -> None:
        self._columns = [(column.name, parse_type(column.type)) for column in side.schema.columns]
        self._event_time = side.event_time
        self._in_value = side.schema.column(side.event_time) is not None
        self._max_ahead_ms = milliseconds(side.max_event_time_ahead)

    @property
    def columns(self) -> list[tuple[str, SqlType]]:
        """Names and types of `DecodedRow.values`."""
        own = [(c.name, parse_type(c.type)) for c in RECORD_COLUMNS if not c.type.startswith("MAP")]
        return [*self._columns, *own]

    def decode(self, record: InputRecord) -> DecodedRow | str:
        """The row, or the reason why there is none."""
        if record.value is None:
            return "tombstone"
        fields = _object(record.value)
        if fields is None:
            return "malformed_json"
        try:
            values = [self._value(name, kind, fields) for name, kind in self._columns]
        except _Mismatch:
            return "schema_mismatch"
        written = self._written_event_time(record, fields)
        at = _timestamp(written)
        reason = _event_time_reason(written, at)
        if reason is not None or at is None:
            return reason or "unparsable_event_time"
        if self._is_too_far_ahead(at, record.timestamp_us):
            return "future_event_time"
        own = (record.key, record.timestamp_us, record.partition, record.offset)
        return DecodedRow(record, (*values, *own), at, at)

    def _is_too_far_ahead(self, at_us: int, recorded_at_us: int | None) -> bool:
        return (
            recorded_at_us is not None
            and at_us // 1000 > recorded_at_us // 1000 + self._max_ahead_ms
        )

    def _value(self, name: str, kind: SqlType, fields: Mapping[str, object]) -> Value:
        raw = fields.get(name)
        if raw is None:
            return None
        if kind != TIMESTAMP:
            return _READERS[kind.name](raw, kind)
        at = _timestamp(_text(raw, STRING))
        if at is None and name != self._event_time:
            raise _Mismatch
        return at

    def _written_event_time(self, record: InputRecord, fields: Mapping[str, object]) -> str | None:
        if self._in_value:
            raw = fields.get(self._event_time)
            return None if raw is None else _text(raw, STRING)
        at = record.timestamp_us
        return None if at is None else str(cast(TIMESTAMP, STRING)(at))


def _object(value: str | bytes) -> Mapping[str, object] | None:
    """The one JSON object the value is; None where it is none.

    from_json reads the first document; what follows is seen only where two braces meet.
    """
    try:
        text = value.decode() if isinstance(value, bytes) else value
        start = len(text) - len(text.lstrip(_WHITESPACE))
        document, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    rest = text[end:].strip(_WHITESPACE)
    if rest and (not rest.endswith("}") or _BRACES_MEET.search(text)):
        return None
    return document if isinstance(document, dict) else None


def _timestamp(raw: str | None) -> int | None:
    """Epoch milliseconds, or ISO-8601 (without an offset UTC), in microseconds."""
    if raw is None:
        return None
    millis = _bigint(raw)
    if millis is not None and _MILLIS_MIN <= millis <= _MILLIS_MAX:
        return millis * 1000
    return timestamp_of(raw) if raw[4:5] == "-" and raw[7:8] == "-" else None


def _bigint(raw: str) -> int | None:
    """try_cast(raw AS BIGINT)."""
    try:
        value = _TO_BIGINT(raw)
    except SqlRuntimeError:
        return None
    return value if isinstance(value, int) else None


_TO_BIGINT = cast(STRING, BIGINT)


def _event_time_reason(written: str | None, at: int | None) -> str | None:
    if written is None:
        return "missing_event_time"
    if at is None:
        return "unparsable_event_time" if _bigint(written) is None else "absurd_event_time"
    return None if 0 <= at < _ABSURD_FROM_US else "absurd_event_time"


def _boolean(raw: object, _: SqlType) -> Value:
    if not isinstance(raw, bool):
        raise _Mismatch
    return raw


def _integer(raw: object, kind: SqlType) -> Value:
    low, high = INT_RANGES[kind.name]
    if not isinstance(raw, _Number) or set(raw) & set(".eE") or not low <= int(raw) <= high:
        raise _Mismatch
    return int(raw)


def _floating(raw: object, kind: SqlType) -> Value:
    if not isinstance(raw, _Number):
        raise _Mismatch
    return float(raw) if kind.name == "DOUBLE" else as_float32(float(raw))


def _decimal(raw: object, kind: SqlType) -> Value:
    """A number, or a string that holds one."""
    if isinstance(raw, bool) or not isinstance(raw, str):
        raise _Mismatch
    try:
        return fit(Decimal(raw.replace(",", "")), kind)
    except (InvalidOperation, SqlRuntimeError) as error:
        raise _Mismatch from error


def _text(raw: object, _: SqlType) -> str:
    """A string; of a number or a boolean its text."""
    if isinstance(raw, bool):
        return "true" if raw else "false"
    if isinstance(raw, str):
        return str(raw)
    raise NotExactError("a JSON object or list in a STRING column")


def _bytes(raw: object, _: SqlType) -> Value:
    if not isinstance(raw, str) or isinstance(raw, _Number):
        raise _Mismatch
    try:
        return base64.b64decode(raw, validate=True)
    except binascii.Error as error:
        raise _Mismatch from error


def _date(raw: object, _: SqlType) -> Value:
    days = date_of(raw) if isinstance(raw, str) and not isinstance(raw, _Number) else None
    if days is None:
        raise _Mismatch
    return days


_READERS: Mapping[str, Callable[[object, SqlType], Value]] = {
    "BOOLEAN": _boolean,
    **dict.fromkeys(INT_RANGES, _integer),
    "FLOAT": _floating,
    "DOUBLE": _floating,
    "DECIMAL": _decimal,
    "STRING": _text,
    "BINARY": _bytes,
    "DATE": _date,
}


def records_of_jsonl(lines: Sequence[str]) -> list[InputRecord]:
    """The records of a JSONL file.

    A line is the value of a record; or, to say more, an object of `value` and any of `key`,
    `partition`, `offset`, `timestamp` (as an event time is written) and `batch`. There `value`
    may be an object, text (a value that is no JSON) or null (a tombstone).
    """
    texts = [line.strip("\r\n") for line in lines]
    return [_record(text, number) for number, text in enumerate(t for t in texts if t.strip())]


_ENVELOPE = {"value", "key", "partition", "offset", "timestamp", "batch"}


def _record(text: str, number: int) -> InputRecord:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict) or "value" not in line or not set(line) <= _ENVELOPE:
        return InputRecord(text, offset=number)
    value, stamp = line["value"], line.get("timestamp")
    return InputRecord(
        value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False),
        offset=int(line.get("offset", number)),
        partition=int(line.get("partition", 0)),
        key=line.get("key"),
        timestamp_us=None if stamp is None else _timestamp(str(stamp)),
        batch=line.get("batch"),
    )
