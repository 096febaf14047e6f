"""A driver of the real-time engine on the modelled broker: runs, micro-batches, intervals.

It follows query/real_time.py and Spark, and performs the steps of the protocol under test. With a
`driver_bug` of the world it leaves out one of the rules that interval_protocol.py has for drivers.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any, Literal, Protocol

from job.delivery.commit_protocol import NotDeliveredError
from job.delivery.delivered import Fence
from tests.unit.delivery import interval_executors
from tests.unit.delivery.broker_model import Record, Transaction
from tests.unit.delivery.interval_checkpoint import Checkpoint, Recorded
from tests.unit.delivery.interval_executors import ALL, Executors, Task
from tests.unit.delivery.interval_join import DELAY, JoinType, Offsets, State
from tests.unit.delivery.interval_protocol import INTERVAL, Batch

SLOTS = 2
_EXECUTORS = 2


class Surroundings(interval_executors.Surroundings, Protocol):
    """What a driver needs of the world."""

    protocol: ModuleType
    join_type: JoinType
    driver_bug: str | None
    is_exactly_once: bool
    query_id: str

    def checkpoint_of(self, driver: object) -> Checkpoint:
        """Raises NotDeliveredError for a driver that has lost the lease."""


class _StoppedError(Exception):
    """The driver ends between two batches, as a stop requires."""


class Driver:
    def __init__(self, world: Surroundings) -> None:
        self.phase: Literal["catch-up", "intervals"] | None = None
        """Of the run. None: it starts."""
        self.stops = False
        """Set by a stop that lets the batch or the interval end."""
        self.has_stopped = False
        self._world = world
        self._schedule = world.schedule
        self._executors = Executors(world)
        self._is_exactly_once = world.is_exactly_once
        self._query_id = world.query_id

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
            yield from self._catch_up()
            yield from self._intervals()

    @property
    def _checkpoint(self) -> Checkpoint:
        return self._world.checkpoint_of(self)

    def _has(self, bug: str) -> bool:
        return self._world.driver_bug == bug

    def _check_stop(self) -> None:
        """As Spark, before each batch and before the first task of a planned batch."""
        if self.stops:
            raise _StoppedError

    def _begin_run(self) -> Iterator[None]:
        self.phase = None
        self._slots = [
            [self._world.protocol.Slot() for _ in range(_EXECUTORS)] for _ in range(SLOTS)
        ]
        self._fence_number = self._checkpoint.fence
        self._cut: Recorded | None = self._checkpoint.cut
        self._repeats = None if self._cut is None else self._cut.batch_id
        if self._has("an ended interval is repeated by the rule of micro-batches"):
            recorded, planned = self._checkpoint.recorded, self._checkpoint.planned
            if self._cut and recorded.repeat_until is None and recorded.batch_id in planned:
                self._cut = None
        self._tracked = self._checkpoint.tracked
        self._newest = self._checkpoint.newest
        yield from ()

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
        """Runs of micro-batches, until intervals follow."""
        yield from self._begin_run()
        needs_ends = self._cut is not None and self._cut.repeat_until is None
        if needs_ends and self._is_exactly_once and not self._has("ends recorded before fencing"):
            yield from self._fence()
        self.phase = "catch-up"
        while True:
            yield
            self._check_stop()
            batch_id = self._checkpoint.last + 1
            if batch_id not in self._checkpoint.planned and not self._plan(batch_id):
                return
            yield from self._micro_batch(batch_id)
            offsets = self._checkpoint.offsets
            if self._cut is not None and self._cut.is_repeated(offsets):
                if self._schedule.choose() % 2:
                    return
                yield from self._begin_run()
                self.phase = "catch-up"
            elif self._cut is None and self._schedule.choose() % 4 == 0:
                return

    def _plan(self, batch_id: int) -> bool:
        """False: there is nothing to read."""
        checkpoint = self._checkpoint
        starts, latest = checkpoint.offsets, self._latest()
        if self._cut is not None:
            if self._cut.repeat_until is None:
                self._cut = Recorded(self._cut.batch_id, self._cut.watermark, latest)
                checkpoint.recorded = self._cut
            self._tracked = max(self._tracked, self._cut.watermark)
        if starts == latest and self._tracked <= checkpoint.watermark(batch_id - 1):
            return False
        if starts == latest and (self._cut is not None or self._schedule.choose() % 2):
            return False
        ends = tuple(
            min(end, start + self._schedule.choose() % 3 + self._schedule.is_over * ALL)
            for start, end in zip(starts, latest, strict=True)
        )
        checkpoint.planned[batch_id] = (ends, self._tracked)
        return True

    def _micro_batch(self, batch_id: int) -> Iterator[None]:
        checkpoint = self._checkpoint
        ends, watermark = checkpoint.planned[batch_id]
        late = watermark if self._cut is not None else checkpoint.watermark(batch_id - 1)
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
        self._read_to(ends)
        is_repeating = self._cut is not None and not self._cut.is_repeated(ends)
        if not is_repeating:
            self._tracked = max(self._tracked, self._watermark())
        if self._has("record removed before the commit") and self._cut and not is_repeating:
            self._checkpoint.recorded = None
            yield
        self._commit(batch_id)
        self._write_event_times()

    # Intervals

    def _intervals(self) -> Iterator[None]:
        yield from self._begin_run()
        self.phase = "intervals"
        while True:
            yield
            self._check_stop()
            batch_id = self._checkpoint.last + 1
            self._tracked = max(self._tracked, self._watermark())
            if self._cut is not None and not self._has("earlier watermark after a cut interval"):
                self._tracked = max(self._tracked, self._cut.watermark)
            self._checkpoint.recorded = Recorded(batch_id, self._tracked)
            yield
            self._check_stop()
            yield from self._interval(batch_id, self._tracked)
            self._cut, self._repeats = None, None
            if self._schedule.choose() % 4 == 0:
                return

    def _interval(self, batch_id: int, watermark: int) -> Iterator[None]:
        batch = Batch(batch_id, INTERVAL, self._checkpoint.since or 0, self._query_id)
        tasks = [self._task(batch_id, slot, watermark, watermark) for slot in range(SLOTS)]
        running = [self._deliver(self._opening(batch), task) for task in tasks]
        while running:
            choice = self._schedule.choose()
            is_over = choice >= 245 or self.stops or self._schedule.is_over
            if tasks[0].end is None and is_over:
                ends = self._latest()
                for task in tasks:
                    task.end = ends
            one = running[choice % len(running)]
            try:
                next(one)
            except StopIteration:
                running.remove(one)
            yield
        end = tasks[0].end
        assert end is not None
        self._read_to(end)
        self._checkpoint.planned[batch_id] = (end, watermark)
        yield
        self._commit(batch_id)
        self._write_event_times()

    # What both have

    def _task(self, batch_id: int, slot: int, late: int, watermark: int) -> Task:
        checkpoint = self._checkpoint
        state = checkpoint.states.get((batch_id - 1, slot), State(self._world.join_type))
        return Task(slot, state.copy(), checkpoint.offsets, late, watermark)

    def _opening(self, batch: Batch, is_first_attempt: bool = True) -> Any:
        return self._world.protocol.Opening(
            batch, self._repeats, self._fence_number, is_first_attempt
        )

    def _deliver(self, opening: Any, task: Task) -> Iterator[None]:
        executor = int(self._schedule.choose() % 5 == 1)
        if not self._is_exactly_once:
            while not task.is_over:
                yield
                for row_id in task.take_rows(self._world.topics, self._schedule):
                    landed = Transaction("committed", landed=True)
                    self._world.output[task.slot].records.append(Record(row_id, landed))
        else:
            steps = self._world.protocol.deliver(opening, self._slots[task.slot][executor])
            yield from self._executors.perform_all(steps, executor, task)
        self._checkpoint.states[opening.batch.batch_id, task.slot] = task.state

    def _commit(self, batch_id: int) -> None:
        if self._checkpoint.last != batch_id - 1:
            raise NotDeliveredError("another driver has written this commit")
        self._checkpoint.committed[batch_id] = self._tracked

    def _read_to(self, ends: Offsets) -> None:
        times = [
            max([newest, *(row.event_time for row in topic[:end] if not row.is_bad)])
            for newest, topic, end in zip(self._newest, self._world.topics, ends, strict=True)
        ]
        self._newest = (times[0], times[1])

    def _watermark(self) -> int:
        return max(0, min(self._newest) - DELAY)

    def _write_event_times(self) -> None:
        """A crash loses those that were not written yet."""
        if self._schedule.is_over or self._schedule.choose() % 2:
            self._checkpoint.newest = self._newest

    def _latest(self) -> Offsets:
        left, right = self._world.topics
        return len(left), len(right)
