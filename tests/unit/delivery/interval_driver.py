"""A run of the real-time engine on the modelled broker and a modelled Spark.

The rules are those of the job (job/query/driver.py) or a mutant of them; the steps are those of the
protocol under test. With a `driver_bug` of the world, the loop around the rules leaves out one of
its duties, or reads the checkpoint wrongly.
"""

from collections.abc import Generator, Iterator
from types import ModuleType
from typing import Any, Protocol

from job.delivery.commit_protocol import NotDeliveredError
from job.delivery.delivered import Fence
from job.event_time.interval import Interval
from job.event_time.partitions import BatchRead
from job.protocol.status import Phase
from tests.unit.delivery import interval_executors
from tests.unit.delivery.broker_model import Record, Transaction
from tests.unit.delivery.interval_checkpoint import Checkpoint, by_partition
from tests.unit.delivery.interval_executors import ALL, Executors, Task
from tests.unit.delivery.interval_join import DELAY, SIDES, JoinType, Offsets
from tests.unit.delivery.interval_matches import empty_state
from tests.unit.delivery.interval_protocol import INTERVAL, Batch

SLOTS = 2
_EXECUTORS = 2

LATE_BY_THE_BEGIN = "batch after an interval judges late rows by the begin of the interval"


class Surroundings(interval_executors.Surroundings, Protocol):
    """What a driver needs of the world."""

    protocol: ModuleType
    rules: ModuleType
    join_type: JoinType
    driver_bug: str | None
    is_exactly_once: bool
    query_id: str
    cut_intervals: set[int]
    """Intervals that were interrupted."""

    def checkpoint_of(self, driver: object) -> Checkpoint:
        """Raises NotDeliveredError for a driver that has lost the lease."""


class _StoppedError(Exception):
    """The driver ends between two batches, as a stop requires."""


