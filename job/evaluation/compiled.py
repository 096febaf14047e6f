"""A compiled expression: its type, and a function from a row to its value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from job.evaluation.sql_cast import cast
from job.evaluation.sql_types import SqlType, Value

Env: TypeAlias = Sequence[Value]
"""Values of the columns of an expression, in the order of its layout."""

Run: TypeAlias = Callable[[Env], Any]


@dataclass(frozen=True)
class Compiled:
    type: SqlType
    run: Run
    literal: Value = None
    """Value of an integer literal: in decimal arithmetic it has the narrowest DECIMAL. None: no
    integer literal."""


def strict(function: Callable[..., Value], result: SqlType, *arguments: Compiled) -> Compiled:
    """`function` of the arguments; null at the first argument that is null. Later arguments are not
    evaluated."""
    if len(arguments) == 1:
        (only,) = (argument.run for argument in arguments)

        def run_one(env: Env) -> Value:
            value = only(env)
            return None if value is None else function(value)

        return Compiled(result, run_one)

    runs = [argument.run for argument in arguments]

    def run_all(env: Env) -> Value:
        values = []
        for run in runs:
            value = run(env)
            if value is None:
                return None
            values.append(value)
        return function(*values)

    return Compiled(result, run_all)


def divisor_first(function: Callable[..., Value], result: SqlType, *pair: Compiled) -> Compiled:
    """As `strict`, but evaluates the divisor first, as Spark does."""
    dividend, divisor = pair
    return strict(lambda right, left: function(left, right), result, divisor, dividend)


def casted(argument: Compiled, target: SqlType) -> Compiled:
    if argument.type == target:
        return argument
    return strict(cast(argument.type, target), target, argument)
