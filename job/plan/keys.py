"""Checks the pairs of keys by Spark's rules, without Spark."""

from collections.abc import Iterator

from sqlglot import exp

from job.errors import Problem
from job.evaluation.sql_types import STRING, SqlType
from job.join_spec.expressions import Expression
from job.join_spec.sides import SIDES
from job.plan.plan import JoinPlan, SidePlan
from job.sql.arguments import comparison_type


def key_problems(plan: JoinPlan) -> Iterator[Problem]:
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
        elif (message := _mismatch(plan, left, right, index)) is not None:
            yield Problem(f"right.key[{index}]", right.text, message)
    if plan.window is None and all(any(map(_is_constant, pair)) for pair in pairs):
        yield Problem("left.key", ", ".join(part.text for part in plan.left.key), _NO_EQUALITY)


_NO_EQUALITY = (
    "has no pair of entries that both depend on a column, and Spark needs at least one equality of "
    "columns to join streams: to join all rows, use an expression with one value on both sides, "
    "e.g. `length(name) * 0` over a column `name` that is never null"
)


def _cannot_be_compared(kind: SqlType) -> str:
    return (
        f"is {kind}, and Spark cannot compare a MAP: use single values, "
        "e.g. element_at(record_headers, 'id')"
    )


def _mismatch(plan: JoinPlan, left: Expression, right: Expression, index: int) -> str | None:
    """Spark would cast one of them, which could change a column's value or fail on a string."""
    if left.type == right.type:
        return None
    both = f"is {right.type} and left.key[{index}] ({left.text}) is {left.type}: "
    if comparison_type(left.type, right.type) is None:
        return f"{both}Spark cannot compare them; declare the same type for both, or cast one"
    plain = _is_column(plan.left, left) and _is_column(plan.right, right)
    if not plain and STRING not in (left.type, right.type):
        return None
    target = str(left.type).lower()
    return (
        f"{both}declare the same type for both, or write try_cast({right.text} as {target}), "
        "which returns NULL for an invalid value"
    )


def _is_column(side: SidePlan, part: Expression) -> bool:
    return part.sql in {f"`{side.side}_{name}`" for _, name in part.columns}


def _is_constant(part: Expression) -> bool:
    return _reduces(part.tree)


def _reduces(node: exp.Expr) -> bool:
    """Whether Spark's optimizer replaces it by a constant, even if it contains a column."""
    if node.find(exp.Column) is None:
        return True
    node = node.unnest()
    if isinstance(node, exp.Coalesce):
        first = node.this.unnest()
        return first.find(exp.Column) is None and not isinstance(first, exp.Null)
    if isinstance(node, (exp.If, exp.Case)):
        return _branches_are_one_constant(node)
    if isinstance(node, (exp.And, exp.Or)):
        return any(
            isinstance(part.unnest(), exp.Boolean)
            and part.unnest().this is isinstance(node, exp.Or)
            for part in (node.this, node.expression)
        )
    if isinstance(node, (exp.NullSafeEQ, exp.Is)) or not isinstance(node, exp.Binary):
        return False
    return any(isinstance(part.unnest(), exp.Null) for part in (node.this, node.expression))


def _branches_are_one_constant(node: exp.Expr) -> bool:
    branches = node.args.get("ifs") or [node]
    otherwise = node.args.get("default") or node.args.get("false") or exp.Null()
    results = [*(branch.args["true"] for branch in branches), otherwise]
    return len({result.sql() for result in results}) == 1 and _reduces(results[0])
