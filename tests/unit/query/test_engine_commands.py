"""Which commands the engine accepts one after the other. No query runs."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any, NoReturn
from unittest.mock import MagicMock

import pytest

from job.change import sent_spec
from job.change.sent_spec import PlannedSpec, WrittenSpec
from job.errors import CancelledError, ConflictError, QueryError, TopicError
from job.join_spec import spec
from job.join_spec.spec import spec_from_yaml
from job.plan.plan import JoinPlan
from job.protocol.calls import (
    Cancel,
    Change,
    ChangePlan,
    Command,
    Pause,
    Restart,
    Resume,
    Stop,
    Undo,
)
from job.protocol.results import ChangePlanResult
from job.protocol.status import QueryState
from job.query import old_query, requested_change
from job.query.engine import Engine
from job.query.old_query import Wait
from job.query.requested_change import RequestedChange
from job.query.state_machine import StateMachine
from job.query.stats import QueryStats
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.failures import jvm_is_gone
from tests.polling import wait_until
from tests.unit.query.requested_changes import PlannerOfTests
from tests.unit.specs import plan, spec_yaml

NEW = spec_yaml(checkpoint="/checkpoints/next")
PLAN, CHANGE = ChangePlan(spec=NEW), Change(spec=NEW)
PATIENCE_SECONDS = 20.0


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    return engine_of(plan(), monkeypatch)


def engine_of(joined: JoinPlan, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Its query is RUNNING."""
    unused: Any = None
    machine = StateMachine()
    machine.become(QueryState.RUNNING)
    monkeypatch.setattr("job.query.engine.StateMachine", lambda: machine)
    settings, redaction = JobSettings(), Redaction()
    written = WrittenSpec(spec_yaml(), spec_from_yaml(spec_yaml(), {}))
    running = PlannedSpec(written, joined)
    change = RequestedChange(running, lambda _: joined, settings, redaction, PlannerOfTests())
    stats = QueryStats(joined.topics, joined.deduplicated)
    return Engine(joined, settings, redaction, stats, unused, unused, unused, unused, change)


def change_plan(engine: Engine) -> ChangePlanResult:
    return engine.change_control.plan(PLAN, Event())


@pytest.mark.parametrize("command", [Pause(), Stop(), Restart()])
def test_change_is_refused_while_another_command_is_pending(
    engine: Engine, command: Command
) -> None:
    engine.command(command)

    for call in (
        lambda: change_plan(engine),
        lambda: engine.command(CHANGE),
        engine.change_control.check_undo,
        lambda: engine.command(Undo()),
    ):
        with pytest.raises(ConflictError, match=f"while {command.call} is pending"):
            call()


def request_change(engine: Engine) -> None:
    engine._change.planned(PLAN, Event())
    engine.command(CHANGE)


def test_paused_query_notices_that_its_jvm_has_ended(engine: Engine) -> None:
    """Otherwise nobody renews its lease, and another job could take the checkpoint."""
    engine._machine.become(QueryState.PAUSED)
    engine._machine.desired = QueryState.PAUSED
    engine._resources = MagicMock(jvm_has_ended=False, lease_is_lost=False, session_is_lost=False)
    engine._lineage = MagicMock()
    with ThreadPoolExecutor() as thread:
        paused = thread.submit(engine._approach_desired_state)
        engine._resources.check_jvm.side_effect = jvm_is_gone()
        engine._resources.jvm_has_ended = True
        paused.result(PATIENCE_SECONDS)

    engine._resources.release_if_dead.assert_called_once_with(is_retried=True)
    assert QueryState.RESTARTING is engine._machine.state
    assert "the JVM is gone" in str(engine._stats.last_failure)


@pytest.mark.parametrize("command", [Pause(), Stop(), Restart(), CHANGE, Undo(), Cancel()])
def test_commands_are_refused_until_the_change_is_made(engine: Engine, command: Command) -> None:
    """Otherwise a stop would be accepted, and the new query would run."""
    request_change(engine)
    engine._change._prepared = engine._change._waiting
    engine._machine.stop_for(engine._change.begin)
    assert (QueryState.STOPPED, True) == (
        engine._machine.desired,
        engine._machine.completes_interval,
    )

    with pytest.raises(ConflictError, match="is being changed"):
        engine.command(command)
    for call in (lambda: change_plan(engine), engine.change_control.check_undo):
        with pytest.raises(ConflictError, match="is being changed"):
            call()


