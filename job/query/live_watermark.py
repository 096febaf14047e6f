"""Advances the watermark while an interval of the real-time engine runs.

Twice a second this thread looks at the ends of both topics and at what the tasks have read. The
watermark follows from the event times of one look once the next one shows what was read up to the
ends of the first: so each record that was in a topic at the first look counts as read or unread by
the rule of event_time/watermark.py, and a row on its way from a source task to the join has half a
second to arrive before the watermark of the rows behind it.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from threading import Event

import structlog

from job.event_time.partitions import Offsets, PartitionRead, Reads
from job.event_time.watermark import watermark_ms
from job.join.live_watermark import LiveWatermark
from job.query.control_loop import ControlLoop
from job.query.repeated import repeated
from job.query.stats import QueryStats
from job.spec.sides import SIDES, Side

LOOK_SECONDS = 0.5

_log = structlog.get_logger()


@dataclass(frozen=True)
class Look:
    ends: Offsets
    """Ends of the partitions, requested before `read`."""
    read: Reads


class WatermarkLooks:
    def __init__(
        self,
        loop: ControlLoop,
        stats: QueryStats,
        live: LiveWatermark,
        ends: Callable[[], Offsets],
    ) -> None:
        """`ends`: the ends of both topics, behind the last committed record."""
        self._loop = loop
        self._stats = stats
        self._live = live
        self._ends = ends
        self._before: Look | None = None

    def active(self) -> AbstractContextManager[None]:
        """Context with a look every LOOK_SECONDS."""
        return repeated(
            self.look, every_seconds=LOOK_SECONDS, name="watermark", failed=_not_advanced
        )

    def look(self, ended: Event) -> None:
        before, state = self._before, self._loop.state
        now = self._before = Look(self._ends(), self._live.read())
        if ended.is_set():
            return
        live = self._stats.live_partitions = state.partitions.with_read(now.read, now.ends)
        self._loop.looked(live)
        if before is None:
            return
        read = read_at_both(before.read, now.read)
        partitions = state.partitions.with_read(read, before.ends)
        ends = self._stats.empty_tails.cut_off(partitions.next_offsets, before.ends)
        partitions = self._stats.settled_partitions = state.partitions.with_read(read, ends)
        to_ms = watermark_ms(partitions, state.run.delay_ms, state.run.waits_for)
        if to_ms is not None:
            self._loop.raise_watermark(to_ms)


def _not_advanced(reason: str) -> None:
    """The query continues; its watermark advances at the end of the interval."""
    _log.warning("watermark_not_advanced", reason=reason)


def read_at_both(before: Reads, now: Reads) -> Mapping[Side, Mapping[int, PartitionRead]]:
    """The event times of the look before, and the offsets of this one."""
    return {
        side: {
            number: PartitionRead(
                each.next_offset,
                before[side][number].newest_ms if number in before[side] else None,
            )
            for number, each in now[side].items()
        }
        for side in SIDES
    }
