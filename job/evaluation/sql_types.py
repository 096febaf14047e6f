"""Types of Spark SQL, of decimal arithmetic, and the common type of two, in ANSI mode.

Values have Spark's internal form: a TIMESTAMP is microseconds since the epoch, a DATE days since
the epoch, an interval microseconds or months; numbers, strings, booleans and bytes are Python's.
An ARRAY and a STRUCT are tuples of values, a MAP is a tuple of (key, value) pairs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, TypeAlias

from job.errors import PicklableError

Value: TypeAlias = bool | int | float | str | bytes | Decimal | tuple[Any, ...] | None

PRECISION_MAX = 38


class NotExactError(ValueError):
    """An expression cannot be evaluated exactly as in Spark. The message names the part."""


class SqlRuntimeError(PicklableError, ValueError):
    """An error that fails the query in Spark, with the name of Spark's error condition."""

    def __init__(self, condition: str, detail: str) -> None:
        self.condition = condition
        super().__init__(f"[{condition}] {detail}")


@dataclass(frozen=True)
class SqlType:
    name: str
    precision: int = 0
    """Digits of a DECIMAL; 0 for other types."""
    scale: int = 0
    fields: tuple[tuple[str, "SqlType"], ...] = ()
    """`element` of an ARRAY, `key` and `value` of a MAP, or the fields of a STRUCT."""

    def __str__(self) -> str:
        if self.name == "DECIMAL":
            return f"DECIMAL({self.precision},{self.scale})"
        if self.name == "STRUCT":
            return f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in self.fields)}>"
        if self.fields:
            return f"{self.name}<{', '.join(str(kind) for _, kind in self.fields)}>"
        return self.name

    @property
    def is_integral(self) -> bool:
        return self.name in INT_RANGES

    @property
    def is_floating(self) -> bool:
        return self.name in {"FLOAT", "DOUBLE"}

    @property
    def is_decimal(self) -> bool:
        return self.name == "DECIMAL"

    @property
    def is_numeric(self) -> bool:
        return self.is_integral or self.is_floating or self.is_decimal

    @property
    def is_interval(self) -> bool:
        return self in {DAY, DAY_TIME, YEAR_MONTH}

    @property
    def is_datetime(self) -> bool:
        return self in {DATE, TIMESTAMP}

    @property
    def is_atomic(self) -> bool:
        """Whether the type has no element types, and is not VOID."""
        return self.name not in {"ARRAY", "MAP", "STRUCT", "VOID"}

    @property
    def is_orderable(self) -> bool:
        """Whether Spark compares values of the type: it contains no MAP."""
        return self.name != "MAP" and all(kind.is_orderable for _, kind in self.fields)

    @property
    def element(self) -> "SqlType | None":
        """Type of the elements of an ARRAY or the values of a MAP. None: another type."""
        return self.fields[-1][1] if self.name in {"ARRAY", "MAP"} else None

    def holds(self, name: str) -> bool:
        return self.name == name or any(kind.holds(name) for _, kind in self.fields)

    def inside(self, name: str) -> "SqlType":
        return dict(self.fields)[name]


BOOLEAN, STRING, BINARY = SqlType("BOOLEAN"), SqlType("STRING"), SqlType("BINARY")
TINYINT, SMALLINT, INT, BIGINT = (SqlType(n) for n in ("TINYINT", "SMALLINT", "INT", "BIGINT"))
FLOAT, DOUBLE = SqlType("FLOAT"), SqlType("DOUBLE")
DATE, TIMESTAMP = SqlType("DATE"), SqlType("TIMESTAMP")
DAY_TIME, YEAR_MONTH = SqlType("INTERVAL DAY TO SECOND"), SqlType("INTERVAL YEAR TO MONTH")
DAY = SqlType("INTERVAL DAY")
"""Separate from DAY_TIME, because a DATE plus whole days is a DATE."""
INTERVALS = tuple(kind.name for kind in (DAY, DAY_TIME, YEAR_MONTH))
VOID = SqlType("VOID")
"""The type of a bare NULL."""

SIMPLE_TYPES = {
    kind.name: kind
    for kind in (
        BOOLEAN, STRING, BINARY, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DATE, TIMESTAMP,
    )
}  # fmt: skip

INT_RANGES = {
    name: (-(1 << bits - 1), (1 << bits - 1) - 1)
    for name, bits in (("TINYINT", 8), ("SMALLINT", 16), ("INT", 32), ("BIGINT", 64))
}
INT_WIDTHS = {name: width for width, name in enumerate(INT_RANGES)}


