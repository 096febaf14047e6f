"""The executors of a modelled driver: they perform the steps of tasks on the modelled broker."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Protocol

from job.delivery import commit_protocol
from job.delivery.commit_protocol import Marker, NotDeliveredError
from job.delivery.delivered import Fence
from tests.unit.delivery.broker_model import Broker, Handle, Log, read_to_the_end
from tests.unit.delivery.interval_join import Offsets, Row, State
from tests.unit.delivery.interval_protocol import (
    BeginRows,
    OutputRow,
    Part,
    SlotContent,
    Step,
    WriteFence,
    WriteMarker,
    WritePart,
    WriteRows,
)
from tests.unit.delivery.schedules import Schedule

LATE_ROW_JOINED = "row that was late is joined in the repetition"
UNMATCHED_ROW_JOINED = "row that was unmatched is joined in the repetition"
UNMATCHED_ROW_KEPT = "row that was unmatched stays in state"
MATCH_IN_THE_ID = "id of a result contains its match"

ALL = 1_000
"""More rows than a schedule has."""


class Surroundings(Protocol):
    """What executors need of the world."""

    schedule: Schedule
    broker: Broker
    output: list[Log]
    commits: list[Log]
    topics: tuple[list[Row], list[Row]]
    parts: list[Part]
    """All that were written."""


class Rows(Protocol):
    """The rows of one batch in one slot."""

    slot: int
    is_over: bool

    def begin(self, delivered: frozenset[str]) -> None: ...

    def take_rows(
        self, topics: tuple[list[Row], list[Row]], schedule: Schedule
    ) -> Sequence[OutputRow]: ...


@dataclass(eq=False)
class Task:
    """The rows of one batch in one slot. `late` and `watermark` are watermarks."""

    slot: int
    state: State
    position: Offsets
    late: int
    watermark: int
    end: Offsets | None = None
    """None: the interval has no end yet."""
    is_over: bool = False
    is_interval: bool = False
    delivered: frozenset[str] = frozenset()
    """Ids of the interval that is repeated."""
    bug: str | None = None

    def begin(self, delivered: frozenset[str]) -> None:
        letters = {row_id for row_id in delivered if row_id.startswith("dead/")}
        if self.bug == LATE_ROW_JOINED:
            delivered -= letters
        if self.bug != UNMATCHED_ROW_KEPT:
            self.state.drop(delivered)
        self.delivered = frozenset(letters) if self.bug == UNMATCHED_ROW_JOINED else delivered

    def take_rows(self, topics: tuple[list[Row], list[Row]], schedule: Schedule) -> list[OutputRow]:
        """Reads some rows of each side, and evicts some. The last rows: reads and evicts all."""
        rows: list[OutputRow] = []
        for side in self.state.read_order:
            topic, start = topics[side], self.position[side]
            end = len(topic) if self.end is None else self.end[side]
            if self.end is None:
                end = min(end, start + schedule.choose() % 3)
            for row in topic[start:end]:
                if row.slot == self.slot:
                    if self.is_interval:
                        rows += self.state.evict(self.watermark, schedule.choose() % 2)
                    rows += self.state.take(row, self.late, self.delivered)
            self.position = _moved(self.position, side, end)
        if self.end is not None:
            rows += self.state.evict(self.watermark, ALL)
            self.is_over = True
        self.state.computed |= {row.id for row in rows}
        if self.bug == MATCH_IN_THE_ID:
            return [replace(row, id=row.id + row.content) for row in rows]
        return rows


class Executors:
    """Their producers, by executor and slot."""

    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._schedule = world.schedule
        self._handles: dict[tuple[int, int], Handle] = {}

    def perform_all(self, steps: Any, executor: int, task: Rows) -> Iterator[None]:
        reply: Any = None
        failure: NotDeliveredError | None = None
        while True:
            try:
                step = steps.send(reply) if failure is None else steps.throw(failure)
            except StopIteration:
                return
            reply = failure = None
            try:
                reply = yield from self._perform(step, executor, task)
            except NotDeliveredError as error:
                failure = error

    def _perform(self, step: Any, executor: int, task: Rows) -> Generator[None, None, Any]:
        yield
        world, log = self._world, self._world.commits[task.slot]
        match step:
            case Step.PEEK_SLOT:
                return slot_content(log.committed())
            case Step.READ_SLOT:
                if world.schedule.is_over:
                    world.broker.write_control_records()
                return slot_content(read_to_the_end(log))
            case Step.INIT:
                self._init(executor, task.slot)
            case Step.BEGIN if (executor, task.slot) not in self._handles:
                self._init(executor, task.slot)
            case BeginRows(delivered=ids):
                task.begin(ids)
            case Step.TAKE_ROWS:
                return tuple(task.take_rows(world.topics, world.schedule)), task.is_over
            case Step.DROP_ROWS:
                while not task.is_over:
                    task.take_rows(world.topics, world.schedule)
                    yield
            case WriteRows(rows=rows):
                for row in rows:
                    self._produce(executor, task.slot, world.output[task.slot], row)
                    yield
            case WritePart(part=part):
                self._produce(executor, task.slot, log, part)
                world.parts.append(part)
            case WriteMarker(marker=record) | WriteFence(fence=record):
                self._produce(executor, task.slot, log, record)
            case Step.COMMIT:
                return self._end(executor, task.slot)
            case Step.ABORT:
                if self._schedule.choose() % 2:
                    with suppress(NotDeliveredError):
                        world.broker.end(self._handles[executor, task.slot], "aborted")
        return None

    def _init(self, executor: int, slot: int) -> None:
        if 255 <= (choice := self._schedule.choose()):
            raise commit_protocol.UnavailableError("no answer")
        self._handles[executor, slot] = self._world.broker.init(f"id-{slot}")
        if 253 <= choice:
            raise commit_protocol.UnavailableError("the answer was lost")

    def _produce(self, executor: int, slot: int, log: Any, payload: Any) -> None:
        if 254 <= self._schedule.choose():
            raise commit_protocol.AbortedError("not taken", retryable=True)
        self._world.broker.produce(self._handles[executor, slot], log, payload)

    def _end(self, executor: int, slot: int) -> bool:
        """Whether the request was sent twice."""
        broker, handle = self._world.broker, self._handles[executor, slot]
        choice = self._schedule.choose()
        is_twice = 226 <= choice < 246
        if is_twice:  # the first one is late, the second one is answered
            broker.delay(handle, "committed")
        elif 246 <= choice < 248:
            raise commit_protocol.UnknownOutcomeError("the request was lost")
        elif 248 <= choice < 252:
            broker.delay(handle, "committed")
            raise commit_protocol.UnknownOutcomeError("the request is late")
        broker.end(handle, "committed")
        if 252 <= choice:
            raise commit_protocol.UnknownOutcomeError("the answer was lost")
        return is_twice


def slot_content(records: list[Any]) -> SlotContent:
    markers = [record for record in records if isinstance(record, Marker)]
    parts = tuple(record for record in records if isinstance(record, Part))
    fences = tuple(record for record in records if isinstance(record, Fence))
    return SlotContent(markers[-1] if markers else None, parts, fences)


def _moved(position: Offsets, side: int, end: int) -> Offsets:
    return (end, position[1]) if side == 0 else (position[0], end)
