"""Converts a JSON value to a column type as Spark's from_json does."""

import base64
import re
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation

from job.evaluation.sql_cast import fit, float32_of, is_big_decimal
from job.evaluation.sql_types import INT_RANGES, NotExactError, SqlRuntimeError, SqlType, Value
from job.evaluation.time_text import date_of
from job.semantics.json_document import (
    DEPTH_MAX,
    Json,
    Members,
    Number,
    compact_text,
    copied_number,
    room_for,
    without_lone_surrogates,
    written_number,
)

Read = Callable[[Json], Value]


class MismatchError(ValueError):
    """A JSON value that is not of the declared type."""


def reader(kind: SqlType) -> Read:
    """The function that converts a JSON value to `kind`, or raises MismatchError."""
    read = _reader(kind)
    return lambda raw: None if raw is None else read(raw)


def _reader(kind: SqlType) -> Read:
    if kind.name == "ARRAY" and kind.element is not None:
        return _array(reader(kind.element))
    if kind.name == "MAP" and kind.element is not None:
        return _map(reader(kind.element))
    if kind.name == "STRUCT":
        return _struct({name: reader(field) for name, field in kind.fields})
    if kind.is_integral:
        return lambda raw: _integer(raw, kind)
    if kind.is_decimal:
        return lambda raw: _decimal(raw, kind)
    return _SCALARS[kind.name]


def _array(element: Read) -> Read:
    def read(raw: Json) -> Value:
        if not isinstance(raw, list):
            raise MismatchError
        return tuple(element(each) for each in raw)

    return read


def _map(element: Read) -> Read:
    """A duplicate name is in the MAP twice."""

    def read(raw: Json) -> Value:
        if not isinstance(raw, Members):
            raise MismatchError
        return tuple((without_lone_surrogates(name), element(value)) for name, value in raw)

    return read


def _struct(fields: Mapping[str, Read]) -> Read:
    def read(raw: Json) -> Value:
        if not isinstance(raw, Members):
            raise MismatchError
        return tuple(members_read(raw, fields).values())

    return read


def members_read(members: Members, fields: Mapping[str, Read]) -> dict[str, Value]:
    """The value of each field. Converts all members; the last one of a duplicate name counts."""
    values: dict[str, Value] = dict.fromkeys(fields)
    for name, raw in members:
        if name in fields:
            values[name] = fields[name](raw)
    return values


def _boolean(raw: Json) -> Value:
    if not isinstance(raw, bool):
        raise MismatchError
    return raw


def _integer(raw: Json, kind: SqlType) -> Value:
    low, high = INT_RANGES[kind.name]
    if kind.name == "TINYINT":
        high = 255  # Jackson accepts an unsigned byte, and Spark 4.3.0 keeps its bits
    if not isinstance(raw, Number) or set(raw) & set(".eE") or not low <= int(raw) <= high:
        raise MismatchError
    value = int(raw)
    return value - 256 if kind.name == "TINYINT" and value > 127 else value


def _number(raw: Json) -> str:
    if not isinstance(raw, Number):
        raise MismatchError
    return written_number(raw)


def _decimal(raw: Json, kind: SqlType) -> Value:
    """A number, or a string with a number."""
    if isinstance(raw, bool) or not isinstance(raw, str):
        raise MismatchError
    text = raw.replace(",", "")
    if not is_big_decimal(text):
        raise MismatchError
    try:
        return fit(Decimal(text), kind)
    except (InvalidOperation, SqlRuntimeError) as error:
        raise MismatchError from error


def text_of(raw: Json) -> str:
    """Value of a STRING column: a string, the text of a number, or the JSON of the value."""
    if isinstance(raw, Number):
        return written_number(raw)
    if isinstance(raw, str):
        return without_lone_surrogates(raw)
    with room_for(DEPTH_MAX):
        return compact_text(raw, copied_number)


_BASE64_CHAR = "[A-Za-z0-9+/]"
_BASE64_QUARTET = re.compile(
    rf"[\x00-\x20]*({_BASE64_CHAR}{{2}}(?:{_BASE64_CHAR}{{2}}|{_BASE64_CHAR}=|==))"
)


def _bytes(raw: Json) -> Value:
    """Base64 as in Jackson: blanks between groups of four, and optional padding in each group."""
    if not isinstance(raw, str) or isinstance(raw, Number):
        raise MismatchError
    decoded, end = b"", 0
    while match := _BASE64_QUARTET.match(raw, end):
        decoded += base64.b64decode(match[1])
        end = match.end()
    if raw[end:].strip("".join(map(chr, range(33)))):
        raise MismatchError
    return decoded


_DAYS = re.compile(r"[+-]?\d{1,10}")
_GREGORIAN_SINCE = -141_427  # 1582-10-15


def _date(raw: Json) -> Value:
    """A date, or a number of days from 1970 in quotes, as Spark 1.5 wrote dates."""
    if not isinstance(raw, str) or isinstance(raw, Number):
        raise MismatchError
    days = date_of(raw)
    if days is None and _DAYS.fullmatch(raw):
        days = int(raw)
        if days < _GREGORIAN_SINCE:
            raise NotExactError(f"the date {raw!r}, days of the Julian calendar")
    if days is None or days > INT_RANGES["INT"][1]:
        raise MismatchError
    return days


_SCALARS: Mapping[str, Read] = {
    "BOOLEAN": _boolean,
    "FLOAT": lambda raw: float32_of(_number(raw)),
    "DOUBLE": lambda raw: float(_number(raw)),
    "STRING": text_of,
    "BINARY": _bytes,
    "DATE": _date,
}
