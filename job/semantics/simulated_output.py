"""Compiles what happens after the join: output filter, columns, headers and key of a result."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from job.evaluation.compiled import Compiled, Env, Run
from job.evaluation.evaluator import Layout, compile_expression, compile_predicate
from job.evaluation.sql_types import SqlRuntimeError
from job.plan.checks import Condition
from job.plan.plan import JoinPlan
from job.semantics.output_json import check_types
from job.semantics.rows import JoinedRow

Predicate = Callable[[Env], bool]


@dataclass(frozen=True)
class SimulatedOutput:
    columns: Mapping[str, Compiled]
    headers: Mapping[str, Compiled]
    key: Compiled | None
    failed_field: Callable[[JoinedRow], str | None]
    """Field of the spec that fails on the joined row, which is not a result then. None: no field
    fails."""
    passes_filter: Callable[[JoinedRow], bool]
    """Whether the row passes output.filter; True also if the filter fails with an error."""


def simulated_output(
    plan: JoinPlan, layout: Layout, env_of: Callable[[JoinedRow], Env]
) -> SimulatedOutput:
    """Raises NotExactError for an expression that cannot be evaluated exactly as in Spark."""
    columns, headers = (
        {name: compile_expression(expression.tree, layout) for name, expression in written.items()}
        for written in (plan.output.columns, plan.output.headers)
    )
    check_types([(name, compiled.type) for name, compiled in columns.items()])
    keep = in_parts(layout, plan.checks.filter)
    key = compile_expression(plan.output.key.tree, layout) if plan.output.key else None
    by = plan.output.partition_by
    partition_by = compile_expression(by.tree, layout) if by else None
    failing = _failing(plan, layout, columns, headers, {"key": key, "partition_by": partition_by})
    condition = conjunction(layout, [plan.checks.condition.tree] if plan.checks.condition else [])

    def passes(row: JoinedRow) -> bool:
        env = env_of(row)
        can_fail = plan.checks.filter.failing is not None
        return (can_fail and fails(keep, env)) or keep(env)

    def failed_field(row: JoinedRow) -> str | None:
        env = env_of(row)
        if row.left is not None and row.right is not None and fails(condition, env):
            return "join.condition"
        return next((field for field, run in failing.items() if fails(run, env)), None)

    return SimulatedOutput(columns, headers, key, failed_field, passes)


def _failing(
    plan: JoinPlan,
    layout: Layout,
    columns: Mapping[str, Compiled],
    headers: Mapping[str, Compiled],
    others: Mapping[str, Compiled | None],
) -> dict[str, Run]:
    """Expressions that can fail, by the field of the spec, in the order of result_checks."""
    checks = plan.checks
    runs: dict[str, Run] = {}
    if checks.filter.failing:
        runs["output.filter"] = in_parts(layout, checks.filter)
    runs |= {f"output.columns.{name}": columns[name].run for name in checks.columns}
    runs |= {f"output.headers.{name}": headers[name].run for name in checks.headers}
    for name, can_fail in (("key", checks.key), ("partition_by", checks.partition_by)):
        compiled = others[name]
        if compiled is not None and can_fail:
            runs[f"output.{name}"] = compiled.run
    return runs


def conjunction(layout: Layout, trees: Sequence[exp.Expr]) -> Predicate:
    predicates = [compile_predicate(tree, layout) for tree in trees]
    return lambda env: all(predicate(env) for predicate in predicates)


def in_parts(layout: Layout, condition: Condition) -> Predicate:
    """Evaluates the part that cannot fail first; if it is not true, not the other part."""
    parts = [part.tree for part in (condition.safe, condition.failing) if part is not None]
    return conjunction(layout, parts)


def fails(run: Run, env: Env) -> bool:
    try:
        run(env)
    except SqlRuntimeError:
        return True
    return False
