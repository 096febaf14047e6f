"""Small rows and joins for the tests of the operator: a row is (key, seconds, tag)."""

from typing import NamedTuple

from job.semantics.event_time import WatermarkTracker
from job.semantics.events import Observer, ignore_event
from job.semantics.one_side_joiner import SideInput
from job.semantics.operator import JoinOperatorPlan
from job.semantics.query import JoinQuery
from job.semantics.watermark_predicates import JoinCondition
from job.spec.join_conditions import JoinType

SECOND = 1_000_000
WINDOW = JoinCondition(before_ms=0, after_ms=5_000)


class R(NamedTuple):
    """A row of either side."""

    key: object
    at: float | None
    tag: str = ""


def micros(row: R) -> int | None:
    return None if row.at is None else round(row.at * SECOND)


def in_window(left: R, right: R, *, before: float = 0, after: float = 5) -> bool:
    if left.at is None or right.at is None:
        return False
    return left.at - before <= right.at <= left.at + after


def operator_plan(
    join_type: JoinType,
    *,
    condition: JoinCondition = WINDOW,
    post=in_window,
    left_filter=lambda _: True,
    right_filter=lambda _: True,
    key_is_time: bool = False,
) -> JoinOperatorPlan:
    """A join on the key within 5 seconds by default."""
    return JoinOperatorPlan(
        join_type=join_type,
        left=SideInput(lambda row: (row.key,), micros, left_filter),
        right=SideInput(lambda row: (row.key,), micros, right_filter),
        condition=JoinCondition(has_time_in_key=True) if key_is_time else condition,
        post_join_filter=lambda row: post(row.left, row.right),
        key_time=(lambda key: key[0] * SECOND) if key_is_time else (lambda _: None),
    )


def query(plan: JoinOperatorPlan, *, delay_ms: int = 10_000, observer: Observer = ignore_event):
    return JoinQuery(plan, WatermarkTracker({"left": delay_ms, "right": delay_ms}), observer)


def pairs(batch) -> list[tuple[str | None, str | None]]:
    """The tags of a batch's joined rows, in order."""
    return sorted(
        ((l and l.tag, r and r.tag) for l, r in batch.output.rows),  # noqa: E741 - left, right
        key=str,
    )
