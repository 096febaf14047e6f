"""Which commands the query runner accepts one after the other. No query runs."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any, NoReturn
from unittest.mock import MagicMock

import pytest

from job.change import old_query, request, sent_spec
from job.change.old_query import Wait
from job.change.request import ChangeRequest
from job.change.sent_spec import PlannedSpec, WrittenSpec
from job.control.command_log import CommandLog
from job.control.query_runner import QueryRunner
from job.control.state_machine import StateMachine
from job.errors import CancelledError, ConflictError, QueryError, TopicError
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
from job.query.stats import QueryStats
from job.redaction import Redaction
from job.settings import JobSettings
from job.spark.failures import jvm_is_gone
from job.spec import spec
from job.spec.spec import spec_from_yaml
from tests.polling import wait_until
from tests.unit.change.requested_changes import PlannerOfTests
from tests.unit.specs import plan, spec_yaml

NEW = spec_yaml(checkpoint="/checkpoints/next")
PLAN, CHANGE = ChangePlan(spec=NEW), Change(spec=NEW)
PATIENCE_SECONDS = 20.0


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> QueryRunner:
    return runner_of(plan(), monkeypatch)


def runner_of(joined: JoinPlan, monkeypatch: pytest.MonkeyPatch) -> QueryRunner:
    """Its query is RUNNING."""
    unused: Any = None
    machine = StateMachine(CommandLog())
    machine.become(QueryState.RUNNING)
    monkeypatch.setattr("job.control.query_runner.StateMachine", lambda _: machine)
    settings, redaction = JobSettings(), Redaction()
    written = WrittenSpec(spec_yaml(), spec_from_yaml(spec_yaml(), {}))
    running = PlannedSpec(written, joined)
    change = ChangeRequest(running, lambda _: joined, settings, redaction, PlannerOfTests())
    stats = QueryStats(joined.topics)
    file = MagicMock(take_for=lambda _: None)
    file.name_in = lambda error: error.name_spec_file(Path("ads/join.yaml"))
    return QueryRunner(
        *(
            joined,
            settings,
            redaction,
            stats,
            unused,
            unused,
            unused,
            unused,
            change,
            file,
            CommandLog(),
        )
    )


def change_plan(runner: QueryRunner) -> ChangePlanResult:
    return runner.change_control.plan(PLAN, Event())


@pytest.mark.parametrize("command", [Pause(), Stop(), Restart()])
def test_change_is_refused_while_another_command_is_pending(
    runner: QueryRunner, command: Command
) -> None:
    runner.command(command)

    for call in (
        lambda: change_plan(runner),
        lambda: runner.command(CHANGE),
        runner.change_control.check_undo,
        lambda: runner.command(Undo()),
    ):
        with pytest.raises(ConflictError, match=f"while {command.call} is pending"):
            call()


def request_change(runner: QueryRunner) -> None:
    runner._change.plan_spec(PLAN, Event())
    runner.command(CHANGE)


def test_paused_query_notices_that_its_jvm_has_ended(runner: QueryRunner) -> None:
    """Otherwise nobody renews its lease, and another job could take the checkpoint."""
    runner._machine.become(QueryState.PAUSED)
    runner._machine.desired = QueryState.PAUSED
    runner._resources = MagicMock(jvm_has_ended=False, lease_is_lost=False, session_is_lost=False)
    runner._lineage = MagicMock()
    with ThreadPoolExecutor() as thread:
        paused = thread.submit(runner._approach_desired_state)
        runner._resources.check_jvm.side_effect = jvm_is_gone()
        runner._resources.jvm_has_ended = True
        paused.result(PATIENCE_SECONDS)

    runner._resources.release_if_dead.assert_called_once_with(is_retried=True)
    assert QueryState.RESTARTING is runner._machine.state
    assert "the JVM is gone" in str(runner._stats.last_failure)


@pytest.mark.parametrize("command", [Pause(), Stop(), Restart(), CHANGE, Undo(), Cancel()])
def test_commands_are_refused_until_the_change_is_made(
    runner: QueryRunner, command: Command
) -> None:
    """Otherwise a stop would be accepted, and the new query would run."""
    request_change(runner)
    runner._change._prepared = runner._change._waiting
    runner._machine.stop_for(runner._change.begin)
    assert (QueryState.STOPPED, True) == (
        runner._machine.desired,
        runner._machine.completes_interval,
    )

    with pytest.raises(ConflictError, match="is being changed"):
        runner.command(command)
    for call in (lambda: change_plan(runner), runner.change_control.check_undo):
        with pytest.raises(ConflictError, match="is being changed"):
            call()


def test_other_calls_do_not_wait_while_a_spec_is_planned(
    runner: QueryRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    planning, release = Event(), Event()

    def plan_slowly(*_: object, **__: object) -> NoReturn:
        planning.set()
        assert release.wait(PATIENCE_SECONDS)
        raise CancelledError("the client is gone")

    monkeypatch.setattr(PlannerOfTests, "plan", plan_slowly)
    with ThreadPoolExecutor(2) as pool:
        change = pool.submit(change_plan, runner)
        assert planning.wait(PATIENCE_SECONDS)
        command = pool.submit(runner.command, Pause())
        try:
            command.result(PATIENCE_SECONDS)
            assert QueryState.PAUSED is runner._machine.desired
        finally:
            release.set()
        assert isinstance(change.exception(PATIENCE_SECONDS), CancelledError)


def test_change_parses_no_spec_while_it_holds_the_lock(
    runner: QueryRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner._change.plan_spec(PLAN, Event())

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a spec is parsed")

    for module in (sent_spec, spec):
        monkeypatch.setattr(module, "parsed", refuse)
    runner.command(CHANGE)
    assert runner._change.is_waiting


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
    command: Command, desired: QueryState, runner: QueryRunner
) -> None:
    request_change(runner)
    assert QueryState.RUNNING is runner._machine.desired

    runner.command(command)

    assert (desired, command.call == "restart") == (
        runner._machine.desired,
        runner._machine.restart_requested,
    )
    report = runner._change.report
    assert report is not None
    assert f"{command.call} of bob has cancelled the change while it waited" == report.error


def test_resume_does_not_cancel_a_change_that_waits(runner: QueryRunner) -> None:
    request_change(runner)
    runner.command(Resume())
    assert runner._change.is_waiting


@pytest.mark.parametrize("command", [Stop(query_id="old"), Resume(query_id="old")])
def test_command_for_another_query_is_refused(runner: QueryRunner, command: Command) -> None:
    """Another client has changed the join since the check of a change."""
    for query_id in (None, "new"):
        runner._query_id = query_id
        with pytest.raises(ConflictError, match="the job does not run query old"):
            runner.command(command)
    runner._query_id = "old"
    runner.command(command)


@contextmanager
def running(runner: QueryRunner) -> "Iterator[tuple[Future[None], Future[None]]]":
    """The run of the query, and the call that waits for its end."""
    runner._resources = runner.change_control._resources = MagicMock(lease_is_lost=False)
    runner._identity = MagicMock(failure=None)
    run: Future[None] = Future()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(runner._await_end, run)
        try:
            yield run, waiting
        finally:
            runner.end()


def test_refused_change_leaves_the_query_running(
    runner: QueryRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise TopicError("output.topic does not exist")

    monkeypatch.setattr(runner._change, "_check", refuse)
    monkeypatch.setattr(request, "waits", lambda *_: iter(()))
    with running(runner) as (_, waiting):
        request_change(runner)
        wait_until(lambda: not runner._change.is_waiting, PATIENCE_SECONDS, "it is refused")
        assert not waiting.done()
        assert (QueryState.RUNNING, False) == (
            runner._machine.desired,
            runner._machine.stop_requested,
        )
    report = runner._change.report
    assert report is not None
    assert "output.topic does not exist" == report.error


@pytest.mark.parametrize("end", ["identity", "run"])
def test_change_that_waits_prevents_no_end_of_the_run(
    end: str, runner: QueryRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`identity`: a topic was created again."""
    looks = []

    def waits(*_: object) -> Iterator[Wait]:
        while True:
            looks.append(None)
            yield Wait("repeats", "stuck")

    monkeypatch.setattr(request, "waits", waits)
    monkeypatch.setattr(old_query, "POLL_SECONDS", 0.01)
    with running(runner) as (run, waiting):
        request_change(runner)
        wait_until(lambda: looks, PATIENCE_SECONDS, "the change waits")
        if end == "run":
            run.set_result(None)
        else:
            runner._identity.failure = TopicError("created again")
        waiting.result(PATIENCE_SECONDS)
        assert runner._change.is_waiting
        assert not runner._machine.stop_requested


