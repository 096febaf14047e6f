"""A running query that a client changes, without Spark and Kafka."""

import os
from contextlib import nullcontext
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from job.change.planning import PlanRequest, planned
from job.change.sent_spec import PlannedSpec, WrittenSpec
from job.join_spec.spec import JoinSpec, spec_from_yaml
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.protocol.calls import Change, ChangePlan
from job.protocol.reports import ChangeRequestReport
from job.protocol.results import ChangePlanResult
from job.query import change_request_report, changing, requested_change
from job.query.requested_change import RequestedChange
from job.query.spec_process import SpecProcess
from job.redaction import Redaction
from job.settings import JobSettings
from tests.sql_worker import SQL
from tests.unit.specs import spec_yaml

OLD = spec_yaml()
NEW = spec_yaml(checkpoint="/checkpoints/next")
SECRET = "pa55word"
STATUS: Any = SimpleNamespace(totals=SimpleNamespace(late_rows=0), phase=None)


def plan_of(spec: JoinSpec) -> JoinPlan:
    return join_plan(spec, SQL, state_partitions=2)


def changes_of(
    settings: JobSettings, monkeypatch: pytest.MonkeyPatch, old: str = OLD
) -> RequestedChange:
    monkeypatch.setattr(
        requested_change, "Checkpoint", lambda _, location: SimpleNamespace(location=location)
    )
    monkeypatch.setattr(requested_change, "leased", lambda _: nullcontext())
    stored_reports(monkeypatch)
    redaction = Redaction()
    redaction.add([SECRET])
    spec = spec_from_yaml(old, os.environ)
    running = PlannedSpec(WrittenSpec(old, spec), plan_of(spec))
    return RequestedChange(running, plan_of, settings, redaction, PlannerOfTests())


def stored_reports(monkeypatch: pytest.MonkeyPatch) -> list[ChangeRequestReport]:
    """The list receives the reports that are stored for the next start of the job."""
    stored: list[ChangeRequestReport] = []
    monkeypatch.setattr(
        change_request_report, "write_request", lambda _, report: stored.append(report)
    )
    return stored


class PlannerOfTests(SpecProcess):
    """Plans in this process."""

    def plan(self, request: PlanRequest, *_: Event, **__: Any) -> PlannedSpec:
        return planned(request, SQL)


def plan_of_change(
    change: RequestedChange, text: str, state_partitions: int | None = None
) -> ChangePlanResult:
    sent = change.planned(ChangePlan(spec=text), Event())
    return change.plan(sent, state_partitions, resources(), STATUS)


def send(change: RequestedChange, text: str, state_partitions: int | None = None) -> None:
    """The calls of a client that requests a change."""
    change.planned(ChangePlan(spec=text), Event())
    change.request(Change(by="ada", spec=text, state_partitions=state_partitions))


def send_and_begin(change: RequestedChange, text: str, state_partitions: int | None = None) -> None:
    """The change waits for nothing."""
    send(change, text, state_partitions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(requested_change, "waits", lambda *_: iter(()))
        patch.setattr(changing, "checked", lambda *_: made_change(records=0))
        assert change.prepare(resources(), None, lambda: False)
    assert change.begin()


def made_change(records: int) -> Any:
    """The plan of a change that reads `records` again."""
    return SimpleNamespace(replay=SimpleNamespace(records=records))


def resources(checkpoint: object = "old") -> Any:
    return SimpleNamespace(has_jvm=True, session=lambda: None, checkpoint=lambda: checkpoint)
