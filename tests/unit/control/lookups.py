"""A control handler on a clock that stands still, whose lookups advance it."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

from job.change.spec_file import SpecFile
from job.change.spec_process import SpecProcess
from job.control.control_handler import ControlHandler
from job.control.lookup_queue import PAUSE_SECONDS_MAX, WAITING_MAX
from job.control.query_runner import QueryRunner
from job.kafka.broker_watch import BrokerWatch
from job.plan.plan import JoinPlan
from job.protocol import calls
from job.protocol.reports import SideCount, StateCount
from job.protocol.results import KeyExplanation, KeyRows, PlanResult
from job.protocol.status import JobStatus, QueryState
from job.query.stats import QueryStats
from job.spec.sides import Side
from tests.polling import wait_until
from tests.unit.service.builders import NOW, batch, broker_report, status

PATIENCE_SECONDS = 20.0
LOOKUP_SECONDS = 4.0
_NO_ROWS = KeyRows(side="left", key=[], batch_id=7, rows=[], more=False, duration_seconds=0)
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
            left=SideCount.of([], []),
            right=SideCount.of([], []),
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
        self.state = QueryState.RUNNING
        self.status_calls = 0
        self.refusal: Exception | None = None
        self.change_control = SimpleNamespace(plan=lambda request, _: self._refuse_change(request))

    def status(self) -> JobStatus:
        self.status_calls += 1
        return status(self.state, last_batch=self.last_batch)

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
            cast("SpecFile", None),
            lambda *_: KeyExplanation(sentences=[], left=_NO_ROWS, right=_NO_ROWS),
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