def test_query_stops_once_its_change_waits_for_nothing(
    runner: QueryRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner._change, "prepare", lambda *_: True)
    with running(runner) as (_, waiting):
        request_change(runner)
        runner._change._prepared = runner._change._waiting
        waiting.result(PATIENCE_SECONDS)
    assert (QueryState.STOPPED, True) == (
        runner._machine.desired,
        runner._machine.completes_interval,
    )
    assert runner._change.is_requested


@pytest.mark.parametrize("retryable", [True, False])
def test_restart_that_is_requested_during_a_failing_start_follows_the_failure(
    runner: QueryRunner, *, retryable: bool
) -> None:
    """Otherwise the query would stay FAILED although the command was accepted."""
    runner._lineage, runner._resources = MagicMock(), MagicMock(lease_is_lost=False)
    runner.command(Restart())

    with ThreadPoolExecutor() as threads:
        failed = threads.submit(
            runner._fail, QueryError("the topic is missing", retryable=retryable)
        )
        try:
            failed.result(10)
        finally:
            runner.end()

    assert QueryState.RESTARTING is runner._machine.state
    assert 1 == runner._stats.totals.restarts


@pytest.mark.parametrize("changes", [{}, {"engine": "real_time"}])
def test_changed_query_continues_with_the_new_spec_although_an_old_topic_was_deleted(
    changes: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = runner_of(plan(**changes), monkeypatch)
    missing = MagicMock(side_effect=TopicError("output.topic does not exist"))
    monkeypatch.setattr("job.query.preparation.check_topics", missing)
    runner._resources = MagicMock()
    new = PlannedSpec(WrittenSpec(NEW, spec_from_yaml(NEW, {})), plan())
    monkeypatch.setattr(runner._change, "successor_of", lambda _: new)

    runner._run_query()

    assert new is runner._successor


def test_restart_continues_with_the_changed_file_of_the_spec(
    runner: QueryRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner._resources = MagicMock()
    new = PlannedSpec(WrittenSpec(NEW, spec_from_yaml(NEW, {})), plan())
    monkeypatch.setattr(runner._spec_file, "take_for", lambda _: new)
    runner.command(Restart(reads_spec=True))

    runner._approach_desired_state()

    assert new is runner._successor
    runner._resources.store_desired_state.assert_called_once_with(QueryState.RUNNING)


@pytest.mark.parametrize("keep_running", [True, False])
def test_fatal_failure_ends_the_job_unless_it_should_keep_running(
    runner: QueryRunner, *, keep_running: bool
) -> None:
    runner._lineage, runner._resources = MagicMock(), MagicMock(lease_is_lost=False)
    runner._settings = JobSettings(keep_running=keep_running)
    failure = TopicError("output.topic does not exist")

    with ThreadPoolExecutor() as threads:
        failed = threads.submit(runner._fail, failure)
        try:
            if keep_running:
                wait_until(
                    lambda: runner._machine.state is QueryState.FAILED, PATIENCE_SECONDS, "FAILED"
                )
                assert not failed.done()
            else:
                failed.result(PATIENCE_SECONDS)
        finally:
            runner.end()

    assert QueryState.FAILED is runner._machine.state
    assert (None if keep_running else failure) is runner.failure


def test_failure_that_a_retry_may_fix_does_not_end_the_job(
    runner: QueryRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner._lineage, runner._resources = MagicMock(), MagicMock(lease_is_lost=False)
    monkeypatch.setattr(runner._machine, "wait_until", lambda *_: None)

    runner._fail(QueryError("no broker answers", retryable=True))

    assert (QueryState.RESTARTING, None) == (runner._machine.state, runner.failure)


def test_failure_names_the_spec_file_of_the_job(
    runner: QueryRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner._lineage, runner._resources = MagicMock(), MagicMock(lease_is_lost=False)
    monkeypatch.setattr(runner._machine, "wait_until", lambda *_: None)

    runner._fail(TopicError("create them with `streamjoin topics create SPEC --inputs`"))

    message = "create them with `streamjoin topics create ads/join.yaml --inputs`"
    assert runner._stats.last_failure is not None
    assert (message, message) == (runner._stats.last_failure.message, str(runner.failure))
