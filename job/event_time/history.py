"""History of the watermark: a line a minute, more after a start, kept for seven days. Pure.

The lines show which watermark a row met when the query read it, and the pace of the watermark.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from statistics import median_low

from pydantic import BaseModel, ConfigDict

from job.document import Document
from job.spec.sides import Side

LINE_EVERY = timedelta(minutes=1)
LINE_AFTER_START = timedelta(seconds=5)
START = timedelta(minutes=2)
"""After a start the watermark jumps, and many rows are late."""
KEPT = timedelta(days=7)
_HOUR_MS = 3_600_000
_PACE_MS = 180_000
"""Time over which the pace is measured, up to now."""
_JUMP = 10
"""How many times faster than the usual step of a line, or than the clock, a jump is."""
_POINTS_MIN = 2
_STANDING_MS_MIN, _STANDING_BATCHES = 10_000, 3
"""A watermark stands still if it has not advanced for this time, and for the duration of so many
batches."""


class WatermarkLine(BaseModel):
    """Times are milliseconds since 1970."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    at_ms: int
    """Clock of the job."""
    watermark_ms: int | None
    """Watermark of the last batch. None: there was none."""
    left_ms: int | None = None
    """Event time of the side minus its watermark_delay. None: unknown."""
    right_ms: int | None = None
    left_offsets: dict[int, int] = {}
    """Next offset to read of each partition, by its number."""
    right_offsets: dict[int, int] = {}

    def offsets(self, side: Side) -> Mapping[int, int]:
        return self.left_offsets if side == "left" else self.right_offsets


class WatermarkHour(Document):
    """The lines of one hour. Its file has the number of the hour since 1970 in its name."""

    file_name = "watermarks"
    if_damaged = "Delete the file: only `explain` reads it"
    lines: list[WatermarkLine]


def hour_of(at_ms: int) -> int:
    return at_ms // _HOUR_MS


@dataclass(frozen=True)
class Bounds:
    """Watermarks between which one lies, in milliseconds since 1970."""

    least_ms: int
    most_ms: int


@dataclass(frozen=True)
class Pace:
    """How fast the watermark advances."""

    now_ms: int
    watermark_ms: int
    rate: float
    """Event time per clock time."""

    def clock_ms(self, event_time_ms: int) -> int | None:
        """Clock when the watermark reaches a later event time. None: it does not advance."""
        ahead = event_time_ms - self.watermark_ms
        return None if self.rate <= 0 else self.now_ms + round(ahead / self.rate)


def watermarks_at_read(
    lines: Sequence[WatermarkLine], side: Side, partition: int, offset: int
) -> Bounds | None:
    """Watermarks while the query read the record. None: the lines do not cover this time, or no
    watermark before it.

    `lines`: oldest first. `partition`: its number among those of the side.
    """
    least_ms = None
    for before, after in pairwise(lines):
        # The first line of a run has none: the query continues with that of the run before.
        least_ms = least_ms if before.watermark_ms is None else before.watermark_ms
        first, last = (line.offsets(side).get(partition) for line in (before, after))
        if first is not None and last is not None and first <= offset < last:
            if least_ms is None or after.watermark_ms is None:
                return None
            return Bounds(least_ms, after.watermark_ms)
    return None


def stands(batches: Sequence[tuple[int, int, int | None]], now_ms: int) -> bool:
    """Whether the watermark has not advanced for some time. `batches`: start, duration and
    watermark of the last batches, oldest first."""
    if not batches:
        return False
    present_ms = batches[-1][2]
    of_present = [batch[2] == present_ms for batch in reversed(batches)]
    count = of_present.index(False) if False in of_present else len(batches)
    usual = median_low([duration for _, duration, _ in batches])
    stands_ms = now_ms - batches[-count][0]
    return stands_ms > max(_STANDING_MS_MIN, _STANDING_BATCHES * usual)


def pace(lines: Sequence[WatermarkLine], now_ms: int, watermark_ms: int | None) -> Pace | None:
    """Pace of the last three minutes, since the last start of a job and the last jump. None: the
    history is too short."""
    recent: list[tuple[int, int]] = []
    for line in lines:
        if line.watermark_ms is None:
            recent.clear()  # The job has started: nothing was read for some time.
        elif now_ms - _PACE_MS <= line.at_ms < now_ms:
            recent.append((line.at_ms, line.watermark_ms))
    if watermark_ms is None or not recent:
        return None
    points = _since_last_jump([*recent, (now_ms, watermark_ms)])
    if len(points) < _POINTS_MIN:
        return None
    first_at, first_watermark = points[0]
    return Pace(now_ms, watermark_ms, (watermark_ms - first_watermark) / (now_ms - first_at))


def _since_last_jump(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """`points`: clock and watermark. A step is a jump if it is much faster than the others and than
    the clock, as at the end of a replay. A backlog that is read steadily has no jump."""
    rates = [(to - at) / (after - before) for (before, at), (after, to) in pairwise(points)]
    usual = max(1.0, median_low([*rates, 1.0]))
    jumps = [index for index, rate in enumerate(rates) if rate > _JUMP * usual]
    return points[jumps[-1] + 1 :] if jumps else points
