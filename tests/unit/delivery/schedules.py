"""Drivers that run batches through the commit protocol, on a modelled broker, under a schedule.

A schedule is a string of bytes: each chooses who takes the next step, and whether it fails. All
that can go wrong is in here; once the schedule is used up nothing does, and the run must end well.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import Any

from job.delivery import commit_protocol
from job.delivery.commit_protocol import Batch, Marker, NotDeliveredError, Result, Step
from tests.unit.delivery.broker_model import Broker, Handle, Log, read_to_the_end

PARTITIONS = 2
BATCHES = 4
QUERY = "q"
# An undisturbed batch of a partition takes at most ten; twice that where each is tried twice.
_STEPS_TO_THE_END = 20 * PARTITIONS * BATCHES

Protocol = Callable[[Batch], Generator[Step, Marker | None, Result]]


class ViolationError(AssertionError):
    """What must never be was seen."""


def run_worlds(
    world_of: Callable[[int], Any], count: int, counters: Sequence[str]
) -> tuple[dict[int, str], dict[str, int]]:
    """The violations of the worlds 0 to `count`, by number, and the sums of their `counters`."""
    wrong: dict[int, str] = {}
    made = dict.fromkeys(counters, 0)
    for number in range(count):
        world = world_of(number)
        try:
            world.run()
        except ViolationError as error:
            wrong[number] = str(error)
        for name in made:
            made[name] += getattr(world, name)
    return wrong, made


def rows(partition: int, batch_id: int) -> list[str]:
    """None, one or two: every partition has empty batches."""
    return [f"p{partition} b{batch_id} r{row}" for row in range((batch_id + partition) % 3)]


class Schedule:
    def __init__(self, tape: bytes) -> None:
        self._tape = iter(tape)
        self.is_over = False

    def choose(self) -> int:
        """0 to 255; 0, where nothing goes wrong, once it is used up."""
        value = next(self._tape, None)
        self.is_over = value is None
        return value or 0


class World:
    """One query: its checkpoint, its topics, its drivers, of which all but the last are zombies."""

    def __init__(
        self,
        schedule: Schedule,
        protocol: Protocol = commit_protocol.deliver_once,
        *,
        one_commit_partition: bool = False,
        marks_empty_batches: bool = True,
    ) -> None:
        self.schedule = schedule
        self.protocol = protocol
        self.marks_empty_batches = marks_empty_batches
        self.broker = Broker()
        self.output = [Log() for _ in range(PARTITIONS)]
        shared = Log()
        self.commits = [shared if one_commit_partition else Log() for _ in range(PARTITIONS)]
        self.batches_done = 0
        """Spark's commit log."""
        self.zombies: list[Iterator[None]] = []
        self.had_zombies = False
        self.driver = self._new_driver()

    def run(self) -> None:
        while not self.schedule.is_over:
            self._turn(self.schedule.choose())
        self.zombies = []
        self.driver = self._new_driver()
        for _ in range(_STEPS_TO_THE_END):
            if self.batches_done >= BATCHES:
                break
            self._step(self.driver)
        else:
            raise ViolationError("nothing is in the way, and it does not come to an end")
        self.broker.settle()
        self.check()

    def check(self) -> None:
        """Each batch exactly once, in its order; a marker for each, next to its rows."""
        for partition in range(PARTITIONS):
            expected = [row for n in range(BATCHES) for row in rows(partition, n)]
            if expected != (found := self.output[partition].committed()):
                raise ViolationError(f"{found} was delivered instead of {expected}")
        if self.marks_empty_batches:
            for partition in range(PARTITIONS):
                found = [marker.batch_id for marker in self.markers(partition)]
                if list(range(BATCHES)) != found:
                    raise ViolationError(f"markers of partition {partition}: {found}")

    def markers(self, partition: int) -> list[Marker]:
        return _markers(self.commits[partition].committed(), partition)

    def _turn(self, choice: int) -> None:
        match choice:
            case _ if choice < 190:
                self._step(self.driver)
            case _ if choice < 205 and self.zombies:
                self._step(self.zombies[choice % len(self.zombies)])
            case _ if choice < 220:
                self.broker.write_control_records()
            case _ if choice < 230:
                self.broker.deliver_delayed(choice)
            case _ if choice < 234:
                self.broker.time_out(choice)
            case _ if choice < 245:  # the driver is killed
                self.driver = self._new_driver()
            case _ if choice < 255 and len(self.zombies) < 3:  # it is stopped, and wakes up later
                self.zombies.append(self.driver)
                self.had_zombies = True
                self.driver = self._new_driver()

    def _step(self, driver: Iterator[None]) -> None:
        try:
            next(driver, None)
            ended = False
        except commit_protocol.DisagreementError as error:
            if not self.had_zombies:
                raise ViolationError(f"false alarm: {error}") from error
            ended = True
        except NotDeliveredError:
            ended = True
        if driver in self.zombies:
            if ended:
                self.zombies.remove(driver)
        elif ended or self.batches_done >= BATCHES:
            self.driver = self._new_driver()

    def _new_driver(self) -> Iterator[None]:
        return Driver(self).live()


