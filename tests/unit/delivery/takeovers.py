"""Two queries of one name on the modelled broker.

The second one starts at any moment of the first one's life. Both are killed, stopped and woken up
again as a schedule says, and each step can fail. The queries run micro-batches.
"""

from collections.abc import Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from job.delivery import commit_protocol
from job.delivery.commit_protocol import NO_BATCH, Marker, NotDeliveredError, TakenOverError
from tests.unit.delivery.broker_model import Broker, Log
from tests.unit.delivery.interval_executors import Executors, Rows, slot_content
from tests.unit.delivery.interval_join import Row
from tests.unit.delivery.interval_protocol import (
    Batch,
    DisagreementError,
    Opening,
    OutputRow,
    Part,
    Slot,
    Step,
    WriteMarker,
    deliver,
)
from tests.unit.delivery.schedules import Schedule, ViolationError

PARTITIONS = 2
BATCHES = 4
_STEPS_TO_THE_END = 60 * PARTITIONS * BATCHES


@dataclass
class Progress:
    """Checkpoint of a query."""

    batches_done: int = 0
    owns_name: bool = False


@dataclass(eq=False)
class Query:
    id: str
    replaces: frozenset[str] = frozenset()
    progress: Progress = field(default_factory=Progress)

    def rows(self, partition: int) -> list[str]:
        return [row for batch_id in range(BATCHES) for row in self.batch(partition, batch_id)]

    def batch(self, partition: int, batch_id: int) -> tuple[str, ...]:
        """None, one or two rows."""
        count = (batch_id + partition) % 3
        return tuple(f"{self.id} p{partition} b{batch_id} r{row}" for row in range(count))


@dataclass
class Task:
    """The rows of one batch in one slot."""

    slot: int
    rows: tuple[str, ...] = ()
    is_over: bool = False

    def begin(self, _: frozenset[str]) -> None:
        """A micro-batch repeats no interval."""

    def take_rows(self, *_: object) -> tuple[OutputRow, ...]:
        self.is_over = True
        return tuple(map(OutputRow, self.rows))


class World:
    def __init__(
        self,
        schedule: Schedule,
        first: Query,
        second: Query,
        protocol: ModuleType = commit_protocol,
    ) -> None:
        self.schedule = schedule
        self.protocol = protocol
        self.first, self.second = first, second
        self.broker = Broker()
        self.output = [Log() for _ in range(PARTITIONS)]
        self.commits = [Log() for _ in range(PARTITIONS)]
        self.topics: tuple[list[Row], list[Row]] = ([], [])
        self.parts: list[Part] = []
        self.drivers: dict[str, Iterator[None]] = {"first": Driver(self, first).live()}
        self.zombies: list[Iterator[None]] = []

    def run(self) -> None:
        while not self.schedule.is_over:
            self._turn(self.schedule.choose())
        if "second" not in self.drivers:
            self._drive(self.first)
        for query in (self.second, self.first, self.second):
            self._drive(query)
        for zombie in self.zombies:
            with suppress(NotDeliveredError):
                for _ in zombie:
                    pass
        self.broker.settle()

    def start_together(self) -> None:
        self._start("second")

    def _turn(self, choice: int) -> None:
        has_second = "second" in self.drivers
        match choice:
            case _ if choice < 100 or (choice < 190 and not has_second):
                self._step("first")
            case _ if choice < 190:
                self._step("second")
            case _ if choice < 203 and self.zombies:
                zombie = self.zombies[choice % len(self.zombies)]
                with suppress(NotDeliveredError):
                    next(zombie, None)
            case _ if choice < 214:
                self.broker.write_control_records()
            case _ if choice < 222:
                self.broker.deliver_delayed(choice)
            case _ if choice < 225:
                self.broker.time_out(choice)
            case _ if choice < 240 and not has_second:
                # Before its first batch a query has left nothing by which it could be known.
                if self.first.progress.batches_done > 0:
                    self._start("second")
            case _ if choice < 246:
                self._start("second" if has_second and choice % 2 else "first")
            case _ if len(self.zombies) < 3:
                which = "second" if has_second and choice % 2 else "first"
                self.zombies.append(self.drivers[which])
                self._start(which)

    def _start(self, which: str) -> None:
        self.drivers[which] = Driver(self, getattr(self, which)).live()

    def _step(self, which: str) -> None:
        try:
            next(self.drivers[which])
        except (StopIteration, NotDeliveredError):
            self._start(which)

    def _drive(self, query: Query) -> None:
        """Until it is done or refused for good; nothing else fails any more."""
        for _ in range(_STEPS_TO_THE_END):
            try:
                for _ in Driver(self, query).live():
                    pass
            except (TakenOverError, DisagreementError):
                return
            except NotDeliveredError:
                self.broker.settle()
            if query.progress.batches_done >= BATCHES:
                return
        raise ViolationError("nothing is in the way, and it does not come to an end")

    def results(self, partition: int) -> list[str]:
        return [row.id for row in self.output[partition].committed()]


class Driver:
    def __init__(self, world: World, query: Query) -> None:
        self._world = world
        self._query = query
        self._claim = Marker(NO_BATCH, "", query.id)
        self._executors = _Executors(world, self._claim)
        self._slots = [Slot() for _ in range(PARTITIONS)]

    def live(self) -> Iterator[None]:
        query, progress = self._query, self._query.progress
        yield from self._own()
        while (batch_id := progress.batches_done) < BATCHES:
            for partition, slot in enumerate(self._slots):
                opening = Opening(Batch(batch_id, f"f{batch_id}", 0, query.id))
                task = Task(partition, query.batch(partition, batch_id))
                yield from self._executors.perform_all(deliver(opening, slot), 0, task)
            if progress.batches_done != batch_id:
                return
            progress.batches_done += 1

    def _own(self) -> Iterator[None]:
        """As ownership.ensure_ownership."""
        world, query = self._world, self._query
        yield
        newest = _newest(world.commits[0])
        if query.progress.owns_name and newest is not None and newest.query_id == query.id:
            return
        owners: set[str] = set()
        for log in world.commits:
            yield
            newest = _newest(log)
            owners |= {newest.query_id} if newest is not None else set()
        if owners - {query.id} - query.replaces:
            raise commit_protocol.TakenOverError("refused")
        for partition in range(PARTITIONS):
            taking = world.protocol.take_over(self._claim, query.replaces)
            yield from self._executors.perform_all(taking, 0, Task(partition))
        query.progress.owns_name = True


_READS = {
    commit_protocol.Step.PEEK_MARKER: Step.PEEK_SLOT,
    commit_protocol.Step.READ_MARKER: Step.READ_SLOT,
}


class _Executors(Executors):
    """Perform the steps of `take_over` too, which the driver performs in the job."""

    def __init__(self, world: World, claim: Marker) -> None:
        super().__init__(world)
        self._claim = claim

    def _perform(self, step: Any, executor: int, task: Rows) -> Generator[None, None, Any]:
        if not isinstance(step, commit_protocol.Step):
            return (yield from super()._perform(step, executor, task))
        is_claim = step is commit_protocol.Step.WRITE_MARKER
        same = WriteMarker(self._claim) if is_claim else _READS.get(step, step)
        reply = yield from super()._perform(same, executor, task)
        return reply.marker if step in _READS else None


def _newest(log: Log) -> Marker | None:
    return slot_content(log.committed()).marker
