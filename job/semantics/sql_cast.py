"""CAST as Spark does it under ANSI rules: what does not fit is an error, never a wrapped number."""

import math
import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext

from job.semantics.sql_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT_RANGES,
    STRING,
    TIMESTAMP,
    VOID,
    NotExactError,
    SqlRuntimeError,
    SqlType,
    Value,
)

MICROS_PER_SECOND = 1_000_000
MICROS_PER_DAY = 86_400 * MICROS_PER_SECOND
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY = EPOCH.date().toordinal()

# Python's datetime ends with the year 9999, Spark's does not; what lies beyond is refused.
DAY_MIN, DAY_MAX = 1 - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY

_INTEGER = re.compile(r"[+-]?\d+")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_WHITESPACE = "".join(map(chr, range(33)))  # what UTF8String.trimAll takes off
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.DOTALL)
_TIMESTAMP = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{0,9}))?)?"
    r"\s*(Z|[+-]\d{1,2}(?::?\d{2})?)?)?)?)?"
)
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}

Cast = Callable[[Value], Value]


def cast(source: SqlType, target: SqlType) -> Cast:
    """The function that casts non-null values; NotExactError where the pair is not supported."""
    if source in {target, VOID}:
        return lambda value: value
    for find in (_to_number, _to_string, _to_time):
        if (found := find(source, target)) is not None:
            return found
    if target == BOOLEAN and source == STRING:
        return _string_to_boolean
    if target == BOOLEAN and source.is_numeric:
        return lambda value: value != 0
    raise NotExactError(f"cast from {source} to {target}")


def _to_number(source: SqlType, target: SqlType) -> Cast | None:
    if target.is_integral:
        return _to_integral(source, target)
    if target.is_decimal:
        return _to_decimal(source, target)
    if target == DOUBLE:
        return _to_double(source)
    if target == FLOAT and source in {DOUBLE, BOOLEAN}:
        return lambda value: as_float32(float(_number(value)))
    if target == FLOAT and source.is_integral:
        return _integer_to_float
    return None


