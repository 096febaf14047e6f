"""What the desk lets through: one look-up of state at a time, and a pause after each."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from types import SimpleNamespace
from typing import Any, cast

import pytest

from job.errors import BusyError, CancelledError
from job.kafka.broker_watch import BrokerWatch
from job.plan.model import JoinPlan
from job.protocol.answers import PlanAnswer, StateAnswer, ValidationAnswer
from job.protocol.control import Request, StateRequest
from job.protocol.progress import JobStatus
from job.protocol.reports import StateCensus
from job.query.account import Account
from job.query.desk import CENSUS_LATEST_SECONDS, Desk
from job.query.engine import Engine
from tests.polling import wait_until
from tests.unit.service.builders import NOW, batch, broker_report, side, status
from tests.unit.specs import plan, spec_yaml

PATIENCE_SECONDS = 20.0
LOOK_UP_SECONDS = 4.0
QUESTIONS = ["state", "why", "state_census"]


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

    def rows(self, side: str, key: list[str], batch_id: int, **_: Any) -> StateAnswer:
        self._look()
        return StateAnswer(
            side=side, key=key, batch_id=batch_id, rows=[], more=False, seconds=LOOK_UP_SECONDS
        )

    def census(self, batch_id: int, **_: Any) -> StateCensus:
        self._look()
        return StateCensus(batch_id=batch_id, at=NOW, seconds=LOOK_UP_SECONDS, left=[], right=[])

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
        self.reader = Reader(clock)
        self.query = Query(self.reader)
        self.desk = Desk(
            cast("Engine", self.query),
            Account(),
            cast("BrokerWatch", SimpleNamespace(report=broker_report)),
            joined,
            PlanAnswer(text="", facts={}, spec={}),
        )

    def ask(self, question: str) -> Any:
        state = StateRequest(side="left", key=["7"], limit=5)
        return self.desk.answer(Request(call=cast("Any", question), state=state), Event())

    def judged(self, **changes: Any) -> ValidationAnswer:
        request = Request(call="validate", spec=spec_yaml(**changes))
        return cast("ValidationAnswer", self.desk.answer(request, Event()))


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Office:
    clock = Clock()
    monkeypatch.setattr("job.query.desk.time", clock)
    return Office(clock, plan())


@pytest.mark.parametrize("second", QUESTIONS)
@pytest.mark.parametrize("first", QUESTIONS)
def test_while_one_looks_up_another_is_told_to_ask_again(
    first: str, second: str, office: Office
) -> None:
    at_work, go_on = threading.Event(), threading.Event()

    def work() -> None:
        at_work.set()
        assert go_on.wait(PATIENCE_SECONDS)

    office.reader.work = work
    with ThreadPoolExecutor() as pool:
        looking = pool.submit(office.ask, first)
        try:
            assert at_work.wait(PATIENCE_SECONDS)
            with pytest.raises(BusyError) as refused:
                office.ask(second)
        finally:
            go_on.set()
        assert looking.result(PATIENCE_SECONDS) is not None
    assert 1.0 == refused.value.retry_after_seconds


@pytest.mark.parametrize("question", QUESTIONS)
def test_after_a_look_up_the_cores_are_the_query_s_for_as_long(
    question: str, office: Office
) -> None:
    began = office.clock.now
    office.ask(question)
    took = office.clock.now - began

    with pytest.raises(BusyError) as refused:
        office.ask(question)
    assert took == refused.value.retry_after_seconds
    office.clock.now += took
    assert office.ask(question) is not None


def test_a_look_up_that_was_given_up_leaves_the_desk_free(office: Office) -> None:
    def given_up() -> None:
        raise CancelledError("the look-up was given up")

    office.reader.work = given_up
    with pytest.raises(CancelledError):
        office.ask("state")
    office.reader.work = lambda: None
    assert office.ask("state") is not None


@pytest.mark.parametrize("way_out", ["the backlog is read", "it was put off for long enough"])
def test_while_a_backlog_is_read_no_rows_are_counted(
    way_out: str, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("job.query.desk.CENSUS_PAUSE_SECONDS", 0.001)
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
            office.clock.now += CENSUS_LATEST_SECONDS
        assert counted.wait(PATIENCE_SECONDS)
    finally:
        office.desk.close()


def test_what_costs_no_look_up_is_answered_meanwhile(office: Office) -> None:
    office.ask("state")

    for question in ("plan", "progress", "failures"):
        assert office.ask(question) is not None
    assert [] == office.judged().problems
