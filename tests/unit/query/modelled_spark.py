"""Micro-batches of a modelled Spark under a schedule: its logs, crashes, the order of its calls.

The topics have two partitions each. No record is as far as the delay behind an earlier one of its
side, in any partition, so no row may ever be late. With a replay, an old query has read up to a cut
before, and the new query reads a part of it again.
"""

import random
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

from job.event_time.partitions import BatchRead, Offsets, Partitions, RecordedEventTimes
from job.event_time.watermark import watermark_ms
from job.query import driver
from job.query.control_loop import first_state
from job.query.pacing import Pacing
from job.replay.replay import Replay, ReplayPhase
from job.spec.sides import SIDES, Side
from tests.unit.delivery.schedules import ViolationError

DELAY_MS: Mapping[Side, int] = {"left": 3, "right": 5}
PARTITIONS = (0, 1)
RECORDS = 60
_STEPS_MAX = 2_000

PLAN: Any = SimpleNamespace(
    streams=SIDES,
    table_side=None,
    stream_waits=False,
    side=lambda side: SimpleNamespace(
        watermark_delay=timedelta(milliseconds=DELAY_MS[side]), partitions=len(PARTITIONS)
    ),
)

Topics = dict[Side, dict[int, list[int]]]
"""Event times of the records of each partition."""


class _CrashError(Exception):
    pass


