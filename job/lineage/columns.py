"""Columns of the topics that each output column depends on. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from job.plan.plan import JoinPlan
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
    return {name: list(_value_sources(value)) for name, value in plan.output.columns.items()}


def sources_of_rows(plan: JoinPlan) -> list[Source]:
    """The columns that decide which results there are."""
    sources = [
        *(Source(side, plan.side(side).event_time, "JOIN") for side in SIDES),
        *_row_sources("JOIN", (*plan.left.key, *plan.right.key, plan.condition)),
        *_row_sources("FILTER", (plan.left.filter, plan.right.filter, plan.output.filter)),
    ]
    return sorted(set(sources), key=_order)


def _value_sources(value: Expression) -> Iterator[Source]:
    subtype = "IDENTITY" if value.is_column else "TRANSFORMATION"
    for side, column in sorted(value.columns):
        yield Source(side, column, subtype)


def _row_sources(subtype: str, expressions: Iterable[Expression | None]) -> Iterator[Source]:
    for expression in filter(None, expressions):
        for side, column in expression.columns:
            yield Source(side, column, subtype)


def _order(source: Source) -> tuple[str, str, str]:
    return source.side, source.column, source.subtype
