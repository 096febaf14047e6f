"""A change that a command requests: its report, and the spec that continues."""

from dataclasses import replace
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from job.change import request, request_report
from job.change.comparison import compare
from job.change.files import SpecTexts
from job.change.request import ChangeRequest
from job.change.sent_spec import PlannedSpec, PlanRequest, plan_sent_spec
from job.errors import BusyError, CheckpointError, ConflictError, RequestError, SpecError
from job.protocol.calls import Change, ChangePlan, Undo
from job.protocol.results import UndoResult
from job.settings import JobSettings
from job.spec import document
from tests.sql_worker import SQL
from tests.unit.change.requested_changes import (
    NEW,
    OLD,
    SECRET,
    PlannerOfTests,
    changes_of,
    plan_of_change,
    resources,
    send,
    send_and_begin,
    stored_reports,
)
from tests.unit.specs import changed, plan, spec_yaml


def test_made_change_ends_in_its_spec_and_no_other_command_is_accepted(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def hand_over(*arguments: Any) -> Any:
        made.append(arguments)
        return SimpleNamespace(new=replace(arguments[1].plan, state_partitions=8))

    monkeypatch.setattr(request, "hand_over", hand_over)
    stored = stored_reports(monkeypatch)
    change.check_allowed("pause")
    send_and_begin(change, NEW, 8)

    stored.clear()  # that of the wait
    successor = change.make(resources())

    assert successor is not None
    [report] = stored
    assert ("ada", "/checkpoints/next", None) == (
        *(report.requested_by, report.checkpoint, report.error),
    )
    assert report.made_at is not None
    monkeypatch.setattr(request_report, "read_request", lambda _: report)
    started = changes_of(JobSettings(), monkeypatch)
    started.read_report(successor.plan.checkpoint)  # type: ignore[arg-type]
    assert report == started.report
    assert (NEW, 8) == (successor.written.text, successor.plan.state_partitions)
    [(old, new, state_partitions, texts)] = made
    assert (plan(), "old", "/checkpoints/next", 8, SpecTexts(old=OLD, new=NEW)) == (
        *(old.plan, old.checkpoint, new.checkpoint.location, state_partitions, texts),
    )
    assert replace(new.plan, state_partitions=8) == successor.plan
    with pytest.raises(ConflictError, match="is being changed"):
        change.check_allowed("pause")


def test_failed_change_is_reported_without_secrets_and_commands_are_accepted_again(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CheckpointError(f"the folder contains a query of {SECRET}")

    monkeypatch.setattr(request, "hand_over", refuse)
    send_and_begin(change, NEW)
    assert change.is_requested
    assert change.make(resources()) is None

    assert change.report is not None
    assert ("ada", "/checkpoints/next") == (change.report.requested_by, change.report.checkpoint)
    assert "the folder contains a query of [redacted]" == change.report.error
    assert change.report.failed_at is not None
    change.check_allowed("pause")


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
    for check in ("check_change", "hand_over"):
        monkeypatch.setattr(request, check, lambda old, new, *_: compare(old.plan, new.plan))
    old = spec_yaml(left__filter="campaign <> '${HIDDEN}'", name="${HIDDEN}")
    text = changed(old, checkpoint="/checkpoints/next", **changes)
    change = changes_of(JobSettings(), monkeypatch, old)

    with pytest.raises(SpecError) as refused:
        plan_of_change(change, text)
    errors = [str(refused.value)]
    if "must stay" in shown:  # Only a spec with a plan can be requested.
        send_and_begin(change, text)
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
    monkeypatch.setattr(request, "read_successor_spec", lambda text: text)
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
    monkeypatch.setattr(request, "undoable", lambda _: (old, text))
    monkeypatch.setattr(
        *(request, "hand_back"),
        lambda old, new: undone.append(
            (old.plan.checkpoint, new.plan.checkpoint, old.checkpoint.folder.root, new.checkpoint)
        ),
    )
    return undone


def test_undone_change_continues_with_the_spec_of_the_old_query(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the new spec does not contain a variable of the old one any more."""
    monkeypatch.setenv("OLD_COST", "7")
    text = spec_yaml(checkpoint="/checkpoints/old", left__filter="cost > ${OLD_COST}")
    undone = undoable(monkeypatch, text)
    assert UndoResult(checkpoint="old") == change.check_undo(resources())

    change.request(Undo(by="ada"))
    assert change.report is not None
    assert ("ada", None) == (change.report.requested_by, change.report.checkpoint)
    successor = change.make(resources("new"))

    checkpoints = ("/checkpoints/old", change._running.plan.checkpoint)
    assert [(*checkpoints, "old", "new")] == undone
    assert successor is not None
    assert plan(checkpoint="/checkpoints/old", left__filter="cost > 7") == successor.plan
    with pytest.raises(ConflictError, match="is being changed"):
        change.check_allowed("pause")


def test_change_whose_query_has_delivered_is_not_undone(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    undone = undoable(monkeypatch, OLD)

    def refuse(*_: object) -> None:
        raise ConflictError("the query has begun to deliver", allowed=[])

    monkeypatch.setattr(request, "undoable", refuse)
    with pytest.raises(ConflictError, match="begun to deliver"):
        change.check_undo(resources())
    change.request(Undo(by="ada"))
    assert change.make(resources()) is None

    assert change.report is not None
    assert ("the query has begun to deliver", []) == (change.report.error, undone)
    change.check_allowed("pause")


def test_undo_without_a_jvm_is_checked_once_it_is_made(change: ChangeRequest) -> None:
    stopped: Any = SimpleNamespace(has_jvm=False)

    assert UndoResult(checkpoint=None) == change.check_undo(stopped)


def test_refused_plan_shows_no_secret(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise CheckpointError(f"the folder contains a query of {SECRET}")

    monkeypatch.setattr(request, "check_change", refuse)
    with pytest.raises(CheckpointError, match=r"of \[redacted\]$"):
        plan_of_change(change, NEW)


def test_number_of_state_partitions_that_the_next_start_would_refuse_is_not_requested(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = changes_of(JobSettings(state_partitions=2), monkeypatch)
    for call in (lambda: send(change, NEW, 8), lambda: plan_of_change(change, NEW, 8)):
        with pytest.raises(RequestError, match="STREAMJOIN_STATE_PARTITIONS of the job is 2"):
            call()
    assert not change.is_waiting

    send(change, NEW, 2)
    assert change.is_waiting


def test_invalid_spec_is_not_requested(change: ChangeRequest) -> None:
    with pytest.raises(SpecError):
        send(change, spec_yaml(checkpoint="/elsewhere/next"))

    assert (False, None) == (change.is_waiting, change.report)


def test_spec_without_a_plan_is_not_requested(change: ChangeRequest) -> None:
    """To plan it would hold the lock of the state for a second and more."""
    change.plan_spec(ChangePlan(spec=NEW), Event())

    with pytest.raises(BusyError, match="not the one that was planned last: repeat the call"):
        change.request(Change(spec=spec_yaml(checkpoint="/checkpoints/other")))
    assert (False, None) == (change.is_waiting, change.report)


def test_spec_of_a_client_is_parsed_once_and_only_in_the_other_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if its problems contain values of variables, which are hidden."""
    monkeypatch.setenv("HIDDEN", "hunter2hunter2")
    place = "job"
    texts: dict[str, list[str]] = {"job": [], "other process": []}
    load = document._loaded

    def loaded(text: str) -> Any:
        texts[place].append(text)
        return load(text)

    def plan_there(_: object, planned: PlanRequest, *__: Event, **___: Any) -> PlannedSpec:
        nonlocal place
        place = "other process"
        try:
            return plan_sent_spec(planned, SQL)
        finally:
            place = "job"

    monkeypatch.setattr(document, "_loaded", loaded)
    monkeypatch.setattr(PlannerOfTests, "plan", plan_there)
    monkeypatch.setattr(request, "hand_over", lambda old, new, *_: compare(old.plan, new.plan))
    old = spec_yaml(left__filter="campaign <> '${HIDDEN}'", name="${HIDDEN}")
    valid = changed(old, checkpoint="/checkpoints/next", name="another")
    invalid = changed(valid, left__schema="ad_id BIGINT")
    change = changes_of(JobSettings(), monkeypatch, old)

    with pytest.raises(SpecError, match="HIDDEN"):
        change.plan_spec(ChangePlan(spec=invalid), Event())
    send_and_begin(change, valid)
    assert change.make(resources()) is None

    assert change.report is not None
    assert "must stay ${HIDDEN}" in str(change.report.error)
    for text in (invalid, valid):
        assert (1, 0) == (texts["other process"].count(text), texts["job"].count(text))


def test_start_continues_with_the_spec_of_an_earlier_change(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: dict[str, str] = {}
    monkeypatch.setattr(request, "read_successor_spec", stored.get)
    old: Any = "old"
    assert change.successor_of(old) is None

    stored["old"] = NEW
    successor = change.successor_of(old)
    assert successor is not None
    assert replace(plan(), checkpoint="/checkpoints/next") == successor.plan
