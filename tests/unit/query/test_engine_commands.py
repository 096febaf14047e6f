"""Which commands the engine accepts one after the other. No query runs."""

from typing import Any

import pytest

from job.change.sent_spec import PlannedSpec, WrittenSpec
from job.errors import ConflictError
from job.join_spec.spec import spec_from_yaml
from job.protocol.control import Verb
from job.protocol.status import QueryState
from job.query.engine import Engine
from job.query.requested_change import RequestedChange
from job.query.state_machine import StateMachine
from job.query.stats import QueryStats
from job.redaction import Redaction
from job.settings import JobSettings
from tests.unit.specs import plan, spec_yaml

NEW = spec_yaml(checkpoint="/checkpoints/next")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    """Its query is RUNNING."""
    unused: Any = None
    machine, joined = StateMachine(), plan()
    machine.become(QueryState.RUNNING)
    monkeypatch.setattr("job.query.engine.StateMachine", lambda: machine)
    settings, redaction = JobSettings(), Redaction()
    written = WrittenSpec(spec_yaml(), spec_from_yaml(spec_yaml(), {}))
    change = RequestedChange(PlannedSpec(written, joined), lambda _: joined, settings, redaction)
    stats = QueryStats(joined.topics, joined.deduplicated)
    return Engine(joined, settings, redaction, stats, unused, unused, unused, unused, change)


@pytest.mark.parametrize("verb", ["pause", "stop", "restart"])
def test_change_is_refused_while_another_command_is_pending(engine: Engine, verb: Verb) -> None:
    engine.command(verb, "ada")

    for call in (
        lambda: engine.change_plan(NEW, None),
        lambda: engine.command("change", "bob", spec=NEW),
        engine.check_undo,
        lambda: engine.command("undo", "bob"),
    ):
        with pytest.raises(ConflictError, match=f"while {verb} is pending"):
            call()


@pytest.mark.parametrize("verb", ["pause", "stop", "restart", "change", "undo"])
def test_commands_are_refused_until_the_change_is_made(engine: Engine, verb: Verb) -> None:
    """Otherwise a stop would be accepted, and the new query would run."""
    engine.command("change", "ada", spec=NEW)
    spec = NEW if verb == "change" else None

    with pytest.raises(ConflictError, match="is being changed"):
        engine.command(verb, "bob", spec=spec)
    for call in (lambda: engine.change_plan(NEW, None), engine.check_undo):
        with pytest.raises(ConflictError, match="is being changed"):
            call()
