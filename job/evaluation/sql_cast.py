"""CAST in ANSI mode: a value that does not fit is an error."""

import math
import re
import struct
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext

from job.evaluation.java_numbers import double_text, float_text
from job.evaluation.sql_types import (
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
from job.evaluation.time_text import (
    MICROS_PER_DAY,
    MICROS_PER_SECOND,
    SPARK_WHITESPACE,
    date_of,
    date_text,
    timestamp_of,
    timestamp_text,
)
from job.instants import EPOCH

_EPOCH_DAY = EPOCH.date().toordinal()

# Python's datetime ends with the year 9999, Spark's TIMESTAMP does not: NotExactError.
DAY_MIN, DAY_MAX = 1 - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY

_INTEGER = re.compile(r"[+-]?[0-9]+")
_FLOAT_MAX = 3.4028234663852886e38
_FLOAT_INFINITE_FROM = 2**128 - 2**103
_BIGINT_DIGITS = 19
# BigDecimal parses digits of any alphabet, Double.valueOf only ASCII.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_ASCII_NUMBER = re.compile(_NUMBER.pattern, re.ASCII)
_BIG_DECIMAL_EXPONENT_MAX = 2**31 - 1
_INT_DIGITS_MAX = 4_300
_WHITESPACE = "".join(map(chr, range(33)))  # characters that Java's String.trim removes
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}

Cast = Callable[[Value], Value]


def cast(source: SqlType, target: SqlType) -> Cast:
    """The function that casts non-null values; NotExactError if the cast is not supported."""
    if source in {target, VOID}:
        return lambda value: value
    for find in (_to_number, _to_string, _to_time):
        if (function := find(source, target)) is not None:
            return function
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
    body = text.strip(SPARK_WHITESPACE)
    is_long = len(body.lstrip("+-0")) > _BIGINT_DIGITS
    if not _INTEGER.fullmatch(body) or is_long or not low <= int(body) <= high:
        raise _bad_input(text, target)
    return int(body)


def _to_decimal(source: SqlType, target: SqlType) -> Cast | None:
    if source.is_integral or source.is_decimal or source == BOOLEAN:
        return lambda value: fit(Decimal(_number(value)), target)
    if source == STRING:
        return lambda value: _parsed_decimal(str(value), target)
    return None  # Spark casts a floating-point number by its text in Java


def _parsed_decimal(text: str, target: SqlType) -> Decimal:
    body = text.strip(_WHITESPACE)
    if not is_big_decimal(body):
        raise _bad_input(text, target)
    return fit(Decimal(body), target)


def is_big_decimal(text: str) -> bool:
    """Whether Java's BigDecimal has the number. Python has it too, then."""
    match = _NUMBER.fullmatch(text)
    exponent = "0" if match is None or match[2] is None else match[2][1:]
    is_short = len(exponent) < _INT_DIGITS_MAX  # int() refuses longer texts.
    return match is not None and is_short and abs(int(exponent)) <= _BIG_DECIMAL_EXPONENT_MAX


def fit(value: Decimal, target: SqlType) -> Decimal:
    """`value` rounded half up to the scale; SqlRuntimeError if its whole part is too long."""
    with localcontext() as context:
        context.prec = 100
        try:
            rounded = value.quantize(Decimal(1).scaleb(-target.scale), rounding=ROUND_HALF_UP)
        except InvalidOperation:
            rounded = value
        if rounded.copy_abs() >= Decimal(10) ** (target.precision - target.scale):
            raise SqlRuntimeError(
                "NUMERIC_VALUE_OUT_OF_RANGE.WITH_SUGGESTION", f"{value} does not fit {target}"
            )
    return rounded.copy_abs() if rounded == 0 else rounded


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
    if body[-1:] in {"d", "D", "f", "F"} and _ASCII_NUMBER.fullmatch(body[:-1]):
        body = body[:-1]
    if not _ASCII_NUMBER.fullmatch(body):
        raise _bad_input(text, DOUBLE)
    return float(body)


def _integer_to_float(value: Value) -> float:
    """The nearest FLOAT. A conversion by a double would round a BIGINT twice."""
    number = int(_number(value))
    if abs(number) > 1 << 53:
        raise NotExactError(f"cast of {number} to FLOAT")
    return as_float32(float(number))


def as_float32(value: float) -> float:
    """The FLOAT nearest to a double; infinite above the largest FLOAT."""
    try:
        number: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return number


def float32_of(text: str) -> float:
    """The FLOAT nearest to the number in `text`. A conversion by a double would round twice."""
    nearest = as_float32(float(text))
    try:
        written = Decimal(text)
    except InvalidOperation:  # An exponent of twenty digits: the number is infinite or zero.
        return nearest
    if not math.isfinite(nearest):
        is_below = written.copy_abs() < _FLOAT_INFINITE_FROM
        return math.copysign(_FLOAT_MAX, nearest) if is_below else nearest
    (bits,) = struct.unpack("<i", struct.pack("<f", nearest))
    neighbours = [nearest]
    for step in (-1, 1):
        if bits & 0x7FFFFFFF or step > 0:
            (near,) = struct.unpack("<f", struct.pack("<i", bits + step))
            neighbours += [near] if math.isfinite(near) else []
    with localcontext() as context:
        context.prec = 2_000
        # A tie rounds to even, and `nearest` is even if the double was a tie.
        return min(
            neighbours, key=lambda number: (abs(Decimal(number) - written), number != nearest)
        )


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
        return lambda value: date_text(int(_number(value)))
    if source == TIMESTAMP:
        return lambda value: timestamp_text(int(_number(value)))
    if source.is_floating:
        text = double_text if source == DOUBLE else float_text
        return lambda value: text(float(_number(value)))
    return None


def decimal_text(value: Value) -> str:
    """Text of CAST: without exponent, with all digits of the scale."""
    return f"{_number(value):f}"


def day(days: float | Decimal) -> date:
    if not DAY_MIN <= days <= DAY_MAX:
        raise NotExactError(f"a DATE {days} days from 1970, outside the years 1 to 9999")
    return date.fromordinal(int(days) + _EPOCH_DAY)


def instant(micros: int) -> datetime:
    if not DAY_MIN <= micros // MICROS_PER_DAY <= DAY_MAX:
        raise NotExactError(f"a TIMESTAMP {micros} µs from 1970, outside the years 1 to 9999")
    return EPOCH + timedelta(microseconds=micros)


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
    """Saturates, as Java's TimeUnit."""
    low, high = INT_RANGES[BIGINT.name]
    return max(low, min(high, seconds * MICROS_PER_SECOND))


def _string_to_boolean(value: Value) -> bool:
    word = str(value).strip(SPARK_WHITESPACE).lower()
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
        raise TypeError(f"{value!r} is not a number")
    return value
