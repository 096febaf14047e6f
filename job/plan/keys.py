"""Checks the pairs of keys by Spark's rules."""

from collections.abc import Iterator

from job.errors import Problem
from job.plan.plan import JoinPlan
from job.spec.expressions import Expression, Scope
from job.spec.sides import SIDES
from job.sql.questions import SqlError
from job.sql.types import BIGINT, INT, SMALLINT, STRING, TINYINT, SqlType


def key_problems(plan: JoinPlan, scope: Scope) -> Iterator[Problem]:
    """Problems of the pairs of keys. Each expression alone has been checked before."""
    pairs = list(zip(plan.left.key, plan.right.key, strict=True))
    for index, (left, right) in enumerate(pairs):
        maps = [
            Problem(f"{side}.key[{index}]", part.text, _cannot_be_compared(part.type))
            for side, part in zip(SIDES, (left, right), strict=True)
            if not part.type.is_orderable
        ]
        if maps:
            yield from maps
        elif (message := _mismatch(scope, left, right, index)) is not None:
            yield Problem(f"right.key[{index}]", right.text, message)
    if plan.window is None and all(left.is_constant or right.is_constant for left, right in pairs):
        yield Problem("left.key", ", ".join(part.text for part in plan.left.key), _NO_EQUALITY)


_NO_EQUALITY = (
    "has no pair of entries that both depend on a column, and Spark needs at least one equality of "
    "columns to join streams: to join all rows, use an expression with one value on both sides, "
    "e.g. `length(name) * 0` over a column `name` that is never null"
)


_WHOLE_NUMBERS = (TINYINT, SMALLINT, INT, BIGINT)
"""Types of which each contains all values of those before it."""


def _cannot_be_compared(kind: SqlType) -> str:
    return (
        f"is {kind}, and Spark cannot compare a MAP: use single values, "
        "e.g. element_at(record_headers, 'id')"
    )


def _mismatch(scope: Scope, left: Expression, right: Expression, index: int) -> str | None:
    """Spark would cast one of them, which could change a column's value or fail on a string."""
    if left.type == right.type and _can_be_compared(scope, left, right):
        return None
    both = f"is {right.type} and left.key[{index}] ({left.text}) is {left.type}: "
    if not _can_be_compared(scope, left, right):
        return f"{both}Spark cannot compare them; declare the same type for both, or cast one"
    if not (left.is_column and right.is_column) and STRING not in (left.type, right.type):
        return None
    if left.type in _WHOLE_NUMBERS and right.type in _WHOLE_NUMBERS:
        wider = max(left.type, right.type, key=_WHOLE_NUMBERS.index)
        side, narrower = ("left", left) if left.type != wider else ("right", right)
        return (
            f"{both}write cast({narrower.text} as {str(wider).lower()}) in {side}.key[{index}], or "
            "declare the same type for both"
        )
    target = str(left.type).lower()
    return (
        f"{both}declare the same type for both, or write try_cast({right.text} as {target}), "
        "which returns NULL for an invalid value"
    )


def _can_be_compared(scope: Scope, left: Expression, right: Expression) -> bool:
    try:
        scope.sql.analysis(f"({left.sql}) = ({right.sql})", scope.columns)
    except SqlError:
        return False
    return True