class Driver:
    """Runs batch after batch from the checkpoint on. Its workers live and die with it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._schedule = world.schedule
        self._handles: dict[int, Handle] = {}

    def live(self) -> Iterator[None]:
        """A step of the protocol, or a record, at a time; raises what ended it."""
        while (batch_id := self._world.batches_done) < BATCHES:
            for partition in range(PARTITIONS):
                batch = Batch(batch_id, f"f{batch_id}", 0, QUERY)
                yield from self._attempt(partition, batch)
            if self._world.batches_done != batch_id:
                return  # Spark: another driver has written this commit
            self._world.batches_done += 1

    def _attempt(self, partition: int, batch: Batch) -> Iterator[None]:
        protocol = self._world.protocol(batch)
        reply: Marker | None = None
        failure: NotDeliveredError | None = None
        while True:
            try:
                step = protocol.send(reply) if failure is None else protocol.throw(failure)
            except StopIteration:
                return
            reply = failure = None
            try:
                reply = yield from self._perform(step, partition, batch)
            except NotDeliveredError as error:
                failure = error

    def _perform(self, step: Step, partition: int, batch: Batch) -> Generator[None, None, Any]:
        yield
        world, broker = self._world, self._world.broker
        match step:
            case Step.PEEK_MARKER:
                return _newest(world.commits[partition].committed(), partition)
            case Step.READ_MARKER:
                if world.schedule.is_over:
                    broker.write_control_records()
                return _newest(read_to_the_end(world.commits[partition]), partition)
            case Step.INIT:
                if 250 <= (choice := self._schedule.choose()):
                    raise commit_protocol.UnavailableError("no answer")
                self._handles[partition] = broker.init(f"id-{partition}")
                if 245 <= choice:
                    raise commit_protocol.UnavailableError("the answer was lost")
            case Step.BEGIN if partition not in self._handles:
                # No client lets a new producer begin before this.
                self._handles[partition] = broker.init(f"id-{partition}")
            case Step.WRITE_ROWS:
                for row in rows(partition, batch.batch_id):
                    self._produce(partition, world.output[partition], row)
                    yield
            case Step.WRITE_MARKER:
                if world.marks_empty_batches or rows(partition, batch.batch_id):
                    self._produce(partition, world.commits[partition], (partition, batch.marker))
            case Step.COMMIT:
                if world.marks_empty_batches or rows(partition, batch.batch_id):
                    self._end(partition, "committed")
            case Step.ABORT:
                self._end_quietly(partition)
        return None

    def _produce(self, partition: int, log: Log, payload: Any) -> None:
        if 248 <= self._schedule.choose():
            raise commit_protocol.AbortedError("not taken", retryable=True)
        self._world.broker.produce(self._handles[partition], log, payload)

    def _end(self, partition: int, state: Any) -> None:
        broker, handle = self._world.broker, self._handles[partition]
        choice = self._schedule.choose()
        if 235 <= choice < 243:  # sent twice: the first one is late, the second one is answered
            broker.delay(handle, state)
        elif 243 <= choice < 247:
            raise commit_protocol.UnknownOutcomeError("the request was lost")
        elif 247 <= choice < 251:
            broker.delay(handle, state)
            raise commit_protocol.UnknownOutcomeError("the request is late")
        broker.end(handle, state)
        if 251 <= choice:
            raise commit_protocol.UnknownOutcomeError("the answer was lost")

    def _end_quietly(self, partition: int) -> None:
        with suppress(NotDeliveredError):
            self._end(partition, "aborted")


def _markers(payloads: list[Any], partition: int) -> list[Marker]:
    return [marker for owner, marker in payloads if owner == partition]


def _newest(payloads: list[Any], partition: int) -> Marker | None:
    markers = _markers(payloads, partition)
    return markers[-1] if markers else None
