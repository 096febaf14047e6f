"""How event time moves: per-side watermarks, the global one, and which batch uses which.

A side's watermark is the newest event time it has shown, minus its delay. The query's watermark
is chosen among them (the lowest by default), never goes back, and takes effect with the next
batch. Within that batch two watermarks are at work (SPARK-40925): late rows are dropped by the
watermark of the batch before, state is evicted by the batch's own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from job.semantics.rows import MICROS_PER_MS, SIDES, Side

Policy = Literal["min", "max"]

# Before any row is seen the watermark is the epoch, not "none": a row at or before
# 1970-01-01T00:00:00Z is late from the first batch on.
INITIAL_WATERMARK_MS = 0


@dataclass(frozen=True)
class BatchWatermarks:
    """The two watermarks of one micro-batch, in milliseconds since the epoch."""

    late: int = INITIAL_WATERMARK_MS
    """eventTimeWatermarkForLateEvents: the eviction watermark of the batch before."""
    eviction: int = INITIAL_WATERMARK_MS
    """eventTimeWatermarkForEviction: what Spark's progress calls `eventTime.watermark`."""

    def next(self, watermark_ms: int) -> "BatchWatermarks":
        return BatchWatermarks(late=self.eviction, eviction=watermark_ms)


@dataclass
class WatermarkTracker:
    """WatermarkTracker: what the driver remembers of event time between two batches."""

    delays_ms: Mapping[Side, int]
    policy: Policy = "min"
    watermark_ms: int = INITIAL_WATERMARK_MS
    _side_watermarks_ms: dict[Side, int] = field(default_factory=dict)

    def observe(self, side: Side, event_times_us: Iterable[int | None]) -> None:
        """Takes in the event times of one side's rows of a batch, late ones and all.

        A null event time counts as the epoch: Spark reads the null field as 0.
        """
        newest_us = max((at or 0 for at in event_times_us), default=None)
        if newest_us is None:
            return
        # Floored to the millisecond before the delay is taken off (EventTimeWatermarkExec).
        seen_ms = newest_us // MICROS_PER_MS - self.delays_ms[side]
        self._side_watermarks_ms[side] = max(seen_ms, self._side_watermarks_ms.get(side, seen_ms))

    def advance(self) -> int:
        """The watermark of the next batch. A side that has shown nothing yet holds at the epoch."""
        per_side = [self._side_watermarks_ms.get(side, INITIAL_WATERMARK_MS) for side in SIDES]
        chosen = min(per_side) if self.policy == "min" else max(per_side)
        self.watermark_ms = max(self.watermark_ms, chosen)
        return self.watermark_ms

    def side_watermark_ms(self, side: Side) -> int | None:
        return self._side_watermarks_ms.get(side)

    def forget_sides(self) -> None:
        """A restart: the commit log holds the global watermark, not what each side had shown.

        So after a restart the watermark stands still until every side has sent rows again.
        """
        self._side_watermarks_ms.clear()


def is_behind(event_time_us: int | None, watermark_ms: int) -> bool:
    """watermarkExpression: event time <= watermark. A null event time is behind nothing."""
    return event_time_us is not None and event_time_us <= watermark_ms * MICROS_PER_MS
