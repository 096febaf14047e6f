"""A running query that a client changes, without Spark and Kafka."""

import os
from collections.abc import Callable
from contextlib import nullcontext
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from job.change import request, request_report
from job.change.request import ChangeRequest
from job.change.sent_spec import PlannedSpec, PlanRequest, WrittenSpec, plan_sent_spec
from job.change.spec_process import SpecProcess
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.protocol.calls import Change, ChangePlan
from job.protocol.reports import ChangeRequestReport
from job.protocol.results import ChangePlanResult
from job.redaction import Redaction
from job.settings import JobSettings
from job.spec.spec import JoinSpec, spec_from_yaml
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
) -> ChangeRequest:
    monkeypatch.setattr(
        request, "Checkpoint", lambda _, location: SimpleNamespace(location=location)
    )
    monkeypatch.setattr(request, "leased", lambda _: nullcontext())
    stored_reports(monkeypatch)
    redaction = Redaction()
    redaction.add([SECRET])
    spec = spec_from_yaml(old, os.environ)
    running = PlannedSpec(WrittenSpec(old, spec), plan_of(spec))
    return ChangeRequest(running, plan_of, settings, redaction, PlannerOfTests())


def stored_reports(monkeypatch: pytest.MonkeyPatch) -> list[ChangeRequestReport]:
    """The list receives the reports that are stored for the next start of the job."""
    stored: list[ChangeRequestReport] = []
    monkeypatch.setattr(request_report, "write_request", lambda _, report: stored.append(report))
    return stored


class PlannerOfTests(SpecProcess):
    """Plans in this process."""

    def plan(self, request: PlanRequest, *_: Event, **__: Any) -> PlannedSpec:
        return plan_sent_spec(request, SQL)


def plan_of_change(
    change: ChangeRequest, text: str, state_partitions: int | None = None
) -> ChangePlanResult:
    sent = change.plan_spec(ChangePlan(spec=text), Event())
    return change.plan(sent, state_partitions, resources(), STATUS)


def send(change: ChangeRequest, text: str, state_partitions: int | None = None) -> None:
    """The calls of a client that requests a change."""
    change.plan_spec(ChangePlan(spec=text), Event())
    change.request(Change(by="ada", spec=text, state_partitions=state_partitions))


def send_and_begin(change: ChangeRequest, text: str, state_partitions: int | None = None) -> None:
    """The change waits for nothing."""
    send(change, text, state_partitions)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(request, "waits", lambda *_: iter(()))
        patch.setattr(request, "check_change", plan_that_reads(records=0))
        assert change.prepare(resources(), None, lambda: False)
    assert change.begin()


def plan_that_reads(records: int) -> Callable[..., Any]:
    """Instead of `check_change`: the plan of a change that reads `records` again."""
    return lambda _, new, *__: SimpleNamespace(
        new=new.plan, replay=SimpleNamespace(records=records)
    )


def resources(checkpoint: object = "old") -> Any:
    return SimpleNamespace(has_jvm=True, session=lambda: None, checkpoint=lambda: checkpoint)
