"""Result types of + - * / % div and unary minus. Follows ResolveBinaryArithmetic."""

from job.evaluation.sql_types import (
    BIGINT,
    DATE,
    DAY,
    DAY_TIME,
    DOUBLE,
    STRING,
    TIMESTAMP,
    VOID,
    YEAR_MONTH,
    SqlType,
    decimal_for,
    product_decimal,
    quotient_decimal,
    remainder_decimal,
    sum_decimal,
)
from job.sql.coercion import common_type, string_as, tightest

_DECIMALS = {
    "+": sum_decimal,
    "-": sum_decimal,
    "*": product_decimal,
    "/": quotient_decimal,
    "%": remainder_decimal,
}

TRY_SIGNS = {
    "try_add": "+", "try_subtract": "-", "try_multiply": "*", "try_divide": "/", "try_mod": "%",
}  # fmt: skip
"""The functions that return NULL where the operator fails."""


def arithmetic_type(
    sign: str, left: SqlType, right: SqlType, literals: tuple[object, object] = (None, None)
) -> SqlType | None:
    """The type of `left sign right`. None: Spark refuses the operation.

    `literals`: values of operands that are integer literals. Such an operand counts as the
    narrowest DECIMAL for its value.
    """
    if sign in {"+", "-"} and (result := _datetime_result(sign, left, right)) is not None:
        return result[0]
    if sign in {"*", "/"} and (left.is_interval or right.is_interval):
        return _interval_result(sign, left, right)
    if sign == "div":
        return _integral_quotient(left, right)
    if STRING in (left, right):
        kind = string_as(left, right)
        if kind is None or not kind.is_numeric:
            return None
        return DOUBLE if sign == "/" else kind
    if not {left, right} <= {VOID} and not all(
        kind.is_numeric or kind == VOID for kind in (left, right)
    ):
        return None
    return _of_numbers(sign, left, right, literals)


def _of_numbers(
    sign: str, left: SqlType, right: SqlType, literals: tuple[object, object]
) -> SqlType:
    kind = common_type(left, right)
    assert kind is not None
    if kind == VOID:
        return DOUBLE
    if kind.is_decimal and VOID not in (left, right):
        return _DECIMALS[sign](decimal_for(left, literals[0]), decimal_for(right, literals[1]))
    if kind.is_decimal:
        return _DECIMALS[sign](kind, kind)
    return DOUBLE if sign == "/" else kind


def _integral_quotient(left: SqlType, right: SqlType) -> SqlType | None:
    kinds = {kind for kind in (left, right) if kind != VOID}
    if all(kind.is_integral or kind.is_decimal for kind in kinds):
        return BIGINT
    if any(kind.is_interval for kind in kinds) and tightest(left, right):
        return BIGINT
    if STRING in kinds and string_as(left, right) == BIGINT:
        return BIGINT
    return None


def _datetime_result(sign: str, left: SqlType, right: SqlType) -> tuple[SqlType | None] | None:
    """Result type in a tuple if an operand is a date, a time or an interval; None otherwise."""
    if left.is_interval and right.is_interval:
        return (tightest(left, right),)
    if right.is_interval:
        return (_shifted(left, right),)
    if left.is_interval:
        return (_shifted(right, left) if sign == "+" or right == VOID else None,)
    if not (left.is_datetime or right.is_datetime):
        return None
    if sign == "+":
        date, number = (left, right) if left == DATE else (right, left)
        if date == DATE and number.name in {"INT", "SMALLINT", "TINYINT"}:
            return (DATE,)
        return (TIMESTAMP if VOID in {left, right} else None,)
    return (_distance(left, right),)


def _shifted(at: SqlType, by: SqlType) -> SqlType | None:
    if at == DATE:
        return DATE if by in {DAY, YEAR_MONTH} else TIMESTAMP
    if at == TIMESTAMP or (at == STRING and by != YEAR_MONTH):
        return at
    return by if at == VOID else None


def _distance(left: SqlType, right: SqlType) -> SqlType | None:
    if left == TIMESTAMP or right == TIMESTAMP:
        other = right if left == TIMESTAMP else left
        return DAY_TIME if other.is_datetime or other in {STRING, VOID} else None
    if right == DATE:
        return DAY if left in {DATE, STRING, VOID} else None
    if right.name in {"INT", "SMALLINT", "TINYINT"}:
        return DATE
    return DAY if right in {STRING, VOID} else None


def _interval_result(sign: str, left: SqlType, right: SqlType) -> SqlType | None:
    span, number = (left, right) if left.is_interval else (right, left)
    if number.is_interval or (sign == "/" and span is not left):
        return None
    if not (number.is_numeric or number in {STRING, VOID}):
        return None
    return YEAR_MONTH if span == YEAR_MONTH else DAY_TIME


def type_of_string(sign: str, other: SqlType, result: SqlType) -> SqlType:
    """The type to which Spark casts a STRING next to an operand of type `other`."""
    if sign in {"+", "-"} and (other == TIMESTAMP or other.is_interval):
        return TIMESTAMP
    if sign == "-" and other == DATE:
        return DATE
    return DOUBLE if other.is_interval else result


def negated_type(kind: SqlType) -> SqlType | None:
    if kind in {STRING, VOID}:
        return DOUBLE
    return kind if kind.is_numeric or kind.is_interval else None
