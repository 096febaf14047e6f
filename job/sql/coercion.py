"""The implicit casts of Spark SQL in ANSI mode, and which casts exist.

Follows AnsiTypeCoercion and Cast.canAnsiCast of Spark 4.3.
"""

from collections.abc import Iterable

from job.evaluation.sql_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DAY,
    DAY_TIME,
    DOUBLE,
    INT,
    INT_WIDTHS,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    VOID,
    YEAR_MONTH,
    SqlType,
    decimal_for,
    wider_decimal,
)


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
        needed = decimal_for(narrow)
        if wide.precision - wide.scale >= needed.precision and wide.scale >= 0:
            return wide
    return None


def common_type(left: SqlType, right: SqlType, *, strings: bool = True) -> SqlType | None:
    """The type to which Spark casts both in CASE, COALESCE and IN. None: there is none.

    `strings`: whether Spark casts a STRING to the other type (findWiderTypeForTwo), or refuses it
    (as in greatest).
    """
    common = tightest(left, right)
    if common is None and left.is_numeric and right.is_numeric:
        if left.is_floating or right.is_floating:
            return DOUBLE
        return wider_decimal(decimal_for(left), decimal_for(right))
    if common is None and strings:
        common = string_as(left, right)
    return common or _common_inside(left, right, strings=strings)


def common_of(kinds: Iterable[SqlType], *, strings: bool = True) -> SqlType | None:
    """As `common_type`, for any number of types."""
    common: SqlType | None = VOID
    for kind in kinds:
        common = None if common is None else common_type(common, kind, strings=strings)
    return common


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
