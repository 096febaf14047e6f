"""SQL that detects records on which an expression of their side fails, before the join.

Only text. The steps follow those of record_sql.py and use its columns. There are no steps
if no expression of the side can fail. job/spark/try_eval.py registers the function try_eval.
"""

from collections.abc import Iterator

from job.plan.checks import Condition
from job.plan.plan import SidePlan
from job.sql.literals import quoted

EXPRESSION_FAILED = "expression_failed"
FAILED_FIELD = "failed_field"
"""Column with the field of the spec whose expression fails. Null: none fails."""
_PASSES = "passes_filter"
"""Column: whether a readable record passes the filter. Null: the filter fails on it."""


def steps(side: SidePlan) -> list[list[str]]:
    """Consecutive projections that set `reason` to expression_failed if an expression fails. Key
    and condition are evaluated only on records that pass the filter."""
    if not side.checks.any:
        return []
    filters = [] if side.filter is None else [["*", f"{_filter(side.checks.filter)} AS {_PASSES}"]]
    keys = [
        f"CASE WHEN reason IS NULL AND {passes(side)} "
        f"THEN try_eval(struct(({side.key[index].sql}) AS value)) END AS {_key_column(index)}"
        for index in side.checks.keys
    ]
    failures = " ".join(f"WHEN {fails} THEN {quoted(name)}" for name, _, fails in _failures(side))
    field = f"CASE WHEN reason IS NOT NULL THEN NULL {failures} END AS {FAILED_FIELD}"
    reason = f"CASE WHEN {FAILED_FIELD} IS NULL THEN reason ELSE '{EXPRESSION_FAILED}' END"
    return [*filters, ["*", *keys], ["*", field], ["* EXCEPT (reason)", f"{reason} AS reason"]]


def passes(side: SidePlan) -> str:
    """Whether a readable record passes the side's filter. Never null."""
    if side.filter is None:
        return "true"
    return (
        f"coalesce({_PASSES}, false)" if side.checks.any else f"coalesce({side.filter.sql}, false)"
    )


def row_filter(side: SidePlan) -> str | None:
    """The side's filter over readable records."""
    if side.filter is None or not side.checks.any:
        return None if side.filter is None else side.filter.sql
    return _PASSES


def key_values(side: SidePlan) -> list[str]:
    """The parts of the key, for records that pass the filter."""
    return [
        f"{_key_column(index)}.value" if index in side.checks.keys else f"({part.sql})"
        for index, part in enumerate(side.key)
    ]


def null_checked(side: SidePlan) -> dict[int, str]:
    """The values of the key's parts whose nulls are counted, by index, for records that pass the
    filter."""
    values = key_values(side)
    return {index: values[index] for index in side.null_checked}


def has_null_key(side: SidePlan) -> str:
    """Whether a record that passes the filter has a null that is counted in its key."""
    nulls = [f"{value} IS NULL" for value in null_checked(side).values()]
    return f"({' OR '.join(nulls)})" if nulls else "false"


def counted_null_key(side: SidePlan) -> str:
    """Whether a readable record has a null that is counted in its key."""
    null = has_null_key(side)
    return f"{passes(side)} AND {null}" if side.checks.keys and side.filter else null


def failure_message(side: SidePlan) -> str:
    """Names the field and the expression that failed."""
    if not side.checks.any:
        return "''"
    texts = " ".join(
        f"WHEN {quoted(name)} THEN {quoted(text)}" for name, text, _ in _failures(side)
    )
    return (
        f"concat({FAILED_FIELD}, ' cannot be evaluated on this record: ', "
        f"CASE {FAILED_FIELD} {texts} END)"
    )


def _filter(condition: Condition) -> str:
    parts = [part for part in (condition.safe, condition.failing) if part is not None]
    whole = f"coalesce({' AND '.join(f'coalesce({part.sql}, false)' for part in parts)}, false)"
    evaluated = whole if condition.failing is None else f"try_eval({whole})"
    return f"CASE WHEN reason IS NULL THEN {evaluated} END"


def _failures(side: SidePlan) -> Iterator[tuple[str, str, str]]:
    """(field, text, SQL condition that it fails on a readable record), in order of evaluation."""
    if side.filter is not None and side.checks.filter.failing:
        yield f"{side.side}.filter", side.filter.text, f"{_PASSES} IS NULL"
    for index in side.checks.keys:
        fails = f"{passes(side)} AND {_key_column(index)} IS NULL"
        yield f"{side.side}.key[{index}]", side.key[index].text, fails
    if side.checks.condition is not None:
        fails = f"{passes(side)} AND try_eval(struct({side.checks.condition.sql})) IS NULL"
        yield "join.condition", side.checks.condition.text, fails


def _key_column(index: int) -> str:
    return f"tried_key_{index}"
