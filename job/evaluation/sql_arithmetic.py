"""+ - * / % div and unary minus on numbers, times and intervals, in ANSI mode."""

import math
import operator
from calendar import monthrange
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from sqlglot import exp

from job.evaluation.compiled import Compiled, Env, Run, casted, divisor_first, strict
from job.evaluation.sql_cast import as_float32, fit, instant
from job.evaluation.sql_types import (
    BIGINT,
    DAY_TIME,
    DOUBLE,
    FLOAT,
    INT_RANGES,
    TIMESTAMP,
    YEAR_MONTH,
    NotExactError,
    SqlRuntimeError,
    SqlType,
    Value,
    common_type,
    decimal_for,
    product_decimal,
    quotient_decimal,
    remainder_decimal,
    sum_decimal,
)
from job.evaluation.time_text import MICROS_PER_DAY
from job.instants import EPOCH

Operation = Callable[[Any, Any], Any]
Build = Callable[[exp.Expr, list[Compiled]], Compiled]

# Enough digits for a product of two numbers of 38 digits, so that rounding happens only once.
_EXACT = Context(prec=120, rounding=ROUND_HALF_UP)


def _checked(function: Operation, kind: SqlType) -> Operation:
    """Raises SqlRuntimeError for an overflow."""
    low, high = INT_RANGES["BIGINT" if kind in {DAY_TIME, TIMESTAMP} else kind.name]

    def run(left: int, right: int) -> int:
        result: int = function(left, right)
        if not low <= result <= high:
            raise SqlRuntimeError("ARITHMETIC_OVERFLOW", f"{result} does not fit {kind}")
        return result

    return run


def _of_numbers(
    left: Compiled,
    right: Compiled,
    function: Operation,
    decimal: Callable[..., SqlType],
    sign: str,
    apply: Callable[..., Compiled] = strict,
) -> Compiled:
    for operand in (left, right):
        if not operand.type.is_numeric:
            raise NotExactError(f"{left.type} {sign} {right.type}")
    kind = common_type(left.type, right.type, what=sign)
    if kind.is_decimal:
        return _of_decimals(left, right, function, decimal, apply)
    left, right = casted(left, kind), casted(right, kind)
    if kind.is_integral:
        return apply(_checked(function, kind), kind, left, right)
    if kind == FLOAT:
        return apply(lambda a, b: as_float32(function(a, b)), kind, left, right)
    return apply(function, kind, left, right)


def _of_decimals(
    left: Compiled,
    right: Compiled,
    function: Operation,
    result: Callable[..., SqlType],
    apply: Callable[..., Compiled],
) -> Compiled:
    """Rounds the exact result half up to the scale of the result type."""
    kinds = [decimal_for(side.type, side.literal) for side in (left, right)]
    kind = result(*kinds)
    operands = (
        side if side.type.is_decimal else casted(side, own)
        for side, own in zip((left, right), kinds, strict=True)
    )
    return apply(lambda a, b: fit(function(a, b), kind), kind, *operands)


def _add(left: Compiled, right: Compiled) -> Compiled:
    if right.type == TIMESTAMP:
        left, right = right, left
    if left.type == TIMESTAMP and right.type in {DAY_TIME, YEAR_MONTH}:
        return _shifted(left, right, 1)
    if left.type == right.type and left.type in {DAY_TIME, YEAR_MONTH}:
        return _of_intervals(left, right, operator.add)
    return _of_numbers(left, right, _exact(operator.add), sum_decimal, "+")


def _subtract(left: Compiled, right: Compiled) -> Compiled:
    if left.type == right.type == TIMESTAMP:
        return strict(_checked(operator.sub, DAY_TIME), DAY_TIME, left, right)
    if left.type == TIMESTAMP and right.type in {DAY_TIME, YEAR_MONTH}:
        return _shifted(left, right, -1)
    if left.type == right.type and left.type in {DAY_TIME, YEAR_MONTH}:
        return _of_intervals(left, right, operator.sub)
    return _of_numbers(left, right, _exact(operator.sub), sum_decimal, "-")


def _multiply(left: Compiled, right: Compiled) -> Compiled:
    return _of_numbers(left, right, _exact(operator.mul), product_decimal, "*")


def _divide(left: Compiled, right: Compiled) -> Compiled:
    """Division; a DOUBLE for integers."""
    kind = common_type(left.type, right.type, what="/")
    if kind.is_decimal:
        return _of_decimals(left, right, _nonzero(_exact_quotient), quotient_decimal, divisor_first)
    if not kind.is_numeric:
        raise NotExactError(f"{left.type} / {right.type}")
    left, right = casted(left, DOUBLE), casted(right, DOUBLE)
    return divisor_first(_nonzero(_double_quotient), DOUBLE, left, right)


def _integral_divide(left: Compiled, right: Compiled) -> Compiled:
    if not (left.type.is_integral and right.type.is_integral):
        raise NotExactError(f"{left.type} div {right.type}")
    left, right = casted(left, BIGINT), casted(right, BIGINT)
    return divisor_first(_nonzero(_checked(_java_quotient, BIGINT)), BIGINT, left, right)


