"""Which commands the engine accepts one after the other. No query runs."""

from concurrent.futures import ThreadPoolExecutor
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
from job.protocol.control import Verb
from job.protocol.results import ChangePlanResult
from job.protocol.status import QueryState
from job.query.engine import Engine
from job.query.requested_change import RequestedChange
from job.query.state_machine import StateMachine
from job.query.stats import QueryStats
from job.redaction import Redaction
from job.settings import JobSettings
from tests.unit.query.requested_changes import PlannerOfTests
from tests.unit.specs import plan, spec_yaml

NEW = spec_yaml(checkpoint="/checkpoints/next")
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
    return engine.change_plan(NEW, None, Event(), within_seconds=1)


@pytest.mark.parametrize("verb", ["pause", "stop", "restart"])
def test_change_is_refused_while_another_command_is_pending(engine: Engine, verb: Verb) -> None:
    engine.command(verb, "ada")

    for call in (
        lambda: change_plan(engine),
        lambda: engine.command("change", "bob", spec=NEW),
        engine.check_undo,
        lambda: engine.command("undo", "bob"),
    ):
        with pytest.raises(ConflictError, match=f"while {verb} is pending"):
            call()


@pytest.mark.parametrize("verb", ["pause", "stop", "restart", "change", "undo"])
def test_commands_are_refused_until_the_change_is_made(engine: Engine, verb: Verb) -> None:
    """Otherwise a stop would be accepted, and the new query would run."""
    engine._change.planned(NEW, Event(), within_seconds=1)
    engine.command("change", "ada", spec=NEW)
    text = NEW if verb == "change" else None

    with pytest.raises(ConflictError, match="is being changed"):
        engine.command(verb, "bob", spec=text)
    for call in (lambda: change_plan(engine), engine.check_undo):
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
        command = pool.submit(engine.command, "pause", "bob")
        try:
            command.result(PATIENCE_SECONDS)
            assert QueryState.PAUSED is engine._machine.desired
        finally:
            release.set()
        assert isinstance(change.exception(PATIENCE_SECONDS), CancelledError)


def test_change_parses_no_spec_while_it_holds_the_lock(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine._change.planned(NEW, Event(), within_seconds=1)

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("a spec is parsed")

    for module in (sent_spec, spec):
        monkeypatch.setattr(module, "parsed", refuse)
    engine.command("change", "ada", spec=NEW)
    assert engine._change.is_requested


@pytest.mark.parametrize("retryable", [True, False])
def test_restart_that_is_requested_during_a_failing_start_follows_the_failure(
    engine: Engine, *, retryable: bool
) -> None:
    """Otherwise the query would stay FAILED although the command was accepted."""
    engine._lineage, engine._resources = MagicMock(), MagicMock(lease_is_lost=False)
    engine.command("restart", "ada")

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
    monkeypatch.setattr("job.query.engine.check_topics", missing)
    engine._resources = MagicMock()
    new = PlannedSpec(WrittenSpec(NEW, spec_from_yaml(NEW, {})), plan())
    monkeypatch.setattr(engine._change, "successor_of", lambda _: new)

    engine._run_query()

    assert new is engine._successor