def _to_integral(source: SqlType, target: SqlType) -> Cast | None:
    low, high = INT_RANGES[target.name]

    def checked(value: int) -> int:
        if not low <= value <= high:
            raise SqlRuntimeError("CAST_OVERFLOW", f"{value} does not fit {target}")
        return value

    if source.is_integral or source == BOOLEAN:
        return lambda value: checked(int(_number(value)))
    if source.is_decimal:
        return lambda value: checked(int(_number(value)))
    if source.is_floating:
        return lambda value: checked(_truncated(_number(value), target))
    if source == STRING:
        return lambda value: _parsed_integer(str(value), target, low, high)
    if source == TIMESTAMP:
        return lambda value: checked(int(_number(value)) // MICROS_PER_SECOND)
    return None


def _truncated(value: float | Decimal, target: SqlType) -> int:
    if not math.isfinite(value):
        raise SqlRuntimeError("CAST_OVERFLOW", f"{value} does not fit {target}")
    return int(value)


def _parsed_integer(text: str, target: SqlType, low: int, high: int) -> int:
    body = text.strip(_WHITESPACE)
    if not _INTEGER.fullmatch(body) or not low <= int(body) <= high:
        raise _bad_input(text, target)
    return int(body)


def _to_decimal(source: SqlType, target: SqlType) -> Cast | None:
    if source.is_integral or source.is_decimal or source == BOOLEAN:
        return lambda value: fit(Decimal(_number(value)), target)
    if source == STRING:
        return lambda value: _parsed_decimal(str(value), target)
    return None  # from floating point: Spark goes through Java's shortest text of the number


def _parsed_decimal(text: str, target: SqlType) -> Decimal:
    body = text.strip(_WHITESPACE)
    if not _NUMBER.fullmatch(body):
        raise _bad_input(text, target)
    return fit(Decimal(body), target)


def fit(value: Decimal, target: SqlType) -> Decimal:
    """`value` rounded half up to the scale; an error where its whole part is too long."""
    with localcontext() as context:
        context.prec = 100
        try:
            rounded = value.quantize(Decimal(1).scaleb(-target.scale), rounding=ROUND_HALF_UP)
        except InvalidOperation:
            rounded = value
        if abs(rounded) >= Decimal(10) ** (target.precision - target.scale):
            raise SqlRuntimeError(
                "NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION", f"{value} does not fit {target}"
            )
    return abs(rounded) if rounded == 0 else rounded


def _to_double(source: SqlType) -> Cast | None:
    if source.is_numeric or source == BOOLEAN:
        return lambda value: float(_number(value))
    if source == STRING:
        return lambda value: _parsed_double(str(value))
    if source == TIMESTAMP:
        return lambda value: float(_number(value)) / 1_000_000.0
    return None


def _parsed_double(text: str) -> float:
    body = text.strip(_WHITESPACE)
    word = body.lower()
    if word.lstrip("+-") in {"inf", "infinity"} and word.count("+") + word.count("-") <= 1:
        return -math.inf if word.startswith("-") else math.inf
    if word == "nan":
        return math.nan
    if body[-1:] in {"d", "D", "f", "F"} and _NUMBER.fullmatch(body[:-1]):
        body = body[:-1]
    if not _NUMBER.fullmatch(body):
        raise _bad_input(text, DOUBLE)
    return float(body)


def _integer_to_float(value: Value) -> float:
    """Rounded once: by way of a double a BIGINT would be rounded twice."""
    number = int(_number(value))
    if abs(number) > 1 << 53:
        raise NotExactError(f"cast of {number} to FLOAT")
    return as_float32(float(number))


def as_float32(value: float) -> float:
    """The FLOAT nearest to a double; beyond the largest it is infinite."""
    try:
        number: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return number


def _to_string(source: SqlType, target: SqlType) -> Cast | None:
    if target == BINARY and source == STRING:
        return lambda value: str(value).encode()
    if target != STRING:
        return None
    if source == BOOLEAN:
        return lambda value: "true" if value else "false"
    if source.is_integral:
        return lambda value: str(value)
    if source.is_decimal:
        return lambda value: decimal_text(value)
    if source == DATE:
        return lambda value: day(_number(value)).isoformat()
    if source == TIMESTAMP:
        return lambda value: _timestamp_text(int(_number(value)))
    return None  # floating point: Java's text of a double is not Python's


def decimal_text(value: Value) -> str:
    """As cast and to_json write it: no exponent, all digits of the scale."""
    return f"{_number(value):f}"


def day(days: float | Decimal) -> date:
    if not DAY_MIN <= days <= DAY_MAX:
        raise NotExactError(f"a DATE {days} days from 1970, outside the years 1 to 9999")
    return date.fromordinal(int(days) + _EPOCH_DAY)


def instant(micros: int) -> datetime:
    if not DAY_MIN <= micros // MICROS_PER_DAY <= DAY_MAX:
        raise NotExactError(f"a TIMESTAMP {micros} µs from 1970, outside the years 1 to 9999")
    return EPOCH + timedelta(microseconds=micros)


def _timestamp_text(micros: int) -> str:
    at = instant(micros)
    seconds = f"{at.year:04}-{at:%m-%d %H:%M:%S}"
    return f"{seconds}.{at.microsecond:06}".rstrip("0") if at.microsecond else seconds


def _to_time(source: SqlType, target: SqlType) -> Cast | None:
    if target == TIMESTAMP:
        if source == DATE:
            return lambda value: int(_number(value)) * MICROS_PER_DAY
        if source == STRING:
            return lambda value: _or_bad_input(timestamp_of(str(value)), value, TIMESTAMP)
        if source.is_integral:
            return lambda value: _seconds_to_micros(int(_number(value)))
    if target == DATE:
        if source == TIMESTAMP:
            return lambda value: int(_number(value)) // MICROS_PER_DAY
        if source == STRING:
            return lambda value: _or_bad_input(date_of(str(value)), value, DATE)
    return None


def _seconds_to_micros(seconds: int) -> int:
    """Saturates, as Java's TimeUnit does."""
    low, high = INT_RANGES[BIGINT.name]
    return max(low, min(high, seconds * MICROS_PER_SECOND))


def timestamp_of(text: str) -> int | None:
    """Spark's timestamp strings, yyyy[-[m]m[-[d]d[[ |T]h:m[:s[.f]][zone]]]]; None for others."""
    body = text.strip(_WHITESPACE)
    match = _TIMESTAMP.fullmatch(body)
    if match is None:
        if re.search(r"[A-Za-z:+]", body):
            _refuse_exotic(body)
        return None
    year, month, day_, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    fraction, zone = match[7] or "", match[8]
    try:
        at = datetime(year, month or 1, day_ or 1, hour, minute, second, tzinfo=UTC)
        offset = _offset(zone)
    except ValueError:
        return None
    micros = (at - EPOCH) // timedelta(microseconds=1) + int(fraction[:6].ljust(6, "0"))
    return micros - offset


def _refuse_exotic(body: str) -> None:
    """Zone names, times without a date and years beyond 9999 mean something to Spark, not here."""
    if re.fullmatch(r"[+-]?\d{4,6}-.*[A-Za-z/].*|T?\d{1,2}:\d.*|[+-]?\d{5,6}(-.*)?", body):
        raise NotExactError(f"the timestamp {body!r}")


def _offset(zone: str | None) -> int:
    """Microseconds east of UTC."""
    if zone in {None, "Z"}:
        return 0
    sign = -1 if str(zone).startswith("-") else 1
    digits = str(zone)[1:].replace(":", "")
    hours, minutes = (int(digits[:-2]), int(digits[-2:])) if len(digits) > 2 else (int(digits), 0)
    if hours > 18 or minutes > 59 or (hours == 18 and minutes):
        raise ValueError(f"no offset: {zone}")
    return sign * (hours * 3600 + minutes * 60) * MICROS_PER_SECOND


def date_of(text: str) -> int | None:
    """Spark's date strings, yyyy[-[m]m[-[d]d[[ |T]anything]]]; None for others."""
    body = text.strip(_WHITESPACE)
    match = _DATE.fullmatch(body)
    if match is None:
        if re.fullmatch(r"[+-]?\d{5,7}(-.*)?", body):
            raise NotExactError(f"the date {body!r}")
        return None
    try:
        return date(int(match[1]), int(match[2] or 1), int(match[3] or 1)).toordinal() - _EPOCH_DAY
    except ValueError:
        return None


def _string_to_boolean(value: Value) -> bool:
    word = str(value).strip(_WHITESPACE).lower()
    if word not in _TRUE | _FALSE:
        raise _bad_input(str(value), BOOLEAN)
    return word in _TRUE


def _or_bad_input(parsed: int | None, value: Value, target: SqlType) -> int:
    if parsed is None:
        raise _bad_input(str(value), target)
    return parsed


def _bad_input(text: str, target: SqlType) -> SqlRuntimeError:
    return SqlRuntimeError("CAST_INVALID_INPUT", f"{text!r} cannot be cast to {target}")


def _number(value: Value) -> int | float | Decimal:
    if not isinstance(value, (int, float, Decimal)):
        raise TypeError(f"{value!r} is no number")
    return value
