"""What a requested change does while the old query still runs."""

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
import structlog

from job.change.sent_spec import PlannedSpec, WrittenSpec
from job.errors import CheckpointError
from job.event_time.interval import Interval
from job.join_spec.spec import spec_from_yaml
from job.protocol.status import Phase
from job.query import changing, requested_change
from job.query.change_warm_up import RECORDS_MIN
from job.query.requested_change import RequestedChange
from job.settings import JobSettings
from tests.unit.query.requested_changes import (
    NEW,
    SECRET,
    PlannerOfTests,
    changes_of,
    resources,
    send,
)
from tests.unit.specs import plan


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
