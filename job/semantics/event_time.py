"""Event times of the partitions, and the watermarks of each batch.

The watermark follows the rule of job/event_time/watermark.py, never decreases, and takes effect
with the next batch. A batch uses two watermarks (SPARK-40925): it drops late rows by the watermark
of the previous batch, and evicts state by its own.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from job.event_time.partitions import Partition, Partitions
from job.event_time.watermark import side_event_time, watermark_ms
from job.semantics.rows import MICROS_PER_MS, SIDES, Side

# The first watermark is the epoch, not "none": a row at or before 1970-01-01T00:00:00Z is late from
# the first batch on.
INITIAL_WATERMARK_MS = 0


@dataclass(frozen=True)
class BatchWatermarks:
    """The two watermarks of one micro-batch, in milliseconds since the epoch."""

    late: int = INITIAL_WATERMARK_MS
    """eventTimeWatermarkForLateEvents: the eviction watermark of the previous batch."""
    eviction: int = INITIAL_WATERMARK_MS
    """eventTimeWatermarkForEviction: `eventTime.watermark` in Spark's progress."""

    def next(self, watermark_ms: int) -> "BatchWatermarks":
        return BatchWatermarks(late=self.eviction, eviction=watermark_ms)


@dataclass(frozen=True)
class HeldBack:
    """A partition whose backlog holds back the watermark."""

    side: Side
    partition: int
    newest_ms: int | None
    """Newest event time that was read, in ms since 1970. None: not known."""


@dataclass(frozen=True)
class SideRead:
    """Event times and backlogs of one side in a batch."""

    event_times_us: Iterable[tuple[int, int | None]] = ()
    """Partition and event time of each readable record, including late ones. None: the record does
    not advance the watermark."""
    backlog: Collection[int] = ()
    """Partitions with records that existed when the batch was planned and are unread."""


@dataclass
class WatermarkTracker:
    """State of event time in the driver between two batches."""

    delays_ms: Mapping[Side, int]
    """Of the sides that the watermark follows."""
    watermark_ms: int = INITIAL_WATERMARK_MS
    _newest_ms: dict[Side, dict[int, int]] = field(
        default_factory=lambda: {side: {} for side in SIDES}
    )
    _backlog: dict[Side, Collection[int]] = field(default_factory=lambda: dict.fromkeys(SIDES, ()))

    def observe(self, side: Side, read: SideRead) -> None:
        """Record what a batch has read of `side`. Event times are floored to the millisecond."""
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
        """Partition of the slower side whose backlog lowers the watermark. None: no partition."""
        side = min(self.delays_ms, key=lambda each: _or_lowest(self.side_watermark_ms(each)))
        slowest = side_event_time(self._partitions.side(side)).held_back_by
        if slowest is None:
            return None
        times = self._newest_ms[side]
        newest = times.get(slowest)
        is_newest = newest is not None and newest == max(times.values())
        return None if is_newest else HeldBack(side, slowest, newest)

    def side_watermark_ms(self, side: Side) -> int | None:
        """Upper bound of the side for the watermark, in ms. None: the present watermark."""
        time = side_event_time(self._partitions.side(side)).ms
        return None if time is None else time - self.delays_ms[side]

    def forget_sides(self) -> None:
        """Restart without event times: Spark's checkpoint contains only the watermark.

        The watermark does not advance until rows of both sides, and of each partition with a
        backlog, have been read again.
        """
        for side in SIDES:
            self._newest_ms[side].clear()
            self._backlog[side] = ()

    @property
    def _partitions(self) -> Partitions:
        return Partitions(self._side("left"), self._side("right"))

    def _side(self, side: Side) -> dict[int, Partition]:
        """One unread record per backlog: the number of unread records does not matter."""
        newest, backlog = self._newest_ms[side], self._backlog[side]
        return {
            number: Partition(0, int(number in backlog), newest.get(number))
            for number in newest.keys() | set(backlog)
        }


def _or_lowest(time_ms: int | None) -> float:
    return -math.inf if time_ms is None else time_ms


def is_behind(event_time_us: int | None, watermark_ms: int) -> bool:
    """watermarkExpression: event time <= watermark; False for a null event time."""
    return event_time_us is not None and event_time_us <= watermark_ms * MICROS_PER_MS
