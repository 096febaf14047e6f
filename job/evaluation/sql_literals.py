"""Literals of Spark SQL: numbers, strings, timestamps, dates and intervals."""

from decimal import Decimal

from sqlglot import exp

from job.evaluation.compiled import Compiled, strict
from job.evaluation.intervals import interval
from job.evaluation.sql_cast import cast
from job.evaluation.sql_types import (
    BIGINT,
    DATE,
    DAY_TIME,
    DOUBLE,
    INT,
    INT_RANGES,
    STRING,
    TIMESTAMP,
    YEAR_MONTH,
    NotExactError,
    SqlType,
    Value,
    decimal_type,
)
from job.evaluation.time_text import date_of, timestamp_of
from job.evaluation.type_trees import parse_type


def constant(kind: SqlType, value: Value) -> Compiled:
    literal = value if kind.is_integral else None
    return Compiled(kind, lambda _: value, literal)


SUFFIX = "suffix"
"""Key of `meta`: suffix of `2L`. sqlglot parses CAST(2 AS BIGINT), which is not a literal in
decimal arithmetic."""


def integer_with_suffix(node: exp.Expr) -> int | None:
    """Value of `2L`, `2S`, `2Y` or `-2L`; None for other nodes."""
    if isinstance(node, exp.Neg):
        value = integer_with_suffix(node.this)
        return None if value is None else -value
    if isinstance(node, exp.Cast) and node.args["to"].meta_get(SUFFIX) and node.this.name.isdigit():
        return int(node.this.name)
    return None


def with_suffix(node: exp.Expr) -> Compiled | None:
    """The literal `2L` or `-2L`; None for other nodes, and if the value does not fit its type."""
    value = integer_with_suffix(node)
    if value is None:
        return None
    cast = node.find(exp.Cast)
    assert cast is not None
    kind = parse_type(cast.args["to"].sql(dialect="spark"))
    low, high = INT_RANGES[kind.name]
    return constant(kind, value) if low <= value <= high else None


def literal(node: exp.Expr) -> Compiled:
    return constant(STRING, node.name) if node.args.get("is_string") else number(node.name)


def number(text: str) -> Compiled:
    """1 is an INT, 3000000000 a BIGINT, 1.5 a DECIMAL(2,1), 1e3 a DOUBLE."""
    if "e" in text.lower():
        return constant(DOUBLE, float(text))
    if "." in text:
        value = Decimal(text)
        digits = value.as_tuple()
        scale = -int(digits.exponent)
        precision = max(len(digits.digits), scale)
        if precision > 38:
            raise NotExactError(f"the number {text}")
        return Compiled(decimal_type(precision, scale), lambda _: value)
    number = int(text)
    for kind in (INT, BIGINT):
        low, high = INT_RANGES[kind.name]
        if low <= number <= high:
            return constant(kind, number)
    return Compiled(decimal_type(len(str(abs(number))), 0), lambda _: Decimal(number))


def typed_literal(text: str, target: SqlType) -> Compiled:
    """TIMESTAMP'…' and DATE'…', and CAST('…' AS …), which is the same."""
    parse = {TIMESTAMP: timestamp_of, DATE: date_of}.get(target)
    if parse is None:
        return strict(cast(STRING, target), target, constant(STRING, text))
    value = parse(text)
    if value is None:
        raise NotExactError(f"{target}'{text}', which is invalid")
    return constant(target, value)


def interval_literal(node: exp.Expr) -> Compiled:
    assert isinstance(node, exp.Interval)
    try:
        length = interval(node)
    except ValueError as error:
        raise NotExactError(str(error)) from error
    if length.months:
        return Compiled(YEAR_MONTH, lambda _: length.months)
    return Compiled(DAY_TIME, lambda _: length.micros)
