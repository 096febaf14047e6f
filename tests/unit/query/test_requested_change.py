"""A change that a command requests: its report, and the spec that continues."""

import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import structlog

from job.change.comparison import compared
from job.change.planning import PlanRequest, planned
from job.change.sent_spec import PlannedSpec, WrittenSpec
from job.checkpoint.changes import SpecTexts
from job.errors import BusyError, CheckpointError, ConflictError, RequestError, SpecError
from job.event_time.interval import Interval
from job.join_spec.spec import JoinSpec, spec_from_yaml
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.protocol.results import ChangePlanResult, UndoResult
from job.protocol.status import Phase
from job.query import changing, requested_change
from job.query.change_warm_up import RECORDS_MIN
from job.query.requested_change import RequestedChange
from job.query.validator import ChangePlanner
from job.redaction import Redaction
from job.settings import JobSettings
from tests.unit.specs import changed, plan, spec_yaml

OLD = spec_yaml()
NEW = spec_yaml(checkpoint="/checkpoints/next")
SECRET = "pa55word"
STATUS: Any = SimpleNamespace(totals=SimpleNamespace(late_rows=0), phase=None)


def plan_of(spec: JoinSpec) -> JoinPlan:
    return join_plan(spec, state_partitions=2)


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> RequestedChange:
    return changes_of(JobSettings(), monkeypatch)


def changes_of(
    settings: JobSettings, monkeypatch: pytest.MonkeyPatch, old: str = OLD
) -> RequestedChange:
    monkeypatch.setattr(
        requested_change, "Checkpoint", lambda _, location: SimpleNamespace(location=location)
    )
    monkeypatch.setattr(requested_change, "leased", lambda _: nullcontext())
    redaction = Redaction()
    redaction.add([SECRET])
    spec = spec_from_yaml(old, os.environ)
    running = PlannedSpec(WrittenSpec(old, spec), plan_of(spec))
    return RequestedChange(running, plan_of, settings, redaction, PlannerOfTests())


class PlannerOfTests(ChangePlanner):
    """Plans in this process."""

    def plan(self, request: PlanRequest, *_: Event, **__: Any) -> PlannedSpec:
        return planned(request)


def plan_of_change(
    change: RequestedChange, text: str, state_partitions: int | None = None
) -> ChangePlanResult:
    sent = change.planned(text, Event(), within_seconds=1)
    return change.plan(sent, state_partitions, resources(), STATUS)


def send(change: RequestedChange, text: str, state_partitions: int | None = None) -> None:
    """The calls of a client that requests a change."""
    change.planned(text, Event(), within_seconds=1)
    change.request("ada", text, state_partitions)


def resources() -> Any:
    return SimpleNamespace(has_jvm=True, session=lambda: None, checkpoint=lambda: "old")


