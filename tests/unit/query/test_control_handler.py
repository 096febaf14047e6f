"""Lookups of state: one at a time, in order; and what else the job answers."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest

from job.errors import BusyError, CancelledError
from job.join_spec.sides import Side
from job.kafka.broker_watch import BrokerWatch
from job.plan.plan import JoinPlan
from job.protocol.control import Request, StateRequest, control_socket
from job.protocol.reports import SideCount, StateCount
from job.protocol.results import KeyRows, PlanResult, ValidationResult
from job.protocol.status import JobStatus
from job.query.control_handler import COUNT_LATEST_SECONDS, ControlHandler
from job.query.engine import Engine
from job.query.lookup_queue import PAUSE_SECONDS_MAX, WAITING_MAX
from job.query.stats import QueryStats
from tests.polling import wait_until
from tests.unit.service.builders import NOW, batch, broker_report, side, status
from tests.unit.service.calls import settings, with_client
from tests.unit.specs import plan, spec_yaml

PATIENCE_SECONDS = 20.0
LOOK_UP_SECONDS = 4.0
QUESTIONS = ["state", "explain", "state_count"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Reader:
    """Takes its time, of which each look-up costs some seconds of the clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.work: Callable[[], None] = lambda: None
        self.during_count: Callable[[Event], None] = lambda _: None
        self.keys: list[str] = []

    def rows(self, side: Side, key: list[str], batch_id: int, **_: Any) -> KeyRows:
        self.keys += key
        self._look()
        return KeyRows(
            side=side,
            key=key,
            batch_id=batch_id,
            rows=[],
            more=False,
            duration_seconds=LOOK_UP_SECONDS,
        )

    def count_rows(self, batch_id: int, cancel: Event) -> StateCount:
        self.during_count(cancel)
        self._look()
        return StateCount(
            batch_id=batch_id,
            counted_at=NOW,
            duration_seconds=LOOK_UP_SECONDS,
            left=SideCount.of([]),
            right=SideCount.of([]),
        )

    def _look(self) -> None:
        self.work()
        self.clock.now += LOOK_UP_SECONDS