def decimal_type(precision: int, scale: int = 0) -> SqlType:
    return SqlType("DECIMAL", precision, scale)


def array_of(element: SqlType) -> SqlType:
    return SqlType("ARRAY", fields=(("element", element),))


def map_of(key: SqlType, value: SqlType) -> SqlType:
    return SqlType("MAP", fields=(("key", key), ("value", value)))


def struct_of(fields: Iterable[tuple[str, SqlType]]) -> SqlType:
    return SqlType("STRUCT", fields=tuple(fields))


# DecimalType.forType: a DECIMAL for all values of a numeric type.
_DECIMALS = {
    "TINYINT": decimal_type(3, 0),
    "SMALLINT": decimal_type(5, 0),
    "INT": decimal_type(10, 0),
    "BIGINT": decimal_type(20, 0),
    "FLOAT": decimal_type(14, 7),
    "DOUBLE": decimal_type(30, 15),
}


def decimal_for(kind: SqlType, literal: object = None) -> SqlType:
    """The DECIMAL of an operand in decimal arithmetic; the narrowest one for an integer literal."""
    if kind.is_decimal:
        return kind
    if isinstance(literal, int):
        return decimal_type(len(str(abs(literal))), 0)
    if kind.name not in _DECIMALS:
        raise NotExactError(f"decimal arithmetic with {kind}")
    return _DECIMALS[kind.name]


def bounded_decimal(precision: int, scale: int) -> SqlType:
    """DecimalType.adjustPrecisionScale: reduces the scale to at least six digits."""
    if precision <= PRECISION_MAX:
        return decimal_type(precision, scale)
    whole = precision - scale
    return decimal_type(PRECISION_MAX, max(PRECISION_MAX - whole, min(scale, 6)))


def wider_decimal(left: SqlType, right: SqlType) -> SqlType:
    """DecimalPrecision.widerDecimalType: reduces the scale if not all digits fit."""
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    if whole + scale <= PRECISION_MAX:
        return decimal_type(whole + scale, scale)
    return decimal_type(PRECISION_MAX, max(min(scale, PRECISION_MAX - whole), 0))


def sum_decimal(left: SqlType, right: SqlType) -> SqlType:
    scale = max(left.scale, right.scale)
    whole = max(left.precision - left.scale, right.precision - right.scale)
    return bounded_decimal(whole + scale + 1, scale)


def product_decimal(left: SqlType, right: SqlType) -> SqlType:
    return bounded_decimal(left.precision + right.precision + 1, left.scale + right.scale)


def quotient_decimal(left: SqlType, right: SqlType) -> SqlType:
    scale = max(6, left.scale + right.precision + 1)
    return bounded_decimal(left.precision - left.scale + right.scale + scale, scale)


def remainder_decimal(left: SqlType, right: SqlType) -> SqlType:
    scale = max(left.scale, right.scale)
    whole = min(left.precision - left.scale, right.precision - right.scale)
    return bounded_decimal(whole + scale, scale)


def common_type(left: SqlType, right: SqlType, *, what: str) -> SqlType:
    """The type to which Spark casts both operands."""
    if left == right or right == VOID:
        return left
    if left == VOID:
        return right
    if left.is_numeric and right.is_numeric:
        return _common_number(left, right)
    names = {left.name, right.name}
    if names == {"DATE", "TIMESTAMP"}:
        return TIMESTAMP
    if "STRING" in names:
        return _common_with_string(right if left == STRING else left, what)
    raise NotExactError(f"{what} of {left} and {right}")


def _common_number(left: SqlType, right: SqlType) -> SqlType:
    if left.is_integral and right.is_integral:
        return max(left, right, key=lambda kind: INT_WIDTHS[kind.name])
    if left.is_floating or right.is_floating:
        return FLOAT if left == right == FLOAT else DOUBLE
    operands = decimal_for(left), decimal_for(right)
    kind = wider_decimal(*operands)
    if kind.scale < max(operand.scale for operand in operands):
        raise NotExactError(f"{left} and {right}, which have no common DECIMAL")
    return kind


def _common_with_string(other: SqlType, what: str) -> SqlType:
    """The type to which Spark casts the STRING of a pair: the widest of its kind for a number."""
    if other.is_integral:
        return BIGINT
    if other.is_numeric:
        return DOUBLE
    if other in {BOOLEAN, DATE, TIMESTAMP}:
        return other
    raise NotExactError(f"{what} of STRING and {other}")
