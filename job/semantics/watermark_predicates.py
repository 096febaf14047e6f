"""Bounds of the state that can be evicted. Ports StreamingSymmetricHashJoinHelper and
StreamingJoinHelper.

Three cases for each side, as in the class comment of StreamingSymmetricHashJoinExec:

1. A join key carries the watermark (of either side): a predicate on the key. Both sides evict rows
   with `key <= watermark`.
2. The ON condition bounds the event time of this side by that of the other: a predicate on the
   value. With `right < left + 8 minutes`, and no later right rows at or before the watermark, left
   rows at or before `watermark - 8 minutes` cannot match any more.
3. Neither: the state of this side is never evicted.
"""

from dataclasses import dataclass
from typing import Literal

from job.semantics.rows import SIDES, Side


@dataclass(frozen=True)
class WatermarkPredicate:
    """JoinStateWatermarkPredicate: state with `key or value <= watermark` can be evicted."""

    on: Literal["key", "value"]
    watermark_ms: int
    previous_ms: int | None = None
    """Earlier batches have evicted all rows up to this time; format 4 starts its scan here."""

    def __str__(self) -> str:
        return f"{self.on} predicate: <= {self.watermark_ms * 1000}"


@dataclass(frozen=True)
class WatermarkPredicates:
    """JoinStateWatermarkPredicates."""

    left: WatermarkPredicate | None = None
    right: WatermarkPredicate | None = None

    def of(self, side: Side) -> WatermarkPredicate | None:
        return self.left if side == "left" else self.right

    @property
    def any_defined(self) -> bool:
        return self.left is not None or self.right is not None


@dataclass(frozen=True)
class JoinCondition:
    """The part of the ON clause that bounds the state: the key, or
    left - before <= right <= left + after (event times). The plan hides all other comparisons from
    Spark."""

    has_time_in_key: bool = False
    """Both sides have their event time, or the end of its window, in the key."""
    before_ms: int | None = None
    after_ms: int | None = None


def state_watermark_predicates(
    condition: JoinCondition, *, eviction_ms: int, late_ms: int
) -> WatermarkPredicates:
    """getStateWatermarkPredicates for one micro-batch and its two watermarks."""
    predicates = {
        side: _one_side(condition, side, eviction_ms=eviction_ms, late_ms=late_ms) for side in SIDES
    }
    return WatermarkPredicates(**predicates)


def _one_side(
    condition: JoinCondition, side: Side, *, eviction_ms: int, late_ms: int
) -> WatermarkPredicate | None:
    """getOneSideStateWatermarkPredicate."""
    if condition.has_time_in_key:
        return WatermarkPredicate("key", eviction_ms, late_ms)
    watermark = state_value_watermark(condition, side, eviction_ms)
    if watermark is None:
        return None
    # Rows between the late-row watermark and a bound above it are still accepted, and the next scan
    # must find them.
    previous = state_value_watermark(condition, side, late_ms)
    reached = previous is not None and previous <= late_ms
    return WatermarkPredicate("value", watermark, previous if reached else None)


def state_value_watermark(condition: JoinCondition, side: Side, watermark_ms: int) -> int | None:
    """getStateValueWatermark: the event time up to which rows of `side` cannot match any more.

    Eviction includes this time. A row at watermark - bound can still match, so it is one
    millisecond less.
    """
    bound_ms = condition.after_ms if side == "left" else condition.before_ms
    return None if bound_ms is None else watermark_ms - bound_ms - 1