def _remainder(left: Compiled, right: Compiled) -> Compiled:
    """Remainder with the sign of the dividend, as in Java."""
    remainder = _nonzero(_java_remainder, "REMAINDER_BY_ZERO")
    return _of_numbers(left, right, remainder, remainder_decimal, "%", divisor_first)


def _java_quotient(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _java_remainder(left: Any, right: Any) -> Any:
    if isinstance(left, float):
        return math.nan if math.isinf(left) or math.isnan(right) else math.fmod(left, right)
    if isinstance(left, Decimal):
        return _EXACT.remainder(left, right)
    return left - right * _java_quotient(left, right)


def _exact(function: Operation) -> Operation:
    """Runs a function on decimals without Python's default rounding to 28 digits."""
    of_decimals = {
        operator.add: _EXACT.add,
        operator.sub: _EXACT.subtract,
        operator.mul: _EXACT.multiply,
    }[function]
    return lambda a, b: of_decimals(a, b) if isinstance(a, Decimal) else function(a, b)


def _exact_quotient(left: Decimal, right: Decimal) -> Decimal:
    return _EXACT.divide(left, right)


def _double_quotient(left: float, right: float) -> float:
    return left / right


def _nonzero(function: Operation, error: str = "DIVIDE_BY_ZERO") -> Operation:
    def run(left: Any, right: Any) -> Any:
        if right == 0:
            raise SqlRuntimeError(error, f"{left} by {right}")
        return function(left, right)

    return run


def _of_intervals(left: Compiled, right: Compiled, function: Operation) -> Compiled:
    if left.type == YEAR_MONTH:
        return strict(function, YEAR_MONTH, left, right)
    return strict(_checked(function, DAY_TIME), DAY_TIME, left, right)


def _shifted(at: Compiled, by: Compiled, sign: int) -> Compiled:
    """A timestamp plus an interval. A day that the month does not have becomes its last day."""
    if by.type == DAY_TIME:
        return strict(_checked(lambda a, b: a + sign * b, TIMESTAMP), TIMESTAMP, at, by)
    return strict(lambda a, b: _months_later(a, sign * b), TIMESTAMP, at, by)


def _months_later(micros: int, months: int) -> int:
    at = instant(micros)
    year, month = divmod(at.year * 12 + at.month - 1 + months, 12)
    if not 1 <= year <= 9999:
        raise NotExactError("a TIMESTAMP outside the years 1 to 9999")
    last = monthrange(year, month + 1)[1]
    moved = at.replace(year=year, month=month + 1, day=min(at.day, last))
    return (moved.date() - EPOCH.date()).days * MICROS_PER_DAY + micros % MICROS_PER_DAY


def negated(operand: Compiled) -> Compiled:
    kind = operand.type
    if kind.is_decimal:  # the operator rounds to 28 digits
        return strict(lambda value: value.copy_negate() if value else value, kind, operand)
    if kind.is_floating or kind == YEAR_MONTH:
        return strict(operator.neg, kind, operand)
    if kind.is_integral or kind == DAY_TIME:
        checked = _checked(lambda value, _: -value, kind)
        return strict(lambda value: checked(value, None), kind, operand)
    raise NotExactError(f"- {kind}")


ARITHMETIC: dict[type[exp.Expr], Callable[[Compiled, Compiled], Compiled]] = {
    exp.Add: _add,
    exp.Sub: _subtract,
    exp.Mul: _multiply,
    exp.Div: _divide,
    exp.IntDiv: _integral_divide,
    exp.Mod: _remainder,
}


def _tried(build: Callable[[Compiled, Compiled], Compiled], *, right_first: bool = False) -> Build:
    """The operation, which returns null for its own errors.

    A failing operand fails the query if it is a number, and returns null if it is a time or an
    interval (TryEval).
    """

    def tried(_: exp.Expr, arguments: list[Compiled]) -> Compiled:
        left, right = arguments
        whole = build(left, right)
        if not (left.type.is_numeric and right.type.is_numeric):
            return Compiled(whole.type, lambda env: _or_null(whole.run, env))
        apply = build(
            Compiled(left.type, lambda pair: pair[0], left.literal),
            Compiled(right.type, lambda pair: pair[1], right.literal),
        ).run

        def run(env: Env) -> Value:
            first, second = (right, left) if right_first else (left, right)
            one = first.run(env)
            if one is None:
                return None
            other = second.run(env)
            return _or_null(apply, (other, one) if right_first else (one, other))

        return Compiled(whole.type, run)

    return tried


def _or_null(run: Run, env: Env) -> Value:
    try:
        value: Value = run(env)
    except SqlRuntimeError:
        return None
    return value


TRIED: dict[str, Build] = {
    "try_add": _tried(_add),
    "try_subtract": _tried(_subtract),
    "try_multiply": _tried(_multiply),
    "try_divide": _tried(_divide, right_first=True),
    "try_mod": _tried(_remainder, right_first=True),
}
