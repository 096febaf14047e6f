"""When a silent side's event time follows the clock, and how far: `idle_after`.

Spark's watermark is the smaller of the two sides', so one silent topic keeps every unmatched row of
the other back. With `idle_after` a side that long silent is taken to have reached

    the clock - idle_after - watermark_delay

and no row is lost that comes in order: one whose event time is at most idle_after + watermark_delay
behind the moment at which it arrives in the topic. For "the clock" here is a moment before which
everything that stood in the topic has been read (BrokerWatch): whatever is yet to be read arrived
after it. A topic with a backlog is therefore never idle, however old its event times are.

The decision is pure; what moves the watermark is handed in.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

import structlog

from job.event_time.watermark import event_time_of
from job.instants import to_epoch_ms
from job.join_spec.durations import milliseconds
from job.join_spec.expressions import SIDES, Side
from job.plan.plan import JoinPlan, SidePlan
from job.query.stats import QueryStats

# Coarser than this it would be felt in `idle_after`; the brokers are asked less often still.
LOOK_SECONDS = 1.0

_log = structlog.get_logger()


@dataclass(frozen=True)
class SideTime:
    """One side in this run of the query. All times are milliseconds since 1970."""

    delay_ms: int
    idle_after_ms: int | None
    heard_at_ms: int
    """When records were last seen to have been read; at first, when the run began."""
    newest_ms: int | None = None
    """Event time of the side by the rule in event_time/watermark.py."""
    all_read_before_ms: int | None = None
    """Whatever arrived in the topic before this moment has been read; None: not known."""

    @property
    def is_idle(self) -> bool:
        return (
            self.idle_after_ms is not None
            and self.all_read_before_ms is not None
            and self.all_read_before_ms - self.heard_at_ms >= self.idle_after_ms
        )

    @property
    def watermark_ms(self) -> int | None:
        """How far this side lets event time go; None: no further than it is."""
        own = None if self.newest_ms is None else self.newest_ms - self.delay_ms
        if not self.is_idle:
            return own
        assert self.all_read_before_ms is not None
        assert self.idle_after_ms is not None
        by_the_clock = self.all_read_before_ms - self.idle_after_ms - self.delay_ms
        return by_the_clock if own is None else max(own, by_the_clock)


def watermark_ms(sides: Mapping[Side, SideTime]) -> int | None:
    """What the query's watermark may be raised to; None where Spark needs no help.

    It may be lower than the watermark is: after a restart Spark knows more than this run has seen.
    """
    if not any(side.is_idle for side in sides.values()):
        return None
    of_sides = [side.watermark_ms for side in sides.values()]
    return None if None in of_sides else min(own for own in of_sides if own is not None)


class Topics(Protocol):
    def all_read_before(self, side: Side) -> datetime | None:
        """A moment before which all that stood in the side's topic has been read."""


class IdleSides:
    """Looks after the sides while a query runs."""

    def __init__(self, plan: JoinPlan, stats: QueryStats, topics: Topics) -> None:
        self._plan = plan
        self._stats = stats
        self._topics = topics
        self._idle: dict[Side, bool] = {}

    @property
    def idle(self) -> Mapping[Side, bool]:
        """Of the sides with `idle_after`, while the query runs."""
        return self._idle

    @contextmanager
    def followed(self, advance: Callable[[int], None]) -> Iterator[None]:
        """Inside of it `advance` is called, on another thread, with watermarks to rise to."""
        if all(self._plan.side(side).idle_after is None for side in SIDES):
            yield
            return
        ended = threading.Event()
        follow = threading.Thread(
            target=self._follow, args=(advance, ended), name="idle-sides", daemon=True
        )
        follow.start()
        try:
            yield
        finally:
            ended.set()
            self._idle = {}

    def _follow(self, advance: Callable[[int], None], ended: threading.Event) -> None:
        run = Run(self._plan, datetime.now(UTC))
        failure: str | None = None
        while not ended.wait(LOOK_SECONDS):
            try:
                sides = run.look(self._stats, self._topics, datetime.now(UTC))
                self._tell(sides, ended)
                if (to_ms := watermark_ms(sides)) is not None:
                    advance(to_ms)
            except Exception as error:
                # Without it the join goes on, and waits for the silent side as Spark does.
                reason = str(error).partition("\n")[0]
                if reason != failure and not ended.is_set():
                    _log.exception("idle_sides_left_alone", reason=reason)
                failure = reason

    def _tell(self, sides: Mapping[Side, SideTime], ended: threading.Event) -> None:
        idle = {s: time.is_idle for s, time in sides.items() if time.idle_after_ms is not None}
        for side, is_idle in idle.items():
            if is_idle != self._idle.get(side, False):
                _log.info("side_idle" if is_idle else "side_awake", side=side)
        if not ended.is_set():
            self._idle = idle


class Run:
    """What one run of the query has shown of its sides so far."""

    def __init__(self, plan: JoinPlan, now: datetime) -> None:
        self._read: Mapping[Side, Mapping[int, int]] | None = None
        self._sides = {side: _beginning(plan.side(side), now) for side in SIDES}

    def look(self, stats: QueryStats, topics: Topics, now: datetime) -> Mapping[Side, SideTime]:
        # Asked in this order: a batch that ends in between makes a side seem less silent, not more.
        all_read = {side: topics.all_read_before(side) for side in SIDES}
        read = stats.offsets
        partitions = stats.partitions
        for side, time in self._sides.items():
            heard = read is not None and (self._read is None or read[side] != self._read[side])
            self._sides[side] = replace(
                time,
                heard_at_ms=to_epoch_ms(now) if heard else time.heard_at_ms,
                newest_ms=event_time_of(partitions, side).ms,
                all_read_before_ms=None if (at := all_read[side]) is None else to_epoch_ms(at),
            )
        self._read = read
        return self._sides


def _beginning(side: SidePlan, now: datetime) -> SideTime:
    idle_after = side.idle_after
    return SideTime(
        delay_ms=milliseconds(side.watermark_delay),
        idle_after_ms=None if idle_after is None else milliseconds(idle_after),
        heard_at_ms=to_epoch_ms(now),
    )
