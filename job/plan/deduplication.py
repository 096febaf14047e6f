"""Ids by which a side drops duplicates: their SQL and their checks.

The side drops duplicates after its filters, so that the state contains only ids of rows that can
enter the join. A duplicate has the same values as its original, so a filter gives the same result
for both.
"""

from collections.abc import Iterator

from job.errors import Problem
from job.plan.plan import JoinPlan
from job.plan.position import position_column
from job.plan.problems import CAN_FAIL
from job.plan.side_plan import SidePlan
from job.spec.sides import SIDES, Side

# Types whose equal values have equal bytes in state.
_TYPES = frozenset({
    "STRING", "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL", "DATE", "TIMESTAMP",
    "BINARY",
})  # fmt: skip


def id_columns(side: SidePlan) -> dict[str, str]:
    """Columns of a row's id, as SQL by name. Empty: the side is not deduplicated.

    The last column makes the id of a row with a null unique, so that it is never a duplicate.
    """
    if side.deduplication is None:
        return {}
    parts = [f"({part.sql})" for part in side.deduplication.by]
    is_null = " OR ".join(f"{part} IS NULL" for part in parts)
    unique = f"CASE WHEN {is_null} THEN {position_column(side.side)} END"
    return {_name(side.side, index): sql for index, sql in enumerate([*parts, unique])}


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


def _name(side: Side, index: int) -> str:
    return f"__{side}_id_{index}"