class Spark:
    def __init__(self, seed: int, rules: ModuleType = driver, plan: Any = PLAN) -> None:
        self._plan = plan
        self._random = random.Random(seed)
        self._rules = rules
        self._topics: Topics = {side: {n: [] for n in PARTITIONS} for side in SIDES}
        self._newest: dict[Side, int] = dict.fromkeys(SIDES, 10)
        self._planned: dict[int, tuple[Offsets, int]] = {}
        self._committed: dict[int, int] = {}
        self._event_times = RecordedEventTimes()
        self._replay: Replay | None = None
        self._starts: Offsets = {side: dict.fromkeys(PARTITIONS, 0) for side in SIDES}
        if seed % 2:
            self._arrive(RECORDS // 2)
            self._replay = self._cut()
            self._starts = self._replay.starts

    def run(self) -> None:
        """Run until everything is read. Raises ViolationError."""
        while self._count() < RECORDS:
            self._live(self._random.randrange(30))
        for side in SIDES:  # a crash may have lost event times
            for n in PARTITIONS:
                self._topics[side][n].append(self._newest[side])
        self._live(_STEPS_MAX)
        if (read := self._read_up_to()) != self._latest():
            raise ViolationError(f"read up to {read} of {self._latest()}")
        wanted = self.wanted_watermark
        if self._tracked != wanted:
            raise ViolationError(f"the watermark is {self._tracked} instead of {wanted}")

    @property
    def wanted_watermark(self) -> int:
        """Once everything is read."""
        return min(self._newest[side] - DELAY_MS[side] for side in SIDES)

    def _live(self, steps: int) -> None:
        """One run of the query, which crashes after some steps, or ends with nothing to read."""
        self._steps = steps
        self._begin()
        with suppress(_CrashError):
            while self._batch() or self._count() < RECORDS:
                self._step()

    def _step(self) -> None:
        self._steps -= 1
        if self._steps < 0:
            raise _CrashError
        if self._count() < RECORDS and self._random.random() < 0.5:
            self._arrive(self._random.randrange(8))

    def _begin(self) -> None:
        last = max(self._planned, default=-1)
        self._tracked = max(self._watermark(last), self._committed.get(last, 0))
        self._called = set(SIDES)
        read = self._read_up_to() if self._committed else None
        checkpoint: Any = SimpleNamespace(
            partitions=Partitions.restored(self._event_times, read), offsets=read
        )
        self._state = first_state(self._plan, checkpoint, None, self._replay, Pacing())

    def _decide(self, event: Any) -> Any:
        self._state, actions = self._rules.decide(self._state, event)
        rules, ends = self._rules, None
        for action in actions:
            match action:
                case rules.ReadUpTo():
                    ends = action.ends
                case rules.RaiseWatermark():
                    self._tracked = max(self._tracked, action.to_ms)
                case rules.LimitReading():
                    self._called = set(SIDES)
                case rules.ReleaseReading():
                    self._called.discard(action.side)
        return ends

    def _batch(self) -> bool:
        """Whether Spark has run a batch."""
        batch_id = max(self._committed, default=-1) + 1
        latest = self._latest()
        if batch_id not in self._planned:
            self._step()
            starts = self._read_up_to()
            ends = {side: self._ends(side, starts[side], latest[side]) for side in SIDES}
            has_advanced = self._tracked > self._watermark(batch_id - 1)
            if ends == starts and not (has_advanced and self._state.has_run):
                return False
            self._planned[batch_id] = ends, self._tracked
        self._step()
        self._check(batch_id)
        read = self._batch_read(batch_id, latest)
        self._step()
        self._decide(self._rules.BatchEnded(0.0, read))
        self._step()
        self._committed[batch_id] = self._tracked
        if self._random.random() < 0.5 and not self._state.is_replaying:
            self._event_times = self._state.partitions.recorded()
        return True

    def _ends(
        self, side: Side, starts: Mapping[int, int], latest: Mapping[int, int]
    ) -> dict[int, int]:
        limit = None
        if side in self._called:
            limit = self._decide(self._rules.EndsRequested(side, starts, latest))
        ends = dict(latest if limit is None else limit)
        most = self._random.choice([1, 4, RECORDS])
        found = {n: max(starts[n], min(ends[n], starts[n] + most)) for n in PARTITIONS}
        unread = self._random.choice([None, *PARTITIONS])
        if unread is not None and any(found[n] > starts[n] for n in PARTITIONS if n != unread):
            found[unread] = starts[unread]
        return found

    def _check(self, batch_id: int) -> None:
        """Raises ViolationError if the batch is none that the job may run."""
        ends, watermark = self._planned[batch_id]
        starts, late = self._read_up_to(), self._watermark(batch_id - 1)
        replay = self._replay
        if replay is not None and (phase := replay.phase(starts)) is not ReplayPhase.OVER:
            cut = replay.reading_ends if phase is ReplayPhase.READING else replay.ends
            if any(ends[side][n] > cut[side][n] for side in SIDES for n in PARTITIONS):
                raise ViolationError("the replay reads past the cut")
            wanted = 0 if phase is ReplayPhase.READING else replay.watermark_ms
            if wanted != watermark:
                raise ViolationError(f"watermark {watermark} instead of {wanted} in the replay")
            late = 0
        for side in SIDES:
            for n in PARTITIONS:
                times = self._topics[side][n][starts[side][n] : ends[side][n]]
                if any(time <= late for time in times):
                    raise ViolationError(f"a row is late: {times} at watermark {late}")

    def _batch_read(self, batch_id: int, latest: Offsets) -> BatchRead:
        ends, starts = self._planned[batch_id][0], self._read_up_to()
        times: dict[Side, dict[int, int]] = {side: {} for side in SIDES}
        for side in SIDES:
            for n in PARTITIONS:
                if rows := self._topics[side][n][starts[side][n] : ends[side][n]]:
                    times[side][n] = max(rows)
        newest = {side: max(found.values()) for side, found in times.items() if found}
        return BatchRead(ends, latest, times, newest)

    def _arrive(self, count: int) -> None:
        for _ in range(count):
            side = self._random.choice(SIDES)
            time = self._newest[side] + self._random.randrange(1 - DELAY_MS[side], 4)
            self._newest[side] = max(self._newest[side], time)
            self._topics[side][self._random.choice(PARTITIONS)].append(time)

    def _cut(self) -> Replay:
        """An old query has read everything, and its last batch had a watermark that was valid
        then."""
        latest = self._latest()
        starts: dict[Side, dict[int, int]] = {
            side: {n: self._random.randrange(end + 1) for n, end in latest[side].items()}
            for side in SIDES
        }
        times = {
            side: {n: max(times) for n, times in self._topics[side].items() if times}
            for side in SIDES
        }
        read = BatchRead(latest, latest, times, {})
        partitions = Partitions.none().after_batch(read)
        watermark = max(0, watermark_ms(partitions, DELAY_MS) or 0)
        return Replay(
            old_checkpoint="file:/old",
            old_query_id="4711",
            old_batch_id=7,
            starts=starts,
            ends=latest,
            watermark_ms=self._random.randrange(watermark + 1),
            next_watermark_ms=watermark,
            state_partitions=3,
            event_times=partitions.recorded(),
        )

    def _latest(self) -> dict[Side, dict[int, int]]:
        return {side: {n: len(self._topics[side][n]) for n in PARTITIONS} for side in SIDES}

    def _read_up_to(self) -> Offsets:
        last = max(self._committed, default=-1)
        return self._planned[last][0] if last >= 0 else self._starts

    def _watermark(self, batch_id: int) -> int:
        return self._planned[batch_id][1] if batch_id in self._planned else 0

    def _count(self) -> int:
        return sum(len(times) for topic in self._topics.values() for times in topic.values())
