"""State lookups run one at a time, in order; other calls do not wait for them."""

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

from job.change.spec_process import SpecProcess
from job.control.control_handler import COUNT_LATEST_SECONDS, ControlHandler
from job.control.lookup_queue import PAUSE_SECONDS_MAX, WAITING_MAX
from job.control.query_runner import QueryRunner
from job.errors import (
    BusyError,
    CancelledError,
    CheckpointError,
    ConflictError,
    Problem,
    RequestError,
    RetentionError,
    SpecError,
)
from job.kafka.broker_watch import BrokerWatch
from job.plan.plan import JoinPlan
from job.protocol import calls
from job.protocol.control import control_socket
from job.protocol.reports import SideCount, StateCount
from job.protocol.results import KeyRows, PlanResult
from job.protocol.status import JobStatus
from job.query.stats import QueryStats
from job.spec.sides import Side
from tests.polling import wait_until
from tests.unit.service.builders import NOW, batch, broker_report, side, status
from tests.unit.service.calls import settings, with_client
from tests.unit.specs import plan

PATIENCE_SECONDS = 20.0
LOOKUP_SECONDS = 4.0
LOOKUPS = ["state", "explain", "state_count"]


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Reader:
    """Each lookup advances the clock by LOOKUP_SECONDS."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.work: Callable[[], None] = lambda: None
        self.during_count: Callable[[Event], None] = lambda _: None
        self.keys: list[str] = []

    def rows(self, side: Side, key: list[str], batch_id: int, **_: Any) -> KeyRows:
        self.keys += key
        self._run()
        return KeyRows(
            side=side,
            key=key,
            batch_id=batch_id,
            rows=[],
            more=False,
            duration_seconds=LOOKUP_SECONDS,
        )

    def count_rows(self, batch_id: int, cancel: Event) -> StateCount:
        self.during_count(cancel)
        self._run()
        return StateCount(
            batch_id=batch_id,
            counted_at=NOW,
            duration_seconds=LOOKUP_SECONDS,
            left=SideCount.of([]),
            right=SideCount.of([]),
        )

    def _run(self) -> None:
        self.work()
        self.clock.now += LOOKUP_SECONDS


class FakeRunner:
    """The part of the query runner that the handler uses."""

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.frozen: dict[str, str] | None = None
        self.last_batch = batch()
        self.status_calls = 0
        self.refusal: Exception | None = None
        self.change_control = SimpleNamespace(plan=lambda request, _: self._refuse_change(request))

    def status(self) -> JobStatus:
        self.status_calls += 1
        return status(last_batch=self.last_batch)

    def state_reader(self) -> tuple[Reader, int]:
        return self.reader, 7

    def command(self, command: calls.Change) -> None:
        assert "ada" == command.by
        self._refuse_change(command)

    def _refuse_change(self, request: calls.Change | calls.ChangePlan) -> None:
        assert ("name: x", 8) == (request.spec, request.state_partitions)
        assert self.refusal is not None
        raise self.refusal


class Harness:
    def __init__(self, clock: Clock, joined: JoinPlan) -> None:
        self.clock = clock
        self.callers = ThreadPoolExecutor(WAITING_MAX + 1)
        self.release = threading.Event()
        self.reader = Reader(clock)
        self.runner = FakeRunner(self.reader)
        self.handler = ControlHandler(
            cast("QueryRunner", self.runner),
            QueryStats(),
            cast("BrokerWatch", SimpleNamespace(report=broker_report)),
            joined,
            PlanResult(text="", facts={}, spec={}),
            cast("SpecProcess", SimpleNamespace(validate=lambda *_, **__: "validated")),
        )

    def read(self, call: str, key: str = "7", gone: Event | None = None) -> Any:
        requests: dict[str, calls.Read] = {
            "plan": calls.Plan(),
            "progress": calls.Progress(),
            "failures": calls.Failures(),
            "state": calls.State(side="left", key=[key], limit=5),
            "explain": calls.Explain(key=[key], limit=5),
            "state_count": calls.StateCount(),
            "validate": calls.Validate(spec="name: x"),
        }
        return self.handler.read(requests[call], gone or Event())

    def submit(self, call: str, key: str = "7", gone: Event | None = None) -> "Future[Any]":
        """Calls `read` in another thread."""
        return self.callers.submit(self.read, call, key, gone)

    def wait_for_waiting(self, count: int) -> None:
        waiting = self.handler._lookups._waiting
        wait_until(lambda: len(waiting) == count, PATIENCE_SECONDS, f"{count} lookups wait")

    def wait_for_all(self, lookups: "list[Future[Any]]") -> None:
        """Advances the clock until all lookups have ended."""

        def completed() -> bool:
            self.clock.now += PAUSE_SECONDS_MAX
            return all(lookup.done() for lookup in lookups)

        wait_until(completed, PATIENCE_SECONDS, "all lookups end")
        assert all(lookup.result() is not None for lookup in lookups)

    @contextmanager
    def running(self, call: str) -> "Iterator[Future[Any]]":
        """A lookup that runs until the context ends, or `release` is set."""
        started = threading.Event()
        self.release.clear()

        def work() -> None:
            started.set()
            assert self.release.wait(PATIENCE_SECONDS)

        self.reader.work = work
        lookup = self.submit(call)
        try:
            assert started.wait(PATIENCE_SECONDS)
            yield lookup
        finally:
            self.reader.work = lambda: None
            self.release.set()


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Harness:
    clock = Clock()
    monkeypatch.setattr("job.control.control_handler.time", clock)
    monkeypatch.setattr("job.control.lookup_queue.time", clock)
    return Harness(clock, plan())


@pytest.mark.parametrize("second", LOOKUPS)
@pytest.mark.parametrize("first", LOOKUPS)
def test_lookup_waits_until_the_earlier_one_has_ended(
    first: str, second: str, harness: Harness
) -> None:
    with harness.running(first) as lookup:
        waiting = harness.submit(second)
        harness.wait_for_waiting(1)
        assert not lookup.done()
    assert lookup.result(PATIENCE_SECONDS) is not None
    harness.clock.now += LOOKUP_SECONDS  # the pause after the first
    assert waiting.result(PATIENCE_SECONDS) is not None


def test_waiting_lookups_run_in_their_order(harness: Harness) -> None:
    keys = [str(number) for number in range(WAITING_MAX)]
    with harness.running("state"):
        waiting = []
        for count, key in enumerate(keys, start=1):
            waiting.append(harness.submit("state", key))
            harness.wait_for_waiting(count)
    harness.wait_for_all(waiting)
    assert ["7", *keys] == harness.reader.keys


def test_lookup_is_refused_only_if_many_wait(harness: Harness) -> None:
    harness.read("state")
    harness.clock.now += PAUSE_SECONDS_MAX
    with harness.running("explain"):
        waiting = [harness.submit("state") for _ in range(WAITING_MAX)]
        harness.wait_for_waiting(WAITING_MAX)
        with pytest.raises(BusyError) as refused:
            harness.read("state")
    assert WAITING_MAX * LOOKUP_SECONDS == refused.value.retry_after_seconds
    harness.wait_for_all(waiting)


@pytest.mark.parametrize("call", LOOKUPS)
def test_next_lookup_waits_for_the_pause(call: str, harness: Harness) -> None:
    harness.read(call)
    paused = harness.submit(call)
    harness.clock.now += PAUSE_SECONDS_MAX - 0.001
    harness.wait_for_waiting(1)
    assert not paused.done()
    harness.clock.now += 0.001
    assert paused.result(PATIENCE_SECONDS) is not None


def test_waiting_lookup_ends_when_its_caller_is_gone(harness: Harness) -> None:
    gone = Event()
    with harness.running("state"):
        waiting = harness.submit("state", gone=gone)
        harness.wait_for_waiting(1)
        gone.set()
        with pytest.raises(CancelledError):
            waiting.result(PATIENCE_SECONDS)
        harness.wait_for_waiting(0)


@pytest.mark.parametrize("call", LOOKUPS)
def test_periodic_count_is_cancelled_by_a_lookup(
    call: str, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job.control.control_handler.COUNT_PAUSE_SECONDS", 0.001)
    counting = threading.Event()
    cancelled: list[bool] = []

    def count(cancel: Event) -> None:
        if not counting.is_set():
            counting.set()
            cancelled.append(cancel.wait(PATIENCE_SECONDS))
            raise CancelledError("the count was cancelled")

    harness.reader.during_count = count
    harness.handler.start()
    try:
        assert counting.wait(PATIENCE_SECONDS)
        assert harness.read(call) is not None
        assert [True] == cancelled
        harness.clock.now += PAUSE_SECONDS_MAX
        wait_until(
            lambda: harness.handler.status().state_count, PATIENCE_SECONDS, "the rows are counted"
        )
    finally:
        harness.handler.close()


def test_periodic_count_ends_with_the_job(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job.control.control_handler.COUNT_PAUSE_SECONDS", 0.001)
    counting, ended = threading.Event(), threading.Event()

    def count(cancel: Event) -> None:
        counting.set()
        assert cancel.wait(PATIENCE_SECONDS)
        ended.set()

    harness.reader.during_count = count
    harness.handler.start()
    assert counting.wait(PATIENCE_SECONDS)
    harness.handler.close()
    assert ended.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize(
    ("refusal", "of_the_call"),
    [
        (SpecError([Problem("join.type", None, "is unknown")]), RequestError),
        (CheckpointError("contains a query"), ConflictError),
        (RetentionError("Kafka has deleted records"), ConflictError),
        (ConflictError("is being changed", allowed=[]), ConflictError),
    ],
)
def test_refused_change_is_an_error_of_its_call(
    harness: Harness, refusal: Exception, of_the_call: type[Exception]
) -> None:
    harness.runner.refusal = refusal
    plan = calls.ChangePlan(spec="name: x", state_partitions=8)
    change = calls.Change(by="ada", spec="name: x", state_partitions=8)
    for call in (
        lambda: harness.handler.read(plan, Event()),
        lambda: harness.handler.command(change),
    ):
        with pytest.raises(of_the_call) as raised:
            call()
        assert str(refusal) == str(raised.value)


def test_lookups_over_http_wait_and_only_the_last_of_many_is_refused(
    harness: Harness, tmp_path: Path
) -> None:
    url = "/v1/query/explain?key=7"

    async def send(client: httpx.AsyncClient) -> list[httpx.Response]:
        asking = [asyncio.create_task(client.get(url)) for _ in range(WAITING_MAX)]
        await asyncio.to_thread(harness.wait_for_waiting, WAITING_MAX)
        refused = await client.get(url)
        harness.release.set()
        while not all(task.done() for task in asking):
            harness.clock.now += LOOKUP_SECONDS
            await asyncio.sleep(0)
        return [refused, *[task.result() for task in asking]]

    with (
        control_socket(tmp_path / "job.sock", harness.handler),
        harness.running("state") as lookup,
    ):
        refused, *answers = with_client(send, settings(tmp_path / "job.sock"))
        assert lookup.result(PATIENCE_SECONDS) is not None
    assert (429, "1") == (refused.status_code, refused.headers["retry-after"])
    assert [200] * WAITING_MAX == [answer.status_code for answer in answers]


def test_next_lookup_runs_after_a_cancelled_one(harness: Harness) -> None:
    def cancel() -> None:
        raise CancelledError("the caller closed the connection")

    harness.reader.work = cancel
    with pytest.raises(CancelledError):
        harness.read("state")
    harness.reader.work = lambda: None
    assert harness.read("state") is not None


@pytest.mark.parametrize("reason", ["the backlog is read", "the longest delay is over"])
def test_rows_are_not_counted_while_a_backlog_is_read(
    reason: str, harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job.control.control_handler.COUNT_PAUSE_SECONDS", 0.001)
    harness.runner.last_batch = behind = batch(
        left=side(records=100, end_offsets={0: 100}, latest_offsets={0: 201})
    )
    assert behind.has_backlog
    counted = threading.Event()
    harness.reader.work = counted.set
    harness.handler.start()
    try:
        wait_until(
            lambda: harness.runner.status_calls > 20,
            PATIENCE_SECONDS,
            "the handler has polled often",
        )
        assert not counted.is_set()
        if reason == "the backlog is read":
            harness.runner.last_batch = batch(
                left=side(records=100, end_offsets={0: 101}, latest_offsets={0: 201})
            )
        else:
            harness.clock.now += COUNT_LATEST_SECONDS
        assert counted.wait(PATIENCE_SECONDS)
    finally:
        harness.handler.close()


def test_other_calls_do_not_wait_for_the_pause(harness: Harness) -> None:
    harness.read("state")

    for call in ("plan", "progress", "failures", "validate"):
        assert harness.read(call) is not None
