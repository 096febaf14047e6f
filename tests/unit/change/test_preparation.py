"""What a requested change does while the old query still runs."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from job.change import old_query, request, request_report
from job.change.old_query import SECONDS_MORE
from job.change.request import ChangeRequest
from job.change.sent_spec import PlannedSpec, WrittenSpec
from job.change.warm_up import RECORDS_MIN
from job.errors import CheckpointError, ConflictError, FencedError
from job.event_time.interval import Interval
from job.protocol.calls import Cancel, Change, Command, Pause, Restart, Resume, Stop, Undo
from job.protocol.reports import ChangeRequestReport
from job.protocol.status import Phase
from job.settings import JobSettings
from job.spec.spec import spec_from_yaml
from tests.unit.change.requested_changes import (
    NEW,
    SECRET,
    PlannerOfTests,
    changes_of,
    plan_that_reads,
    resources,
    send,
    stored_reports,
)
from tests.unit.specs import plan


@pytest.fixture
def warm_ups(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Arguments of each warm-up."""
    calls: list[Any] = []
    monkeypatch.setattr(request, "warm_up", lambda *arguments: calls.append(arguments))
    return calls


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The change is possible, and reads no records again."""
    monkeypatch.setattr(request, "check_change", plan_that_reads(records=0))


def old_query_repeats(
    monkeypatch: pytest.MonkeyPatch, *left: int | None, during: Callable[[], object] = lambda: None
) -> None:
    """The old query repeats interval 7. `left`: records that are left at each look; the last one
    stays. `during`: called in each pause."""
    at = [0.0]

    def waits(*_: object) -> Iterator[old_query.Wait]:
        for records in left:
            yield old_query.Wait(f"{records} left", "stuck", INTERVAL, records)
        while left[-1]:
            yield old_query.Wait(f"{left[-1]} left", "stuck", INTERVAL, left[-1])

    def sleep(seconds: float) -> None:
        at[0] += seconds
        during()

    monkeypatch.setattr(request, "waits", waits)
    clock = SimpleNamespace(sleep=sleep, monotonic=lambda: at[0])
    monkeypatch.setattr(old_query, "time", clock)


INTERVAL = Interval(batch_id=7, watermark_ms=60_000)


def never() -> bool:
    return False


def run_warm_up(change: ChangeRequest, records: int, session: object) -> None:
    """The change reads `records` again. `session`: None: the new query needs another JVM."""
    available = resources()
    available.warm_up_session = lambda _: session
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request, "waits", lambda *_: iter(()))
        patch.setattr(request, "check_change", plan_that_reads(records))
        change.prepare(available, None, never)
    change.begin()


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
    monkeypatch.setattr(request, "Checkpoint", lambda *_: SimpleNamespace(folder="folder"))
    new = plan()
    new = replace(new, output=replace(new.output, schema=schema))
    sent = PlannedSpec(WrittenSpec(NEW, spec_from_yaml(NEW, {})), new)
    monkeypatch.setattr(PlannerOfTests, "plan", lambda *_, **__: sent)
    send(change, NEW)

    for _ in range(2):
        run_warm_up(change, records, session)

    assert count == len(warm_ups)


def test_undo_has_no_warm_up(change: ChangeRequest, warm_ups: list[Any]) -> None:
    change.request(Undo())
    run_warm_up(change, RECORDS_MIN, "session")
    assert [] == warm_ups


@pytest.mark.usefixtures("checked")
def test_change_waits_until_the_old_query_has_repeated_an_interrupted_interval(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status shows what the change waits for, and how far it is."""
    seen: list[Any] = []

    def read_status() -> None:
        assert change.report is not None
        assert change.is_waiting
        report = change.report
        seen.append((report.waits_for, report.repeated_interval, report.records_left))

    old_query_repeats(monkeypatch, 29, 2, None, during=read_status)
    send(change, NEW)

    assert change.prepare(resources(), Phase.CATCH_UP, never)
    assert [("29 left", 7, 29), ("2 left", 7, 2), ("None left", 7, None)] == seen
    assert change.begin()
    assert change.report is not None
    assert (None, None) == (change.report.waits_for, change.report.repeated_interval)
    assert change.is_requested


def refuse(*_: object) -> None:
    raise CheckpointError(f"the folder contains a query of {SECRET}")