class Query:
    """As much of the engine as the desk asks."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.frozen: dict[str, str] | None = None
        self.last_batch = batch()
        self.asked = 0

    def status(self) -> JobStatus:
        self.asked += 1
        return status(last_batch=self.last_batch)

    def state_reader(self) -> tuple[Reader, int]:
        return self.reader, 7


class Office:
    def __init__(self, clock: Clock, joined: JoinPlan) -> None:
        self.clock = clock
        self.callers = ThreadPoolExecutor(WAITING_MAX + 1)
        self.go_on = threading.Event()
        self.reader = Reader(clock)
        self.query = Query(self.reader)
        self.desk = ControlHandler(
            cast("Engine", self.query),
            QueryStats(),
            cast("BrokerWatch", SimpleNamespace(report=broker_report)),
            joined,
            PlanResult(text="", facts={}, spec={}),
        )

    def ask(self, question: str, key: str = "7", gone: Event | None = None) -> Any:
        state = StateRequest(side="left", key=[key], limit=5)
        return self.desk.read(Request(call=cast("Any", question), state=state), gone or Event())

    def submit(self, question: str, key: str = "7", gone: Event | None = None) -> "Future[Any]":
        """Ask in another thread."""
        return self.callers.submit(self.ask, question, key, gone)

    def wait_for_waiting(self, count: int) -> None:
        waiting = self.desk._lookups._waiting
        wait_until(lambda: len(waiting) == count, PATIENCE_SECONDS, f"{count} lookups wait")

    def wait_for_all(self, lookups: "list[Future[Any]]") -> None:
        """Until all have their answer; time passes meanwhile."""

        def answered() -> bool:
            self.clock.now += PAUSE_SECONDS_MAX
            return all(lookup.done() for lookup in lookups)

        wait_until(answered, PATIENCE_SECONDS, "all lookups are answered")
        assert all(lookup.result() is not None for lookup in lookups)

    @contextmanager
    def held_up(self, question: str) -> "Iterator[Future[Any]]":
        """A lookup that runs until the context ends, or `go_on` is set."""
        started = threading.Event()
        self.go_on.clear()

        def work() -> None:
            started.set()
            assert self.go_on.wait(PATIENCE_SECONDS)

        self.reader.work = work
        running = self.submit(question)
        try:
            assert started.wait(PATIENCE_SECONDS)
            yield running
        finally:
            self.reader.work = lambda: None
            self.go_on.set()

    def judged(self, **changes: Any) -> ValidationResult:
        request = Request(call="validate", spec=spec_yaml(**changes))
        return cast("ValidationResult", self.desk.read(request, Event()))


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Office:
    clock = Clock()
    monkeypatch.setattr("job.query.control_handler.time", clock)
    monkeypatch.setattr("job.query.lookup_queue.time", clock)
    return Office(clock, plan())


@pytest.mark.parametrize("second", QUESTIONS)
@pytest.mark.parametrize("first", QUESTIONS)
def test_a_lookup_waits_until_the_one_before_has_ended(
    first: str, second: str, office: Office
) -> None:
    with office.held_up(first) as running:
        waiting = office.submit(second)
        office.wait_for_waiting(1)
        assert not running.done()
    assert running.result(PATIENCE_SECONDS) is not None
    office.clock.now += LOOK_UP_SECONDS  # the pause after the first
    assert waiting.result(PATIENCE_SECONDS) is not None


def test_waiting_lookups_run_in_their_order(office: Office) -> None:
    keys = [str(number) for number in range(WAITING_MAX)]
    with office.held_up("state"):
        waiting = []
        for count, key in enumerate(keys, start=1):
            waiting.append(office.submit("state", key))
            office.wait_for_waiting(count)
    office.wait_for_all(waiting)
    assert ["7", *keys] == office.reader.keys


def test_only_where_many_wait_a_lookup_is_refused(office: Office) -> None:
    office.ask("state")
    office.clock.now += PAUSE_SECONDS_MAX
    with office.held_up("explain"):
        waiting = [office.submit("state") for _ in range(WAITING_MAX)]
        office.wait_for_waiting(WAITING_MAX)
        with pytest.raises(BusyError) as refused:
            office.ask("state")
    assert WAITING_MAX * LOOK_UP_SECONDS == refused.value.retry_after_seconds
    office.wait_for_all(waiting)


@pytest.mark.parametrize("question", QUESTIONS)
def test_after_a_lookup_the_next_one_waits_for_the_pause(question: str, office: Office) -> None:
    office.ask(question)
    paused = office.submit(question)
    office.clock.now += PAUSE_SECONDS_MAX - 0.001
    office.wait_for_waiting(1)
    assert not paused.done()
    office.clock.now += 0.001
    assert paused.result(PATIENCE_SECONDS) is not None


def test_a_waiting_lookup_ends_once_its_caller_has_gone(office: Office) -> None:
    gone = Event()
    with office.held_up("state"):
        waiting = office.submit("state", gone=gone)
        office.wait_for_waiting(1)
        gone.set()
        with pytest.raises(CancelledError):
            waiting.result(PATIENCE_SECONDS)
        office.wait_for_waiting(0)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_job_s_own_count_gives_way_to_a_lookup(
    question: str, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job.query.control_handler.COUNT_PAUSE_SECONDS", 0.001)
    counting = threading.Event()
    gave_way: list[bool] = []

    def count(cancel: Event) -> None:
        if not counting.is_set():
            counting.set()
            gave_way.append(cancel.wait(PATIENCE_SECONDS))
            raise CancelledError("the count gave way")

    office.reader.during_count = count
    office.desk.start()
    try:
        assert counting.wait(PATIENCE_SECONDS)
        assert office.ask(question) is not None
        assert [True] == gave_way
        office.clock.now += PAUSE_SECONDS_MAX
        wait_until(
            lambda: office.desk.status().state_count, PATIENCE_SECONDS, "the rows are counted"
        )
    finally:
        office.desk.close()


def test_the_job_s_own_count_ends_with_the_job(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job.query.control_handler.COUNT_PAUSE_SECONDS", 0.001)
    counting, ended = threading.Event(), threading.Event()

    def count(cancel: Event) -> None:
        counting.set()
        assert cancel.wait(PATIENCE_SECONDS)
        ended.set()

    office.reader.during_count = count
    office.desk.start()
    assert counting.wait(PATIENCE_SECONDS)
    office.desk.close()
    assert ended.wait(PATIENCE_SECONDS)


def test_over_http_lookups_wait_and_only_the_last_of_many_is_refused(
    office: Office, tmp_path: Path
) -> None:
    url = "/v1/query/explain?key=7"

    async def talk(client: httpx.AsyncClient) -> list[httpx.Response]:
        asking = [asyncio.create_task(client.get(url)) for _ in range(WAITING_MAX)]
        await asyncio.to_thread(office.wait_for_waiting, WAITING_MAX)
        refused = await client.get(url)
        release.set()
        while not all(task.done() for task in asking):
            office.clock.now += LOOK_UP_SECONDS
            await asyncio.sleep(0)
        return [refused, *[task.result() for task in asking]]

    with (
        control_socket(tmp_path / "job.sock", office.desk),
        office.held_up("state") as running,
    ):
        release = office.go_on
        refused, *answers = with_client(talk, settings(tmp_path / "job.sock"))
        assert running.result(PATIENCE_SECONDS) is not None
    assert (429, "1") == (refused.status_code, refused.headers["retry-after"])
    assert [200] * WAITING_MAX == [answer.status_code for answer in answers]


def test_after_a_cancelled_lookup_the_next_one_runs(office: Office) -> None:
    def given_up() -> None:
        raise CancelledError("the caller closed the connection")

    office.reader.work = given_up
    with pytest.raises(CancelledError):
        office.ask("state")
    office.reader.work = lambda: None
    assert office.ask("state") is not None


@pytest.mark.parametrize("way_out", ["the backlog is read", "it was put off for long enough"])
def test_while_a_backlog_is_read_no_rows_are_counted(
    way_out: str, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job.query.control_handler.COUNT_PAUSE_SECONDS", 0.001)
    office.query.last_batch = behind = batch(
        left=side(records=100, end_offsets={0: 100}, latest_offsets={0: 201})
    )
    assert behind.has_backlog
    counted = threading.Event()
    office.reader.work = counted.set
    office.desk.start()
    try:
        wait_until(lambda: office.query.asked > 20, PATIENCE_SECONDS, "it was asked often")
        assert not counted.is_set()
        if way_out == "the backlog is read":
            office.query.last_batch = batch(
                left=side(records=100, end_offsets={0: 101}, latest_offsets={0: 201})
            )
        else:
            office.clock.now += COUNT_LATEST_SECONDS
        assert counted.wait(PATIENCE_SECONDS)
    finally:
        office.desk.close()


@pytest.mark.processes
def test_what_costs_no_look_up_is_answered_meanwhile(office: Office) -> None:
    office.ask("state")

    for question in ("plan", "progress", "failures"):
        assert office.ask(question) is not None
    assert [] == office.judged().problems
