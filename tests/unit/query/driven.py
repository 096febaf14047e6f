"""A run of the driver, and what Spark would make of its decisions."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from job.event_time.interval import Interval
from job.event_time.partitions import BatchRead, Offsets, Partitions
from job.protocol.status import Phase
from job.query.driver import (
    BatchEnded,
    BatchPlanned,
    EndRun,
    EndsRequested,
    Event,
    IntervalPlanned,
    LimitReading,
    RaiseWatermark,
    ReadUpTo,
    RecordInterval,
    ReleaseReading,
    Run,
    SetIntervalDuration,
    State,
    decide,
)
from job.spec.sides import SIDES, Side

DELAY_MS: Mapping[Side, int] = {"left": 10_000, "right": 20_000}
NOW_MS = 1_700_000_000_000
Times = Mapping[Side, Mapping[int, int]]


def ends(left: int, right: int) -> Offsets:
    return {"left": {0: left}, "right": {0: right}}


def both(offset: int) -> Offsets:
    return ends(offset, offset)


class Driven:
    def __init__(self, phase: Phase | None = None, replay: Any = None, **fields: Any) -> None:
        """`fields`: of the first state."""
        loading = fields.get("loading")
        delays = {s: ms for s, ms in DELAY_MS.items() if not loading or s != loading.table}
        run = Run(delays, phase, replay, {"left": 1, "right": 1})
        fields = {"partitions": Partitions.none(), "planned_at": 0.0, **fields}
        self.state = State(run, **fields)
        self.now = 0.0
        self.watermark = 0
        self.watermarks: list[int] = []
        self.limited: set[Side] = set(SIDES)
        self.recorded: list[Interval] = []
        self.durations: list[timedelta] = []
        self.next_phases: list[Phase] = []
        self._batch_id = 8

    def after(self, event: Event) -> Mapping[int, int] | None:
        """Decide, and return the limit of the side."""
        self.state, actions = decide(self.state, event)
        limit = None
        for action in actions:
            match action:
                case ReadUpTo():
                    limit = action.ends
                case RaiseWatermark():
                    self.watermarks.append(action.to_ms)
                    self.watermark = max(self.watermark, action.to_ms)
                case LimitReading():
                    self.limited = set(SIDES)
                case ReleaseReading():
                    self.limited.discard(action.side)
                case RecordInterval():
                    self.recorded.append(action.interval)
                case SetIntervalDuration():
                    self.durations.append(action.duration)
                case EndRun():
                    self.next_phases.append(action.next_phase)
        return limit

    def limit(self, side: Side, start: int, end: int) -> int | None:
        """End offset up to which Spark may read the only partition of a side."""
        limit = self.after(EndsRequested(side, {0: start}, {0: end}))
        return None if limit is None else limit[0]

    def plan(self, starts: Offsets, latest: Offsets) -> None:
        self.after(BatchPlanned(self.now, starts, latest))

    def batch(self, read: Offsets, latest: Offsets, times: Times) -> None:
        newest = {side: max(times[side].values()) for side in SIDES if times[side]}
        self.after(BatchEnded(self.now, BatchRead(read, latest, times, newest)))

    def timed_batch(self, end: int, seconds: float, unread: int = 0) -> None:
        """A batch that reads 10 records of each topic."""
        self.plan(both(end - 10), both(end + unread))
        self.now += seconds
        self.batch(both(end), both(end + unread), both(NOW_MS))

    def interval(self, starts: Offsets, latest: Offsets) -> None:
        read = BatchRead(starts, latest, both(NOW_MS), dict.fromkeys(SIDES, NOW_MS))
        self.after(IntervalPlanned(self.now, self._batch_id, read, self.watermark))