def test_change_that_is_refused_after_its_wait_does_not_stop_the_query(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = stored_reports(monkeypatch)
    old_query_repeats(monkeypatch, 29, None)
    monkeypatch.setattr(request, "check_change", refuse)
    send(change, NEW)

    assert not change.prepare(resources(), Phase.CATCH_UP, never)

    assert (False, False) == (change.is_waiting, change.begin())
    assert change.report is not None
    assert "the folder contains a query of [redacted]" == change.report.error
    assert (None, None) == (change.report.waits_for, change.report.records_left)
    assert [None, change.report.error] == [report.error for report in stored]
    change.check_allowed("pause")


@pytest.mark.usefixtures("checked")
def test_change_ends_if_the_repetition_makes_no_progress(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    old_query_repeats(monkeypatch, 29, 2)
    send(change, NEW)

    assert not change.prepare(resources(), Phase.CATCH_UP, never)

    seconds = JobSettings().grace_seconds + SECONDS_MORE
    assert change.report is not None
    assert str(change.report.error).startswith(f"stuck within {seconds:.0f} s")


@pytest.mark.parametrize(
    "command", [Pause(by="bob"), Stop(by="bob"), Restart(by="bob"), Cancel(by="bob")]
)
@pytest.mark.usefixtures("checked")
def test_command_cancels_a_change_that_waits(
    command: Command, change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = stored_reports(monkeypatch)
    old_query_repeats(monkeypatch, 29, during=lambda: change.before_command(command))
    send(change, NEW)

    assert not change.prepare(resources(), Phase.CATCH_UP, never)

    assert (False, False) == (change.is_waiting, change.begin())
    assert change.report is not None
    assert f"{command.call} of bob has cancelled the change while it waited" == change.report.error
    assert change.report == stored[-1]
    change.check_allowed("change")


def test_resume_cancels_no_change(change: ChangeRequest) -> None:
    send(change, NEW)
    change.before_command(Resume())
    assert change.is_waiting


@pytest.mark.parametrize("command", [Change(spec=NEW), Undo()])
def test_another_change_is_refused_while_a_change_waits(
    command: Command, change: ChangeRequest
) -> None:
    send(change, NEW)
    with pytest.raises(ConflictError, match="another change of the join waits") as refused:
        change.before_command(command)
    assert ["pause", "stop", "restart", "cancel"] == refused.value.allowed
    assert change.is_waiting


def test_only_a_change_that_waits_is_cancelled(change: ChangeRequest) -> None:
    with pytest.raises(ConflictError, match="no change waits"):
        change.before_command(Cancel())


@pytest.mark.usefixtures("checked")
def test_change_that_follows_a_cancelled_one_is_not_made_before_its_own_check(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "waits", lambda *_: iter(()))
    send(change, NEW)
    assert change.prepare(resources(), None, never)
    change.before_command(Cancel())
    send(change, NEW)

    assert not change.begin()
    assert change.is_waiting


@pytest.mark.usefixtures("checked")
def test_change_still_waits_if_the_run_of_the_query_ends(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run has the other phase."""
    old_query_repeats(monkeypatch, 29, None)
    send(change, NEW)

    assert not change.prepare(resources(), Phase.CATCH_UP, lambda: True)
    assert change.is_waiting
    assert change.prepare(resources(), Phase.REAL_TIME, never)


def test_failure_of_the_query_ends_a_change_that_waits(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example because another job has taken over the name."""
    stored = stored_reports(monkeypatch)
    send(change, NEW)

    change.query_failed(FencedError("another query has taken over the name"), resources())

    assert not change.is_waiting
    assert change.report == stored[-1]
    assert "while the change waited: another query has taken over" in str(stored[-1].error)


def test_query_that_fails_without_a_change_reports_none(change: ChangeRequest) -> None:
    change.query_failed(FencedError("fenced"), resources())
    assert change.report is None


@pytest.mark.parametrize("waited_for", [None, "an interval"])
def test_start_reports_that_a_change_was_forgotten(
    waited_for: str | None, change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only once: later starts read the same report."""
    stored = stored_reports(monkeypatch)
    send(change, NEW)
    assert change.report is not None
    earlier = change.report.model_copy(update={"waits_for": waited_for})
    read: list[ChangeRequestReport] = [earlier]
    monkeypatch.setattr(request_report, "read_request", lambda _: read[-1])

    started = changes_of(JobSettings(), monkeypatch)
    stored = stored_reports(monkeypatch)
    checkpoint: Any = "old"
    for _ in range(2):
        started.read_report(checkpoint)

    assert started.report is not None
    assert "the job ended before the change was made" in str(started.report.error)
    assert (None, "ada") == (started.report.waits_for, started.report.requested_by)
    assert [started.report] == stored
    started.check_allowed("change")

    read.append(stored[-1])
    later = changes_of(JobSettings(), monkeypatch)
    stored = stored_reports(monkeypatch)
    later.read_report(checkpoint)
    assert (started.report, []) == (later.report, stored)


@pytest.mark.usefixtures("checked")
def test_report_that_cannot_be_read_or_stored_prevents_no_start_and_no_change(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "waits", lambda *_: iter(()))
    monkeypatch.setattr(request_report, "read_request", refuse)
    monkeypatch.setattr(request_report, "write_request", refuse)
    checkpoint: Any = "old"
    with structlog.testing.capture_logs() as logged:
        change.read_report(checkpoint)
        send(change, NEW)
        assert change.prepare(resources(), None, never)
    assert ["change_report_not_read", "change_report_not_stored"] == [
        entry["event"] for entry in logged
    ]


def test_failed_warm_up_is_logged_without_secrets_and_the_change_is_made(
    change: ChangeRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise CheckpointError(f"no space left for {SECRET}")

    monkeypatch.setattr(request, "waits", lambda *_: iter(()))
    monkeypatch.setattr(request, "check_change", plan_that_reads(RECORDS_MIN))
    send(change, NEW)
    available = resources()
    available.warm_up_session = fail

    with structlog.testing.capture_logs() as logged:
        assert change.prepare(available, None, never)

    assert [("warm_up_failed", "no space left for [redacted]")] == [
        (entry["event"], entry["reason"]) for entry in logged
    ]
    assert change.begin()