def test_other_calls_do_not_wait_while_a_spec_is_planned(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning, release = Event(), Event()

    def plan_slowly(*_: object, **__: object) -> NoReturn:
        planning.set()
        assert release.wait(PATIENCE_SECONDS)
        raise CancelledError("the client is gone")

    monkeypatch.setattr(PlannerOfTests, "plan", plan_slowly)
    with ThreadPoolExecutor(2) as pool:
        change = pool.submit(change_plan, engine)
        assert planning.wait(PATIENCE_SECONDS)
        command = pool.submit(engine.command, Pause())
        try:
            command.result(PATIENCE_SECONDS)
            assert QueryState.PAUSED is engine._machine.desired
        finally:
            release.set()
        assert isinstance(change.exception(PATIENCE_SECONDS), CancelledError)


def test_change_parses_no_spec_while_it_holds_the_lock(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine._change.planned(PLAN, Event())

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a spec is parsed")

    for module in (sent_spec, spec):
        monkeypatch.setattr(module, "parsed", refuse)
    engine.command(CHANGE)
    assert engine._change.is_waiting


@pytest.mark.parametrize(
    ("command", "desired"),
    [
        (Pause(by="bob"), QueryState.PAUSED),
        (Stop(by="bob"), QueryState.STOPPED),
        (Restart(by="bob"), QueryState.RUNNING),
        (Cancel(by="bob"), QueryState.RUNNING),
    ],
)
def test_command_is_accepted_while_a_change_waits_and_cancels_it(
    command: Command, desired: QueryState, engine: Engine
) -> None:
    request_change(engine)
    assert QueryState.RUNNING is engine._machine.desired

    engine.command(command)

    assert (desired, command.call == "restart") == (
        engine._machine.desired,
        engine._machine.restart_requested,
    )
    report = engine._change.report
    assert report is not None
    assert f"{command.call} of bob has cancelled the change while it waited" == report.error


def test_resume_does_not_cancel_a_change_that_waits(engine: Engine) -> None:
    request_change(engine)
    engine.command(Resume())
    assert engine._change.is_waiting


@pytest.mark.parametrize("command", [Stop(query_id="old"), Resume(query_id="old")])
def test_command_for_another_query_is_refused(engine: Engine, command: Command) -> None:
    """Another client has changed the join since the check of a change."""
    for query_id in (None, "new"):
        engine._query_id = query_id
        with pytest.raises(ConflictError, match="the job does not run query old"):
            engine.command(command)
    engine._query_id = "old"
    engine.command(command)


@contextmanager
def running(engine: Engine) -> "Iterator[tuple[Future[None], Future[None]]]":
    """The run of the query, and the call that waits for its end."""
    engine._resources = engine.change_control._resources = MagicMock(lease_is_lost=False)
    engine._identity = MagicMock(failure=None)
    run: Future[None] = Future()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(engine._await_end, run)
        try:
            yield run, waiting
        finally:
            engine.end()


def test_refused_change_leaves_the_query_running(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise TopicError("output.topic does not exist")

    monkeypatch.setattr(engine._change, "_checked", refuse)
    monkeypatch.setattr(requested_change, "waits", lambda *_: iter(()))
    with running(engine) as (_, waiting):
        request_change(engine)
        wait_until(lambda: not engine._change.is_waiting, PATIENCE_SECONDS, "it is refused")
        assert not waiting.done()
        assert (QueryState.RUNNING, False) == (
            engine._machine.desired,
            engine._machine.stop_requested,
        )
    report = engine._change.report
    assert report is not None
    assert "output.topic does not exist" == report.error


@pytest.mark.parametrize("end", ["identity", "run"])
def test_change_that_waits_prevents_no_end_of_the_run(
    end: str, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`identity`: a topic was created again."""
    looks = []

    def waits(*_: object) -> Iterator[Wait]:
        while True:
            looks.append(None)
            yield Wait("repeats", "stuck")

    monkeypatch.setattr(requested_change, "waits", waits)
    monkeypatch.setattr(old_query, "POLL_SECONDS", 0.01)
    with running(engine) as (run, waiting):
        request_change(engine)
        wait_until(lambda: looks, PATIENCE_SECONDS, "the change waits")
        if end == "run":
            run.set_result(None)
        else:
            engine._identity.failure = TopicError("created again")
        waiting.result(PATIENCE_SECONDS)
        assert engine._change.is_waiting
        assert not engine._machine.stop_requested


def test_query_stops_once_its_change_waits_for_nothing(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine._change, "prepare", lambda *_: True)
    with running(engine) as (_, waiting):
        request_change(engine)
        engine._change._prepared = engine._change._waiting
        waiting.result(PATIENCE_SECONDS)
    assert (QueryState.STOPPED, True) == (
        engine._machine.desired,
        engine._machine.completes_interval,
    )
    assert engine._change.is_requested


@pytest.mark.parametrize("retryable", [True, False])
def test_restart_that_is_requested_during_a_failing_start_follows_the_failure(
    engine: Engine, *, retryable: bool
) -> None:
    """Otherwise the query would stay FAILED although the command was accepted."""
    engine._lineage, engine._resources = MagicMock(), MagicMock(lease_is_lost=False)
    engine.command(Restart())

    with ThreadPoolExecutor() as threads:
        failed = threads.submit(
            engine._fail, QueryError("the topic is missing", retryable=retryable)
        )
        try:
            failed.result(10)
        finally:
            engine.end()

    assert QueryState.RESTARTING is engine._machine.state
    assert 1 == engine._stats.totals.restarts


@pytest.mark.parametrize("changes", [{}, {"engine": "real_time"}])
def test_changed_query_continues_with_the_new_spec_although_an_old_topic_was_deleted(
    changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_of(plan(**changes), monkeypatch)
    missing = MagicMock(side_effect=TopicError("output.topic does not exist"))
    monkeypatch.setattr("job.query.preparation.check_topics", missing)
    engine._resources = MagicMock()
    new = PlannedSpec(WrittenSpec(NEW, spec_from_yaml(NEW, {})), plan())
    monkeypatch.setattr(engine._change, "successor_of", lambda _: new)

    engine._run_query()

    assert new is engine._successor
