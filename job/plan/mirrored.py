"""Filters on a key column that also apply to the other side: rows that fail them cannot match.

Spark infers such filters by rules of its optimizer, which the specification in Python cannot
reproduce; the number of state rows would then be unpredictable. So the plan disables the inference
(spark.sql.constraintPropagation.enabled), and this module decides which filters apply to both
sides.
"""

from collections.abc import Iterator
from contextlib import suppress

from job.plan.plan import JoinPlan
from job.spec.expressions import Expression, Scope, column_name, renamed
from job.spec.sides import OTHER_SIDE, Side
from job.sql.questions import SqlError


def mirrored_filters(plan: JoinPlan, side: Side, scope: Scope) -> tuple[Expression, ...]:
    """Conditions on `side` that follow from the other side's filter and from `condition`.

    They come from comparisons of one key column with constants, such as `k = 7`, `k IN (1, 2)`,
    `k BETWEEN 1 AND 5`, which cannot fail on any row.
    """
    if side in plan.join_type.outer_sides:  # its rows are emitted without a match
        return ()
    return tuple(_mirrored(plan, side, scope))


def _mirrored(plan: JoinPlan, side: Side, scope: Scope) -> Iterator[Expression]:
    other = OTHER_SIDE[side]
    paired = dict(_paired_columns(plan, other, side))
    written = [plan.side(other).filter, plan.condition]
    conjuncts = [part for condition in written if condition for part in condition.conjuncts]
    for part in conjuncts:
        names = {name for mentioned, name in part.columns if mentioned == other}
        if part.compares and len(part.columns) == 1 and names <= set(paired):
            columns = {column_name(other, name): column_name(side, paired[name]) for name in names}
            with suppress(SqlError):  # the column has another type, or the part a time zone
                mirror = renamed(part, scope, columns) if names else None
                if mirror is not None and mirror.compares and not mirror.can_fail:
                    yield mirror


def _paired_columns(plan: JoinPlan, source: Side, target: Side) -> Iterator[tuple[str, str]]:
    """(key column of `source`, key column of `target`) for pairs of plain columns."""
    for pair in zip(plan.side(source).key, plan.side(target).key, strict=True):
        if all(part.is_column for part in pair):
            ((_, of_source),), ((_, of_target),) = (part.columns for part in pair)
            yield of_source, of_target
