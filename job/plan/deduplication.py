"""Ids by which a side drops duplicates: their SQL and their checks.

The side drops duplicates after its filters, so that the state contains only ids of rows that can
enter the join. A duplicate has the same values as its original, so a filter gives the same result
for both.
"""

from collections.abc import Iterator
from datetime import timedelta

from job.errors import Problem
from job.plan.plan import JoinPlan
from job.plan.problems import CAN_FAIL
from job.plan.side_plan import Deduplication, SidePlan
from job.spec.sides import SIDES, Side

# Types whose equal values have equal bytes in state.
_TYPES = frozenset({
    "STRING", "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "DATE", "TIMESTAMP",
    "BINARY",
})  # fmt: skip


def id_columns(side: SidePlan) -> dict[str, str]:
    """The column with a row's id, a struct, as SQL by name. Empty: the side drops no duplicates.

    A null, if a part of the id is null: the row is never a duplicate.
    """
    if side.deduplication is None:
        return {}
    parts = [f"({part.sql})" for part in side.deduplication.by]
    has_all = " AND ".join(f"{part} IS NOT NULL" for part in parts)
    fields = ", ".join(f"{part} AS id_{index}" for index, part in enumerate(parts))
    return {id_column(side.side): f"CASE WHEN {has_all} THEN struct({fields}) END"}


def id_column(side: Side) -> str:
    return f"__{side}_id"


def id_kept_after(plan: JoinPlan, deduplication: Deduplication) -> timedelta:
    """From the time by which a row is late to the watermark at which its id leaves state: a
    duplicate that arrives later is late, or too far from the row. Two duplicates are in one
    tumbling window, whose rows are late by its end."""
    return timedelta() if plan.window is not None else deduplication.within


def deduplication_problems(plan: JoinPlan) -> Iterator[Problem]:
    for side in (plan.side(name) for name in SIDES):
        for index, part in enumerate(side.deduplication.by if side.deduplication else ()):
            field = f"{side.side}.deduplicate.by[{index}]"
            if part.type.name not in _TYPES:
                message = (
                    f"is {part.type}, whose equal values Spark does not always store as equal "
                    "bytes: use columns of text, whole numbers, decimals or times"
                )
                yield Problem(field, part.text, message)
            elif part.can_fail:
                yield Problem(field, part.text, CAN_FAIL)
