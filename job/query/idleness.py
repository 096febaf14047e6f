"""Watermark of an idle side: `idle_after`.

Spark's watermark is the smaller one of both sides, so one idle topic delays every unmatched row of
the other side. A side that has received no record for `idle_after` gets the watermark

    clock - idle_after - watermark_delay

No row that arrives in order is late: its event time is at most idle_after + watermark_delay before
its arrival in the topic. "Clock" is a time before which everything in the topic was read
(BrokerWatch), so each unread record arrived later. A topic with a backlog is therefore never idle,
however old its event times are.

The rule is pure; the caller passes the function that raises the watermark.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Event
from typing import Protocol

import structlog

from job.event_time.watermark import event_time_of
from job.instants import to_epoch_ms
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.query.repeated import repeated
from job.query.stats import QueryStats
from job.spec.durations import milliseconds
from job.spec.sides import SIDES, Side

# Short compared with usual values of `idle_after`. The brokers are polled less often.
POLL_SECONDS = 1.0

_log = structlog.get_logger()


@dataclass(frozen=True)
class SideTime:
    """One side in this run of the query. All times are milliseconds since 1970."""

    delay_ms: int
    idle_after_ms: int | None
    last_record_at_ms: int
    """Time at which new records were last seen. Initially the start of the run."""
    newest_ms: int | None = None
    """Event time of the side by the rule in event_time/watermark.py."""
    all_read_before_ms: int | None = None
    """All records that arrived in the topic before this time were read. None: unknown."""

    @property
    def is_idle(self) -> bool:
        return (
            self.idle_after_ms is not None
            and self.all_read_before_ms is not None
            and self.all_read_before_ms - self.last_record_at_ms >= self.idle_after_ms
        )

    @property
    def watermark_ms(self) -> int | None:
        """Watermark of this side. None: unknown, the query's watermark must not advance."""
        by_event_time = None if self.newest_ms is None else self.newest_ms - self.delay_ms
        if not self.is_idle:
            return by_event_time
        assert self.all_read_before_ms is not None
        assert self.idle_after_ms is not None
        by_clock = self.all_read_before_ms - self.idle_after_ms - self.delay_ms
        return by_clock if by_event_time is None else max(by_event_time, by_clock)


def watermark_ms(sides: Mapping[Side, SideTime]) -> int | None:
    """Watermark to which the query's watermark may be raised. None: no side is idle.

    May be lower than the query's watermark, which survives a restart; this run starts without one.
    """
    if not any(side.is_idle for side in sides.values()):
        return None
    watermarks = [side.watermark_ms for side in sides.values()]
    return None if None in watermarks else min(ms for ms in watermarks if ms is not None)


class Topics(Protocol):
    def all_read_before(self, side: Side) -> datetime | None:
        """Time before which everything in the side's topic was read. None: unknown."""


class IdleSides:
    """Raises the watermark for idle sides while a query runs."""

    def __init__(self, plan: JoinPlan, stats: QueryStats, topics: Topics) -> None:
        self._plan = plan
        self._stats = stats
        self._topics = topics
        self._idle: dict[Side, bool] = {}

    @property
    def idle(self) -> Mapping[Side, bool]:
        """Per side with `idle_after`. Empty while the query does not run."""
        return self._idle

    @contextmanager
    def watch(self, raise_watermark: Callable[[int], None]) -> Iterator[None]:
        """Inside the context, another thread calls `raise_watermark` with milliseconds."""
        if all(self._plan.side(side).idle_after is None for side in SIDES):
            yield
            return
        run = RunIdleness(self._plan, datetime.now(UTC))

        def poll(ended: Event) -> None:
            sides = run.update(self._stats, self._topics, datetime.now(UTC))
            self._publish(sides, ended)
            if (to_ms := watermark_ms(sides)) is not None:
                raise_watermark(to_ms)

        try:
            with repeated(poll, every_seconds=POLL_SECONDS, name="idle-sides", failed=_failed):
                yield
        finally:
            self._idle = {}

    def _publish(self, sides: Mapping[Side, SideTime], ended: Event) -> None:
        idle = {s: time.is_idle for s, time in sides.items() if time.idle_after_ms is not None}
        for side, is_idle in idle.items():
            if is_idle != self._idle.get(side, False):
                _log.info("side_idle" if is_idle else "side_active", side=side)
        if not ended.is_set():
            self._idle = idle


def _failed(reason: str) -> None:
    """The query continues with Spark's rule: its watermark waits for the idle side."""
    _log.exception("idleness_failed", reason=reason)


class RunIdleness:
    """Times of both sides in one run of the query."""

    def __init__(self, plan: JoinPlan, now: datetime) -> None:
        self._offsets: Mapping[Side, Mapping[int, int]] | None = None
        self._stream_waits = plan.stream_waits
        self._sides = {side: _side_time(plan.side(side), now) for side in plan.streams}

    def update(self, stats: QueryStats, topics: Topics, now: datetime) -> Mapping[Side, SideTime]:
        # In this order a batch that ends in between makes a side less idle, not more.
        all_read = {side: topics.all_read_before(side) for side in SIDES}
        if self._stream_waits:  # rows of the stream wait for versions of the table
            all_read = dict.fromkeys(SIDES, _earlier(*all_read.values()))
        offsets = stats.read_offsets
        partitions = stats.settled_partitions or stats.partitions
        for side, time in self._sides.items():
            has_new_records = offsets is not None and (
                self._offsets is None or offsets[side] != self._offsets[side]
            )
            self._sides[side] = replace(
                time,
                last_record_at_ms=to_epoch_ms(now) if has_new_records else time.last_record_at_ms,
                newest_ms=event_time_of(partitions, side).ms,
                all_read_before_ms=None if (at := all_read[side]) is None else to_epoch_ms(at),
            )
        self._offsets = offsets
        return self._sides


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return None if one is None or other is None else min(one, other)


def _side_time(side: SidePlan, now: datetime) -> SideTime:
    idle_after = side.idle_after
    return SideTime(
        delay_ms=milliseconds(side.watermark_delay),
        idle_after_ms=None if idle_after is None else milliseconds(idle_after),
        last_record_at_ms=to_epoch_ms(now),
    )