class Driver:
    def __init__(self, world: Surroundings) -> None:
        self.phase: Phase | None = None
        """Of the run. None: it starts."""
        self.stops = False
        """Set by a stop that lets the batch or the interval end."""
        self.has_stopped = False
        self._world = world
        self._schedule = world.schedule
        self._executors = Executors(world)
        self._is_exactly_once = world.is_exactly_once
        self._query_id = world.query_id
        self._rules = world.rules
        self._next_phase = Phase.CATCH_UP
        self._now = 0.0

    def live(self) -> Iterator[None]:
        """A step at a time; raises what ended it."""
        try:
            yield from self._live()
        except _StoppedError:
            self.has_stopped = True
            yield

    def _live(self) -> Iterator[None]:
        yield
        if not self._is_exactly_once:
            self._checkpoint.since = None
        elif self._checkpoint.since is None:
            self._checkpoint.since = self._checkpoint.last + 1
        while True:
            phase, self._next_phase = self._next_phase, Phase.CATCH_UP
            if phase is Phase.CATCH_UP or self._has_uncommitted_batch():
                yield from self._catch_up()
            else:
                yield from self._intervals()

    def _has_uncommitted_batch(self) -> bool:
        return max(self._checkpoint.planned, default=-1) > self._checkpoint.last

    @property
    def _checkpoint(self) -> Checkpoint:
        return self._world.checkpoint_of(self)

    def _has(self, bug: str) -> bool:
        return self._world.driver_bug == bug

    def _check_stop(self) -> None:
        """As Spark, before each batch and before the first task of a planned batch."""
        if self.stops:
            raise _StoppedError

    def _begin_run(self, phase: Phase) -> Iterator[None]:
        self.phase = None
        self._slots = [
            [self._world.protocol.Slot() for _ in range(_EXECUTORS)] for _ in range(SLOTS)
        ]
        checkpoint = self._checkpoint
        self._fence_number = checkpoint.fence
        cut: Interval | None = checkpoint.cut
        self._repeats = None if cut is None else cut.batch_id
        if cut is not None:
            self._world.cut_intervals.add(cut.batch_id)
        self._is_late_as_in_intervals = cut is not None
        self._tracked = checkpoint.tracked
        self._is_ending = False
        self._latest_of_batch: Offsets | None = None
        run = self._rules.Run(dict.fromkeys(SIDES, DELAY), phase, None, dict.fromkeys(SIDES, 1))
        self._state = self._rules.State(
            *(run, checkpoint.partitions, self._now),
            recorded=checkpoint.recorded,
            interrupted=cut,
        )
        yield from ()

    def _decide(self, event: Any) -> None:
        """As ControlLoop of the job."""
        rules = self._rules
        self._state, actions = rules.decide(self._state, event)
        for action in actions:
            match action:
                case rules.RaiseWatermark(to_ms=to_ms):
                    self._tracked = max(self._tracked, to_ms)
                case rules.RecordInterval(interval=interval):
                    self._checkpoint.recorded = interval
                case rules.EndRun(next_phase=next_phase):
                    self._next_phase, self._is_ending = next_phase, True

    def _clock(self) -> float:
        """Batches are short or long."""
        self._now += self._schedule.choose() % 2 * 10
        return self._now

    def _raise_for_idle_side(self) -> None:
        """As IdleSides of the job, at any time."""
        choice = self._schedule.choose()
        if choice % 8 == 1 and not self._state.keeps_watermark:
            self._tracked = max(self._tracked, choice // 16)

    def _fence(self) -> Iterator[None]:
        """Before the ends of the repetition are recorded."""
        checkpoint = self._checkpoint
        if not self._has("fence has the number of the one before"):
            checkpoint.fence += 1
        yield
        self._fence_number = checkpoint.fence
        fence = Fence(self._query_id, self._fence_number)
        for slot in range(SLOTS):
            task = self._task(checkpoint.last + 1, slot, 0, 0)
            yield from self._executors.perform_all(self._world.protocol.fence_slot(fence), 0, task)

    # Micro-batches

    def _catch_up(self) -> Iterator[None]:
        """One run of micro-batches."""
        yield from self._begin_run(Phase.CATCH_UP)
        cut = self._state.interrupted
        needs_ends = cut is not None and cut.repeat_until is None
        if needs_ends and self._is_exactly_once and not self._has("ends recorded before fencing"):
            yield from self._fence()
        self.phase = Phase.CATCH_UP
        while True:
            yield
            self._check_stop()
            self._raise_for_idle_side()
            batch_id = self._checkpoint.last + 1
            is_planned = batch_id in self._checkpoint.planned or self._plan(batch_id)
            if self._is_ending:
                return
            if is_planned:
                yield from self._micro_batch(batch_id)
            if self._is_ending or self._schedule.choose() == 1:
                return

    def _plan(self, batch_id: int) -> bool:
        """False: Spark plans no batch."""
        checkpoint = self._checkpoint
        starts, latest = checkpoint.offsets, self._latest()
        self._decide(
            self._rules.BatchPlanned(self._clock(), by_partition(starts), by_partition(latest))
        )
        has_data = starts != latest
        # After a restart, Spark plans no batch before a record has arrived.
        has_advanced = self._state.has_run and self._tracked > checkpoint.watermark(batch_id - 1)
        if not has_data and (not has_advanced or self._schedule.choose() % 2):
            return False
        if self._is_ending and self._schedule.choose() % 2:
            return False
        ends = tuple(
            min(end, start + self._schedule.choose() % 3 + self._schedule.is_over * ALL)
            for start, end in zip(starts, latest, strict=True)
        )
        self._latest_of_batch = latest
        checkpoint.planned[batch_id] = (ends, self._tracked)
        return True

    def _micro_batch(self, batch_id: int) -> Iterator[None]:
        checkpoint = self._checkpoint
        ends, watermark = checkpoint.planned[batch_id]
        late = watermark if self._is_late_as_in_intervals else self._late_watermark(batch_id)
        batch = Batch(batch_id, f"{ends}@{watermark}", checkpoint.since or 0, self._query_id)
        for slot in range(SLOTS):
            for attempt in range(2):
                task = self._task(batch_id, slot, late, watermark)
                task.end = ends
                try:
                    yield from self._deliver(self._opening(batch, attempt == 0), task)
                    break
                except NotDeliveredError:
                    if attempt or self._schedule.choose() % 2:
                        raise
        yield
        latest, self._latest_of_batch = self._latest_of_batch or self._latest(), None
        self._decide(self._rules.BatchEnded(self._clock(), self._read(ends, latest)))
        is_repeating = self._state.is_repeating(by_partition(ends))
        if self._has("record removed before the commit") and self._repeats and not is_repeating:
            checkpoint.recorded = None
            yield
        self._commit(batch_id)
        self._write_event_times()

    def _late_watermark(self, batch_id: int) -> int:
        """That of the batch before. The watermark of an interval advances: its last one counts."""
        checkpoint, before = self._checkpoint, batch_id - 1
        recorded = checkpoint.recorded
        is_after_interval = recorded is not None and before in recorded.batch_ids
        if self._has(LATE_BY_THE_BEGIN) or not is_after_interval:
            return checkpoint.watermark(before)
        return checkpoint.committed.get(before, 0)

    # Intervals

    def _intervals(self) -> Iterator[None]:
        """One run of intervals."""
        yield from self._begin_run(Phase.REAL_TIME)
        self.phase = Phase.REAL_TIME
        starts, latest = self._checkpoint.offsets, self._latest()
        read = BatchRead(
            by_partition(starts), by_partition(latest), {side: {} for side in SIDES}, {}
        )
        while True:
            yield
            self._check_stop()
            self._raise_for_idle_side()
            batch_id = self._checkpoint.last + 1
            planned = self._rules.IntervalPlanned(self._clock(), batch_id, read, self._tracked)
            self._decide(planned)
            watermark = self._tracked
            yield
            self._check_stop()
            self._raise_for_idle_side()
            read = yield from self._interval(batch_id, watermark)
            self._repeats = None
            if self._schedule.choose() % 4 == 1:
                return

    def _interval(self, batch_id: int, watermark: int) -> Generator[None, None, BatchRead]:
        batch = Batch(batch_id, INTERVAL, self._checkpoint.since or 0, self._query_id)
        tasks = [self._task(batch_id, slot, watermark, watermark) for slot in range(SLOTS)]
        for task in tasks:
            task.is_interval = True
        running = [self._deliver(self._opening(batch), task) for task in tasks]
        while running:
            choice = self._schedule.choose()
            is_over = choice >= 245 or self.stops or self._schedule.is_over
            if tasks[0].end is None and is_over:
                ends = self._latest()
                for task in tasks:
                    task.end = ends
            self._advance(tasks)
            one = running[choice % len(running)]
            try:
                next(one)
            except StopIteration:
                running.remove(one)
            yield
        end = tasks[0].end
        assert end is not None
        read = self._read(end, self._latest())
        self._checkpoint.planned[batch_id] = (end, watermark)
        yield
        self._commit(batch_id)
        self._write_event_times()
        return read

    def _advance(self, tasks: list[Task]) -> None:
        """The watermark advances within the interval. A task sees it at any later time."""
        choice = self._schedule.choose()
        if choice % 16 == 1:
            times = [
                [row.event_time for row in topic[: max(task.position[side] for task in tasks)]]
                for side, topic in enumerate(self._world.topics)
            ]
            if all(times):
                self._tracked = max(self._tracked, min(map(max, times)) - DELAY)
        if choice % 4 == 0:
            task = tasks[choice // 4 % len(tasks)]
            task.late = task.watermark = self._tracked

    # What both have

    def _task(self, batch_id: int, slot: int, late: int, watermark: int) -> Task:
        checkpoint = self._checkpoint
        state = checkpoint.states.get((batch_id - 1, slot), empty_state(self._world.join_type))
        bug = self._world.driver_bug
        return Task(slot, state.copy(), checkpoint.offsets, late, watermark, bug=bug)

    def _opening(self, batch: Batch, is_first_attempt: bool = True) -> Any:
        return self._world.protocol.Opening(
            batch, self._repeats, self._fence_number, is_first_attempt
        )

    def _deliver(self, opening: Any, task: Task) -> Iterator[None]:
        executor = int(self._schedule.choose() % 5 == 1)
        if not self._is_exactly_once:
            while not task.is_over:
                yield
                for row in task.take_rows(self._world.topics, self._schedule):
                    landed = Transaction("committed", landed=True)
                    self._world.output[task.slot].records.append(Record(row, landed))
        else:
            steps = self._world.protocol.deliver(opening, self._slots[task.slot][executor])
            yield from self._executors.perform_all(steps, executor, task)
        self._checkpoint.states[opening.batch.batch_id, task.slot] = task.state

    def _commit(self, batch_id: int) -> None:
        if self._checkpoint.last != batch_id - 1:
            raise NotDeliveredError("another driver has written this commit")
        self._checkpoint.committed[batch_id] = self._tracked

    def _read(self, ends: Offsets, latest: Offsets) -> BatchRead:
        """What a batch from the last offsets up to `ends` has read."""
        times = {
            side: [row.event_time for row in topic[start:end] if not row.is_bad]
            for side, topic, start, end in zip(
                SIDES, self._world.topics, self._checkpoint.offsets, ends, strict=True
            )
        }
        newest = {side: max(found) for side, found in times.items() if found}
        by_side = {side: {0: newest[side]} if side in newest else {} for side in SIDES}
        return BatchRead(by_partition(ends), by_partition(latest), by_side, newest)

    def _write_event_times(self) -> None:
        """A crash loses those that were not written yet."""
        if self._schedule.is_over or self._schedule.choose() % 2:
            self._checkpoint.event_times = self._state.partitions.recorded()

    def _latest(self) -> Offsets:
        left, right = self._world.topics
        return len(left), len(right)
