"""How event time moves: the times of the partitions, the watermark, and which batch uses which.

The watermark follows the rule of job/event_time/watermark.py, never goes back, and takes effect
with the next batch. Within that batch two watermarks are in use (SPARK-40925): late rows are
dropped by the watermark of the batch before, state is evicted by the batch's own.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from job.event_time.partitions import Partition, Partitions
from job.event_time.watermark import side_event_time, watermark_ms
from job.semantics.rows import MICROS_PER_MS, SIDES, Side

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


@dataclass(frozen=True)
class HeldBack:
    """The partition whose backlog holds the watermark back."""

    side: Side
    partition: int
    newest_ms: int | None
    """Its newest event time read so far, in ms since 1970; None: not known."""


@dataclass(frozen=True)
class SideRead:
    """What a batch has read of one side, as far as it moves the watermark."""

    event_times_us: Iterable[tuple[int, int | None]] = ()
    """Partition and event time of each readable record, late ones and all. A record without an
    event time moves nothing."""
    backlog: Collection[int] = ()
    """The partitions with records that were there when the batch was planned and are not read."""


@dataclass
class WatermarkTracker:
    """What the driver remembers of event time between two batches."""

    delays_ms: Mapping[Side, int]
    watermark_ms: int = INITIAL_WATERMARK_MS
    _newest_ms: dict[Side, dict[int, int]] = field(
        default_factory=lambda: {side: {} for side in SIDES}
    )
    _backlog: dict[Side, Collection[int]] = field(default_factory=lambda: dict.fromkeys(SIDES, ()))

    def observe(self, side: Side, read: SideRead) -> None:
        """Takes in what a batch has read of `side`. Event times are floored to the millisecond."""
        newest = self._newest_ms[side]
        for partition, at_us in read.event_times_us:
            if at_us is not None:
                at_ms = at_us // MICROS_PER_MS
                newest[partition] = max(at_ms, newest.get(partition, at_ms))
        self._backlog[side] = read.backlog

    def advance(self) -> int:
        """The watermark of the next batch, in ms since 1970."""
        allowed = watermark_ms(self._partitions, self.delays_ms)
        if allowed is not None:
            self.watermark_ms = max(self.watermark_ms, allowed)
        return self.watermark_ms

    @property
    def held_back_by(self) -> HeldBack | None:
        """The partition without whose backlog the watermark could be higher; None: there is none.

        It is of the side that decides, the lower one.
        """
        side = min(SIDES, key=lambda each: _or_lowest(self.side_watermark_ms(each)))
        slowest = side_event_time(self._partitions.side(side)).held_back_by
        if slowest is None:
            return None
        times = self._newest_ms[side]
        newest = times.get(slowest)
        is_newest = newest is not None and newest == max(times.values())
        return None if is_newest else HeldBack(side, slowest, newest)

    def side_watermark_ms(self, side: Side) -> int | None:
        """How far the side lets the watermark go, in ms since 1970; None: no further than it is."""
        time = side_event_time(self._partitions.side(side)).ms
        return None if time is None else time - self.delays_ms[side]

    def forget_sides(self) -> None:
        """A restart that finds no event times: Spark's checkpoint holds the watermark alone.

        The watermark then stands still until rows of both sides have been read again, and of each
        partition with a backlog.
        """
        for side in SIDES:
            self._newest_ms[side].clear()
            self._backlog[side] = ()

    @property
    def _partitions(self) -> Partitions:
        return Partitions(self._side("left"), self._side("right"))

    def _side(self, side: Side) -> dict[int, Partition]:
        """As if one record of each backlog were not read: how many there are changes nothing."""
        newest, backlog = self._newest_ms[side], self._backlog[side]
        return {
            number: Partition(0, int(number in backlog), newest.get(number))
            for number in newest.keys() | set(backlog)
        }


def _or_lowest(time_ms: int | None) -> float:
    return -math.inf if time_ms is None else time_ms


def is_behind(event_time_us: int | None, watermark_ms: int) -> bool:
    """watermarkExpression: event time <= watermark. A null event time is behind nothing."""
    return event_time_us is not None and event_time_us <= watermark_ms * MICROS_PER_MS