def test_made_change_ends_in_its_spec_and_no_other_command_is_accepted(
    change: RequestedChange, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def hand_over(*arguments: Any) -> Any:
        made.append(arguments)
        return SimpleNamespace(replay=SimpleNamespace(state_partitions=8))

    monkeypatch.setattr(changing, "hand_over", hand_over)
    change.check_not_requested()
    send(change, NEW, 8)

    successor = change.make(resources())

    assert successor is not None
    assert (NEW, 8) == (successor.written.text, successor.plan.state_partitions)
    [(old, new, old_checkpoint, new_checkpoint, state_partitions, texts)] = made
    assert (plan(), "old", "/checkpoints/next", 8, SpecTexts(old=OLD, new=NEW)) == (
        *(old, old_checkpoint, new_checkpoint.location, state_partitions, texts),
    )
    assert replace(new, state_partitions=8) == successor.plan
    with pytest.raises(ConflictError, match="is being changed"):
        change.check_not_requested()


def test_failed_change_is_reported_without_secrets_and_commands_are_accepted_again(
    change: RequestedChange, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CheckpointError(f"the folder contains a query of {SECRET}")

    monkeypatch.setattr(changing, "hand_over", refuse)
    send(change, NEW)
    assert change.is_requested
    assert change.make(resources()) is None

    assert change.report is not None
    assert ("ada", "/checkpoints/next") == (change.report.requested_by, change.report.checkpoint)
    assert "the folder contains a query of [redacted]" == change.report.error
    assert change.report.failed_at is not None
    change.check_not_requested()


@pytest.fixture
def warm_ups(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Arguments of each warm-up."""
    calls: list[Any] = []
    monkeypatch.setattr(requested_change, "warm_up", lambda *arguments: calls.append(arguments))
    return calls


def run_warm_up(change: RequestedChange, records: int, session: object) -> None:
    """The change reads `records` again. `session`: None: the new query needs another JVM."""
    made = SimpleNamespace(replay=SimpleNamespace(records=records))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(changing, "checked", lambda *_: made)
        available: Any = SimpleNamespace(session=lambda: None, warm_up_session=lambda _: session)
        change.prepare(available, None, lambda: False)


@pytest.mark.parametrize(
    ("records", "session", "schema", "count"),
    [
        (RECORDS_MIN, "session", None, 1),
        (RECORDS_MIN - 1, "session", None, 0),
        (RECORDS_MIN, None, None, 0),
        (RECORDS_MIN, "session", "a schema that a start registers", 0),
    ],
    ids=["warm-up", "few records", "another JVM", "schema to register"],
)
def test_change_that_reads_many_records_in_the_same_jvm_has_one_warm_up(
    monkeypatch: pytest.MonkeyPatch,
    warm_ups: list[Any],
    records: int,
    session: object,
    schema: Any,
    count: int,
) -> None:
    change = changes_of(JobSettings(), monkeypatch)
    monkeypatch.setattr(requested_change, "Checkpoint", lambda *_: SimpleNamespace(folder="folder"))
    new = plan()
    new = replace(new, output=replace(new.output, schema=schema))
    sent = PlannedSpec(WrittenSpec(NEW, spec_from_yaml(NEW, {})), new)
    monkeypatch.setattr(PlannerOfTests, "plan", lambda *_, **__: sent)
    send(change, NEW)

    for _ in range(2):
        run_warm_up(change, records, session)

    assert count == len(warm_ups)


def test_undo_has_no_warm_up(change: RequestedChange, warm_ups: list[Any]) -> None:
    change.request("ada", None, None)
    run_warm_up(change, RECORDS_MIN, "session")
    assert [] == warm_ups


def test_change_that_failed_before_its_warm_up_has_none_later(
    change: RequestedChange, warm_ups: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old query has failed in between. A later stop must not run the new query."""

    def refuse(*_: object) -> NoReturn:
        raise CheckpointError("the folder contains a query")

    monkeypatch.setattr(changing, "hand_over", refuse)
    send(change, NEW)
    assert change.make(resources()) is None

    run_warm_up(change, RECORDS_MIN, "session")
    assert [] == warm_ups


def test_change_waits_until_the_old_query_has_repeated_an_interrupted_interval(
    change: RequestedChange, monkeypatch: pytest.MonkeyPatch, warm_ups: list[Any]
) -> None:
    """Then it has its warm-up. The report contains the records that are left."""
    interval = Interval(7, 60_000, {"left": {0: 30}, "right": {0: 9}})
    read = iter([{"left": {0: 10}, "right": {0: 0}}, {"left": {0: 28}, "right": {0: 9}}])
    monkeypatch.setattr(requested_change, "repetition", lambda *_: iter([interval, interval]))
    seen: list[Any] = []

    def sleep(_: float) -> None:
        assert change.report is not None
        assert [] == warm_ups
        seen.append((change.report.repeated_interval, change.report.records_left))

    monkeypatch.setattr(requested_change, "time", SimpleNamespace(sleep=sleep))
    monkeypatch.setattr(change, "_run_warm_up", lambda *_: warm_ups.append(seen[:]))

    class OldCheckpoint:
        @property
        def offsets(self) -> Any:
            return next(read)

    old: Any = SimpleNamespace(checkpoint=OldCheckpoint)
    send(change, NEW)

    change.prepare(old, Phase.CATCH_UP, lambda: False)

    assert [[(7, 29), (7, 2)]] == warm_ups
    assert change.report is not None
    assert (None, None) == (change.report.repeated_interval, change.report.records_left)


def test_change_waits_for_no_interval_that_runs_and_not_longer_than_the_query_runs(
    change: RequestedChange, monkeypatch: pytest.MonkeyPatch, warm_ups: list[Any]
) -> None:
    calls: list[str] = []

    def repetition(*_: object) -> Iterator[Interval]:
        calls.append("read")
        while True:
            yield Interval(7, 60_000)

    monkeypatch.setattr(requested_change, "repetition", repetition)
    monkeypatch.setattr(change, "_run_warm_up", lambda *_: warm_ups.append("warm-up"))
    old: Any = SimpleNamespace(checkpoint=lambda: SimpleNamespace(offsets=None))
    send(change, NEW)
    change.prepare(old, Phase.REAL_TIME, lambda: False)
    send(change, NEW)
    change.prepare(old, Phase.CATCH_UP, lambda: True)

    assert (["read"], ["warm-up"]) == (calls, warm_ups)


def test_failed_warm_up_is_logged_without_secrets_and_the_change_is_made(
    change: RequestedChange, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CheckpointError(f"no space left for {SECRET}")

    monkeypatch.setattr(changing, "checked", refuse)
    send(change, NEW)

    with structlog.testing.capture_logs() as logged:
        change.prepare(resources(), None, lambda: False)

    assert [("preparation_failed", "no space left for [redacted]")] == [
        (entry["event"], entry["reason"]) for entry in logged
    ]
    assert change.is_requested


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        ({"left__schema": "ad_id BIGINT, shown_at TIMESTAMP, cost DOUBLE"}, "${HIDDEN}"),
        ({"name": "another"}, "must stay ${HIDDEN}"),
    ],
    ids=["planner", "comparison"],
)
def test_errors_show_no_value_of_a_variable(
    changes: dict[str, str], shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDDEN", "hunter2hunter2")
    for check in ("checked", "hand_over"):
        monkeypatch.setattr(changing, check, lambda old, new, *_: compared(old, new))
    old = spec_yaml(left__filter="campaign <> '${HIDDEN}'", name="${HIDDEN}")
    text = changed(old, checkpoint="/checkpoints/next", **changes)
    change = changes_of(JobSettings(), monkeypatch, old)

    with pytest.raises(SpecError) as refused:
        plan_of_change(change, text)
    errors = [str(refused.value)]
    if "must stay" in shown:  # Only a spec with a plan can be requested.
        send(change, text)
        assert change.make(resources()) is None
        assert change.report is not None
        errors.append(str(change.report.error))

    for error in errors:
        assert shown in error
        assert "hunter2" not in error


def test_error_at_a_start_after_a_change_shows_no_value_of_a_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HIDDEN", "hunter2hunter2")
    monkeypatch.setattr(requested_change, "successor_spec", lambda text: text)
    old = spec_yaml(left__filter="campaign <> '${HIDDEN}'")
    text: Any = changed(old, checkpoint="/checkpoints/next", left__schema="ad_id BIGINT")

    with pytest.raises(SpecError) as refused:
        changes_of(JobSettings(), monkeypatch, old).successor_of(text)

    assert "${HIDDEN}" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def undoable(monkeypatch: pytest.MonkeyPatch, text: str) -> list[Any]:
    """Of the checkpoint "new", which continues "old". The list receives the undone changes."""
    undone: list[Any] = []
    old = SimpleNamespace(folder=SimpleNamespace(root="old"))
    monkeypatch.setattr(requested_change, "predecessor", lambda _: old)
    monkeypatch.setattr(requested_change, "old_spec", lambda _: text)
    monkeypatch.setattr(changing, "check_undo", lambda *_: None)
    monkeypatch.setattr(
        changing, "take_back", lambda old, new: undone.append((old.folder.root, new))
    )
    return undone


def test_undone_change_continues_with_the_spec_of_the_old_query(
    change: RequestedChange, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the new spec does not contain a variable of the old one any more."""
    monkeypatch.setenv("OLD_COST", "7")
    text = spec_yaml(checkpoint="/checkpoints/old", left__filter="cost > ${OLD_COST}")
    undone = undoable(monkeypatch, text)
    assert UndoResult(checkpoint="old") == change.check_undo(resources())

    change.request("ada", None, None)
    assert change.report is not None
    assert ("ada", None) == (change.report.requested_by, change.report.checkpoint)
    successor = change.make(SimpleNamespace(checkpoint=lambda: "new"))  # type: ignore[arg-type]

    assert [("old", "new")] == undone
    assert successor is not None
    assert plan(checkpoint="/checkpoints/old", left__filter="cost > 7") == successor.plan
    with pytest.raises(ConflictError, match="is being changed"):
        change.check_not_requested()


def test_change_whose_query_has_delivered_is_not_undone(
    change: RequestedChange, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone = undoable(monkeypatch, OLD)

    def refuse(*_: object) -> None:
        raise ConflictError("the query has begun to deliver", allowed=[])

    monkeypatch.setattr(changing, "check_undo", refuse)
    with pytest.raises(ConflictError, match="begun to deliver"):
        change.check_undo(resources())
    change.request("ada", None, None)
    assert change.make(resources()) is None

    assert change.report is not None
    assert ("the query has begun to deliver", []) == (change.report.error, undone)
    change.check_not_requested()


def test_undo_without_a_jvm_is_checked_once_it_is_made(change: RequestedChange) -> None:
    stopped: Any = SimpleNamespace(has_jvm=False)

    assert UndoResult(checkpoint=None) == change.check_undo(stopped)


def test_refused_plan_shows_no_secret(
    change: RequestedChange, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CheckpointError(f"the folder contains a query of {SECRET}")

    monkeypatch.setattr(changing, "checked", refuse)
    with pytest.raises(CheckpointError, match=r"of \[redacted\]$"):
        plan_of_change(change, NEW)


def test_number_of_state_partitions_that_the_next_start_would_refuse_is_not_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = changes_of(JobSettings(state_partitions=2), monkeypatch)
    for call in (lambda: send(change, NEW, 8), lambda: plan_of_change(change, NEW, 8)):
        with pytest.raises(RequestError, match="STREAMJOIN_STATE_PARTITIONS of the job is 2"):
            call()
    assert not change.is_requested

    send(change, NEW, 2)
    assert change.is_requested


def test_invalid_spec_is_not_requested(change: RequestedChange) -> None:
    with pytest.raises(SpecError):
        send(change, spec_yaml(checkpoint="/elsewhere/next"))

    assert (False, None) == (change.is_requested, change.report)


def test_spec_without_a_plan_is_not_requested(change: RequestedChange) -> None:
    """To plan it would hold the lock of the state for a second and more."""
    change.planned(NEW, Event(), within_seconds=1)

    with pytest.raises(BusyError, match="not the one that was planned last: repeat the call"):
        change.request("ada", spec_yaml(checkpoint="/checkpoints/other"), None)
    assert (False, None) == (change.is_requested, change.report)


def test_start_continues_with_the_spec_of_an_earlier_change(
    change: RequestedChange, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: dict[str, str] = {}
    monkeypatch.setattr(requested_change, "successor_spec", stored.get)
    old: Any = "old"
    assert change.successor_of(old) is None

    stored["old"] = NEW
    successor = change.successor_of(old)
    assert successor is not None
    assert replace(plan(), checkpoint="/checkpoints/next") == successor.plan
