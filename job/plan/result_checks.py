"""SQL that detects results on which an expression fails, after the join.

Only text, over the joined rows. A pair on which join.condition fails passes the join (ON clause in
plan.py) and is detected here: it is not a result, but a dead letter.
"""

from collections.abc import Iterator

from job.plan.plan import JoinPlan, guarded
from job.plan.position import position_column
from job.spec.expressions import Expression
from job.spec.sides import OTHER_SIDE, Side
from job.sql.literals import quoted

TRIED = "tried"
"""Column with the values of all expressions that can fail. Null: one of them fails."""


def filters(plan: JoinPlan) -> Iterator[str]:
    """Conditions that a joined row must pass. A row on which output.filter fails passes."""
    condition = plan.checks.filter
    if condition.safe is not None:
        yield condition.safe.sql
    if condition.failing is not None:
        tried = f"try_eval(coalesce({condition.failing.sql}, false))"
        yield f"coalesce({_guarded(plan, tried, condition.failing)}, true)"


def filter_value(plan: JoinPlan) -> str:
    """The value of output.filter. Null also if it fails."""
    expression = plan.output.filter
    assert expression is not None
    if plan.checks.filter.failing is None:
        return f"({expression.sql})"
    tried = f"try_eval(struct(({expression.sql}) AS value))"
    return f"{_guarded(plan, tried, expression)}.value"


def is_unmatched(plan: JoinPlan, side: Side) -> str:
    """Whether a joined row is an unmatched row of `side`, or a pair on which join.condition fails.
    An anti join keeps the pair, so that it becomes a dead letter."""
    return f"{position_column(OTHER_SIDE[side])} IS NULL OR {_condition_fails(plan)}"


def _condition_fails(plan: JoinPlan) -> str:
    if plan.checks.condition is None:
        return "false"
    return f"({_IS_PAIR} AND try_eval(struct({plan.checks.condition.sql})) IS NULL)"


def tried(plan: JoinPlan) -> str:
    """The value of TRIED: a struct of all expressions that can fail, each evaluated once."""
    members = [f"({sql}) AS {name}" for name, (_, _, sql) in _members(plan).items()]
    return _guarded(plan, f"try_eval(struct({', '.join(members)}))", *plan.output.columns.values())


def column(plan: JoinPlan, name: str) -> str:
    """An output column, from TRIED if it can fail."""
    if name not in plan.checks.columns:
        return plan.output.columns[name].sql
    return f"{TRIED}.column_{plan.checks.columns.index(name)}"


def header(plan: JoinPlan, name: str) -> str:
    """The value of a header, from TRIED if it can fail."""
    if name not in plan.checks.headers:
        return plan.output.headers[name].sql
    return f"{TRIED}.header_{plan.checks.headers.index(name)}"


def key(plan: JoinPlan) -> str:
    """The key of a result, from TRIED if it can fail."""
    written = plan.output.key
    if written is None:
        return "NULL"
    return f"{TRIED}.key" if plan.checks.key else written.sql


def partition_by(plan: JoinPlan) -> str:
    """The value that chooses the partition of a result, from TRIED if the expression can fail."""
    written = plan.output.partition_by
    assert written is not None, "the caller checks it"
    return f"{TRIED}.partition_by" if plan.checks.partition_by else written.sql


def failed_field(plan: JoinPlan) -> str:
    """The field of the spec that fails on a result. Null: none fails."""
    fields = [
        f"CASE WHEN try_eval(struct({sql})) IS NULL THEN {quoted(field)} END"
        for field, _, sql in _members(plan).values()
    ]
    return f"CASE WHEN {TRIED} IS NULL THEN coalesce({', '.join(fields)}, 'output') END"


def texts(plan: JoinPlan) -> dict[str, str]:
    """Text in the spec, by field that can fail."""
    return {field: text for field, text, _ in _members(plan).values()}


_IS_PAIR = " AND ".join(f"{position_column(side)} IS NOT NULL" for side in ("left", "right"))


def _members(plan: JoinPlan) -> dict[str, tuple[str, str, str]]:
    """(field, text, SQL) by member of TRIED, in the order of the search for the failing one."""
    checks, output = plan.checks, plan.output
    members = {}
    if checks.condition is not None:
        sql = f"CASE WHEN {_IS_PAIR} THEN {checks.condition.sql} END"
        members["condition"] = ("join.condition", checks.condition.text, sql)
    if checks.filter.failing is not None and output.filter is not None:
        members["filter"] = ("output.filter", output.filter.text, checks.filter.failing.sql)
    for index, name in enumerate(checks.columns):
        written = output.columns[name]
        members[f"column_{index}"] = (f"output.columns.{name}", written.text, written.sql)
    for index, name in enumerate(checks.headers):
        written = output.headers[name]
        members[f"header_{index}"] = (f"output.headers.{name}", written.text, written.sql)
    if checks.key and output.key is not None:
        members["key"] = ("output.key", output.key.text, output.key.sql)
    if checks.partition_by and output.partition_by is not None:
        written = output.partition_by
        members["partition_by"] = ("output.partition_by", written.text, written.sql)
    return members


def _guarded(plan: JoinPlan, sql: str, *parts: Expression) -> str:
    used = {side for part in parts for side in part.sides}
    shown = plan.join_type.shown_sides
    return guarded(sql, next((side for side in shown if side in used), shown[0]))
