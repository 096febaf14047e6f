"""Types of Spark SQL and their implicit casts in ANSI mode.

Follows AnsiTypeCoercion, Cast.canAnsiCast and DecimalPrecision of Spark 4.3.
"""

from collections.abc import Iterable
from dataclasses import dataclass

PRECISION_MAX = 38


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


def decimal_type(precision: int, scale: int) -> SqlType:
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


def tightest(left: SqlType, right: SqlType) -> SqlType | None:
    """AnsiTypeCoercion.findTightestCommonType: without loss, and without casts of a STRING."""
    if left == right or right == VOID:
        return left
    if left == VOID:
        return right
    if left.is_decimal or right.is_decimal:
        return _tightest_with_decimal(left, right)
    if left.is_integral and right.is_integral:
        return max(left, right, key=lambda kind: INT_WIDTHS[kind.name])
    if left.is_numeric and right.is_numeric:
        return DOUBLE
    if left.is_datetime and right.is_datetime:
        return TIMESTAMP
    if {left, right} == {DAY, DAY_TIME}:
        return DAY_TIME
    return _common_inside(left, right, strings=None)


def _tightest_with_decimal(left: SqlType, right: SqlType) -> SqlType | None:
    wide, narrow = (left, right) if left.is_decimal else (right, left)
    if narrow.is_integral:
        needed = _DECIMALS[narrow.name]
        if wide.precision - wide.scale >= needed.precision and wide.scale >= 0:
            return wide
    return None


def common_type(left: SqlType, right: SqlType, *, strings: bool = True) -> SqlType | None:
    """The type to which Spark casts both in CASE, COALESCE and IN. None: there is none.

    `strings`: whether Spark casts a STRING to the other type (findWiderTypeForTwo), or refuses it
    (as in greatest).
    """
    found = tightest(left, right)
    if found is None and left.is_numeric and right.is_numeric:
        if left.is_floating or right.is_floating:
            return DOUBLE
        return wider_decimal(decimal_for(left), decimal_for(right))
    if found is None and strings:
        found = string_as(left, right)
    return found or _common_inside(left, right, strings=strings)


def common_of(kinds: Iterable[SqlType], *, strings: bool = True) -> SqlType | None:
    """As `common_type`, for any number of types."""
    found: SqlType | None = VOID
    for kind in kinds:
        found = None if found is None else common_type(found, kind, strings=strings)
    return found


def string_as(left: SqlType, right: SqlType) -> SqlType | None:
    """The type to which Spark casts the STRING of a pair: the widest of its kind for a number."""
    if STRING not in (left, right) or left == right:
        return None
    other = right if left == STRING else left
    if other.is_integral:
        return BIGINT
    if other.is_numeric:
        return DOUBLE
    if other == VOID:
        return STRING
    return other if other.is_atomic and not other.is_interval else None


def _common_inside(left: SqlType, right: SqlType, *, strings: bool | None) -> SqlType | None:
    """TypeCoercion.findTypeForComplex. `strings`: as in `common_type`; None: only the tightest."""
    if left.name != right.name or not left.fields or len(left.fields) != len(right.fields):
        return None
    fields = []
    for (name, one), (other_name, other) in zip(left.fields, right.fields, strict=True):
        if name.casefold() != other_name.casefold():
            return None
        kind = tightest(one, other) if strings is None else common_type(one, other, strings=strings)
        if kind is None:
            return None
        fields.append((name, kind))
    if left.name == "MAP" and any(
        may_become_null(side.inside("key"), fields[0][1]) for side in (left, right)
    ):
        return None
    return SqlType(left.name, fields=tuple(fields))


def may_become_null(source: SqlType, target: SqlType) -> bool:
    """Cast.forceNullable. A MAP whose key may become NULL has no cast."""
    if source == VOID:
        return True
    if source == target:
        return False
    if source == STRING:
        return target not in {BINARY}
    if target == STRING:
        return False
    if source == TIMESTAMP and target in {TINYINT, SMALLINT, INT}:
        return True
    if source.is_floating and target == TIMESTAMP:
        return True
    if source.is_numeric and target.is_decimal:
        return not _fits_decimal(source, target)
    return target == DATE and source != TIMESTAMP


def _fits_decimal(source: SqlType, target: SqlType) -> bool:
    if source.is_floating:
        return False
    own = decimal_for(source)
    return target.scale >= own.scale and target.precision - target.scale >= (
        own.precision - own.scale
    )


def can_cast(source: SqlType, target: SqlType) -> bool:
    """Cast.canAnsiCast: whether the cast exists. It can still fail on a value."""
    if source in {target, VOID} or target == STRING:
        return True
    if target.fields or source.fields:
        return _can_cast_inside(source, target)
    if source == STRING:
        return target != VOID
    if target == BINARY:
        return source.is_integral
    if source.is_numeric:
        if target.is_interval:
            return source.is_integral or source.is_decimal
        return target.is_numeric or target in {BOOLEAN, TIMESTAMP}
    if source == BOOLEAN:
        return target.is_numeric
    if source == DATE:
        return target == TIMESTAMP
    if source == TIMESTAMP:
        return target == DATE or target.is_numeric
    if source.is_interval:
        if target.is_interval:
            return (source == YEAR_MONTH) == (target == YEAR_MONTH)
        return target.is_integral or target.is_decimal
    return False


def _can_cast_inside(source: SqlType, target: SqlType) -> bool:
    if source.name != target.name or len(source.fields) != len(target.fields):
        return False
    pairs = [
        (one, other) for (_, one), (_, other) in zip(source.fields, target.fields, strict=True)
    ]
    if source.name == "MAP" and may_become_null(*pairs[0]):
        return False
    return all(can_cast(*pair) for pair in pairs)


def can_store(source: SqlType, target: SqlType) -> bool:
    """Cast.canANSIStoreAssign: whether Spark casts an argument of a function implicitly."""
    if source in {target, VOID} or (source.is_numeric and target.is_numeric):
        return True
    if target == STRING:
        return source.is_atomic
    if source.is_datetime and target.is_datetime:
        return True
    if source.name == target.name and source.fields and len(source.fields) == len(target.fields):
        return all(
            can_store(one, other)
            for (_, one), (_, other) in zip(source.fields, target.fields, strict=True)
        )
    return False
