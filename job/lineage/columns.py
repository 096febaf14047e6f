"""Columns of the topics that each output column depends on. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.spec.expressions import Expression
from job.spec.sides import SIDES, Side


@dataclass(frozen=True)
class Source:
    """A column that other columns, or all results, depend on."""

    side: Side
    column: str
    subtype: str
    """In OpenLineage's words: IDENTITY or TRANSFORMATION of a column, JOIN or FILTER of rows."""


def sources_of_columns(plan: JoinPlan) -> dict[str, list[Source]]:
    """Per output column, the columns from which its value is computed."""
    return {name: list(_value_sources(plan, value)) for name, value in plan.output.columns.items()}


def sources_of_rows(plan: JoinPlan) -> list[Source]:
    """The columns that decide which results there are."""
    sources = [
        *(
            Source(side, column, "JOIN")
            for side in SIDES
            for column in _topic_columns(plan.side(side), plan.side(side).event_time)
        ),
        *_row_sources(plan, "JOIN", (*plan.left.key, *plan.right.key, plan.condition)),
        *_row_sources(plan, "FILTER", (plan.left.filter, plan.right.filter, plan.output.filter)),
    ]
    return sorted(set(sources), key=_order)


def _value_sources(plan: JoinPlan, value: Expression) -> Iterator[Source]:
    for side, column in sorted(value.columns):
        columns = sorted(_topic_columns(plan.side(side), column))
        is_same = value.is_column and columns == [column]
        for each in columns:
            yield Source(side, each, "IDENTITY" if is_same else "TRANSFORMATION")


def _row_sources(
    plan: JoinPlan, subtype: str, expressions: Iterable[Expression | None]
) -> Iterator[Source]:
    for expression in filter(None, expressions):
        for side, column in expression.columns:
            for each in _topic_columns(plan.side(side), column):
                yield Source(side, each, subtype)


def _topic_columns(side: SidePlan, column: str) -> set[str]:
    """The columns of the topic from which `column` is computed."""
    computed = {each.name: each.value for each in side.computed}
    if column not in computed:
        return {column}
    used = (_topic_columns(side, name) for _, name in computed[column].columns)
    return set().union(*used)


def _order(source: Source) -> tuple[str, str, str]:
    return source.side, source.column, source.subtype
