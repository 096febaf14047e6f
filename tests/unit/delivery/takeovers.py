"""Two queries of one name, or two versions of one query, on the modelled broker.

The second one starts at any moment of the first one's life. Both are killed, stopped and woken up
again as a schedule says, and each step can fail.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from job.delivery import commit_protocol
from job.delivery.commit_protocol import NO_BATCH, RETIRED, Batch, Marker, NotDeliveredError, Step
from tests.unit.delivery.broker_model import Broker, Handle, Log, read_to_the_end
from tests.unit.delivery.schedules import BATCHES, PARTITIONS, Schedule, ViolationError, rows

_STEPS_TO_THE_END = 60 * PARTITIONS * BATCHES

Key = int | tuple[str, int]
"""Partition; in the older version query and partition."""
Steps = Generator[Step, Marker | None, Any]


@dataclass
class Progress:
    """Checkpoint of a query."""

    batches_done: int = 0
    owns_name: bool = False


@dataclass(eq=False)
class Query:
    id: str
    is_old: bool = False
    """Whether the job is of the version with ids and keys for each query."""
    replaces: frozenset[str] = frozenset()
    progress: Progress = field(default_factory=Progress)

    def transactional_id(self, partition: int) -> str:
        return f"{self.id}-{partition}" if self.is_old else f"{partition}"

    def key(self, partition: int) -> Key:
        return (self.id, partition) if self.is_old else partition

    def rows(self, partition: int) -> list[str]:
        return [self.row(row) for n in range(BATCHES) for row in rows(partition, n)]

    def row(self, row: str) -> str:
        return f"{self.id} {row}"


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
            except (commit_protocol.TakenOverError, commit_protocol.DisagreementError):
                return
            except NotDeliveredError:
                self.broker.settle()
            if query.progress.batches_done >= BATCHES:
                return
        raise ViolationError("nothing is in the way, and it does not come to an end")

    def results(self, partition: int) -> list[str]:
        return self.output[partition].committed()


class Driver:
    def __init__(self, world: World, query: Query) -> None:
        self._world = world
        self._query = query
        self._handles: dict[str, Handle] = {}

    def live(self) -> Iterator[None]:
        query, progress = self._query, self._query.progress
        if not query.is_old:
            yield from self._own()
        while (batch_id := progress.batches_done) < BATCHES:
            for partition in range(PARTITIONS):
                batch = Batch(batch_id, f"f{batch_id}", 0, query.id)
                written = [query.row(row) for row in rows(partition, batch_id)]
                own = Attempt(self, partition, query.transactional_id(partition))
                own.key, own.rows = query.key(partition), written
                own.markers = lambda _, key=own.key, one=batch.marker: [(key, one)]
                yield from own.run(self._world.protocol.deliver_once(batch))
            if progress.batches_done != batch_id:
                return
            progress.batches_done += 1

    def _own(self) -> Iterator[None]:
        """As ownership.ensure_ownership: what is found of older versions is ended, then claimed."""
        world, query = self._world, self._query
        yield
        newest = _newest(world.commits[0].committed(), query.key(0))
        if query.progress.owns_name and newest is not None and newest.query_id == query.id:
            return
        old_ids: set[str] = {query.id} if query is world.second and _is_upgrade(world) else set()
        owners: set[str] = set()
        for log in world.commits:
            yield
            old = _old_queries(log.committed())
            new = [marker.query_id for key, marker in log.committed() if isinstance(key, int)]
            old_ids |= set(old)
            owners |= {(new or old)[-1]} if new or old else set()
        if owners - {query.id} - query.replaces:
            raise commit_protocol.TakenOverError("refused")
        for partition in range(PARTITIONS):
            yield from self._take(partition, sorted(old_ids))
            yield
            if old_ids and _old_queries(read_to_the_end(world.commits[partition])):
                raise commit_protocol.UnavailableError("an older version has delivered meanwhile")
        query.progress.owns_name = True

    def _take(self, partition: int, old_ids: list[str]) -> Iterator[None]:
        protocol, query = self._world.protocol, self._query
        for old_id in old_ids:
            old = Query(old_id, is_old=True)
            retiring = Attempt(self, partition, old.transactional_id(partition))
            retiring.key = old.key(partition)
            retiring.markers = lambda found, old=old: [
                (old.key(partition), Marker(RETIRED, "", old.id)),
                *([(query.key(partition), found)] if old.id == query.id and found else []),
            ]
            yield from retiring.run(protocol.retire())
        claim = Marker(NO_BATCH, "", query.id)
        claiming = Attempt(self, partition, query.transactional_id(partition))
        claiming.key = query.key(partition)
        claiming.markers = lambda _: [(query.key(partition), claim)]
        yield from claiming.run(protocol.take_over(claim, query.replaces))


class Attempt:
    """Performs the steps of one protocol with one transactional id."""

    key: Key
    markers: Callable[[Marker | None], list[tuple[Key, Marker]]]

    def __init__(self, driver: Driver, partition: int, transactional_id: str) -> None:
        self.rows: list[str] = []
        self._world = driver._world
        self._handles = driver._handles
        self._partition = partition
        self._id = transactional_id
        self._found: Marker | None = None

    def run(self, protocol: Steps) -> Iterator[None]:
        reply: Marker | None = None
        failure: NotDeliveredError | None = None
        while True:
            try:
                step = protocol.send(reply) if failure is None else protocol.throw(failure)
            except StopIteration:
                return
            reply = failure = None
            try:
                reply = yield from self._perform(step)
            except NotDeliveredError as error:
                failure = error

    def _perform(self, step: Step) -> Generator[None, None, Any]:
        yield
        world, log = self._world, self._world.commits[self._partition]
        match step:
            case Step.PEEK_MARKER:
                return _newest(log.committed(), self.key)
            case Step.READ_MARKER:
                if world.schedule.is_over:
                    world.broker.write_control_records()
                self._found = _newest(read_to_the_end(log), self.key)
                return self._found
            case Step.INIT:
                if 250 <= (choice := world.schedule.choose()):
                    raise commit_protocol.UnavailableError("no answer")
                self._handles[self._id] = world.broker.init(self._id)
                if 245 <= choice:
                    raise commit_protocol.UnavailableError("the answer was lost")
            case Step.BEGIN if self._id not in self._handles:
                self._handles[self._id] = world.broker.init(self._id)
            case Step.WRITE_ROWS:
                for row in self.rows:
                    self._produce(world.output[self._partition], row)
                    yield
            case Step.WRITE_MARKER:
                for marker in self.markers(self._found):
                    self._produce(log, marker)
                    yield
            case Step.COMMIT:
                self._end("committed")
            case Step.ABORT:
                with suppress(NotDeliveredError):
                    self._end("aborted")
        return None

    def _produce(self, log: Log, payload: Any) -> None:
        if 250 <= self._world.schedule.choose():
            raise commit_protocol.AbortedError("not taken", retryable=True)
        self._world.broker.produce(self._handles[self._id], log, payload)

    def _end(self, state: Any) -> None:
        broker, handle = self._world.broker, self._handles[self._id]
        choice = self._world.schedule.choose()
        if 243 <= choice < 247:
            raise commit_protocol.UnknownOutcomeError("the request was lost")
        if 247 <= choice < 251:
            broker.delay(handle, state)
            raise commit_protocol.UnknownOutcomeError("the request is late")
        broker.end(handle, state)
        if 251 <= choice:
            raise commit_protocol.UnknownOutcomeError("the answer was lost")


def _is_upgrade(world: World) -> bool:
    return world.first.id == world.second.id


def _old_queries(payloads: list[Any]) -> list[str]:
    """Queries of the older version that are not retired, that with the newest marker last."""
    newest = {key: marker for key, marker in payloads if isinstance(key, tuple)}
    order = [key for key, marker in payloads if key in newest and newest[key] is marker]
    return [key[0] for key in order if not newest[key].is_retired]


def _newest(payloads: list[Any], key: Key) -> Marker | None:
    markers: list[Marker] = [marker for owner, marker in payloads if owner == key]
    return markers[-1] if markers else None
