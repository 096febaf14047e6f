"""Plan, spec, batches and failures over HTTP."""

from pathlib import Path
from typing import Any

import pytest

from job.plan.explain import explained, plan_as_json
from job.plan.planner import join_plan
from job.protocol.results import PlanResult
from job.spec.spec import spec_from_yaml
from service.schemas.progress import SideBatchView
from tests.sql_worker import SQL
from tests.unit.service.answers import all_answers
from tests.unit.service.builders import (
    batch,
    just_polled,
    serving,
    side,
    status,
    status_after,
)
from tests.unit.service.calls import call, problem, settings
from tests.unit.specs import spec_yaml

SECRET = "planted-pa55word"


def get(path: Path, url: str) -> Any:
    with serving(path, status_after(batch(), brokers=just_polled())) as job:
        job.answers.update(all_answers())
        answer = call("GET", url, settings(path))
    assert 200 == answer.status_code, answer.text
    return answer.json()


def test_plan_is_returned_as_text_and_as_facts(path: Path) -> None:
    assert {
        "text": "Join ad_attribution",
        "facts": {"name": "ad_attribution"},
    } == get(path, "/v1/query/plan")


def test_spec_is_returned_without_its_secrets(path: Path) -> None:
    security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "ada"}
    spec = spec_from_yaml(spec_yaml(kafka__security={**security, "password": SECRET}), {})
    plan = join_plan(spec, SQL, state_partitions=1)
    answer = PlanResult(
        text=explained(plan),
        facts=plan_as_json(plan),
        spec=spec.model_dump(mode="json", by_alias=True),
    )
    with serving(path, status()) as job:
        job.answers["plan"] = answer
        answers = [call("GET", f"/v1/query/{it}", settings(path)) for it in ("spec", "plan")]

    assert "ada" == answers[0].json()["kafka"]["security"]["username"]
    assert "tested" == answers[0].json()["name"]
    assert [] == [answer.url for answer in answers if SECRET in answer.text]


@pytest.mark.parametrize(("query", "count"), [("", 20), ("?last=1", 1), ("?last=100", 100)])
def test_last_batches_are_returned_oldest_first(path: Path, query: str, count: int) -> None:
    batches = get(path, f"/v1/query/progress{query}")["batches"]

    assert [*range(100 - count, 100)] == [each["batch_id"] for each in batches]


def test_past_batch_has_its_phases_and_sides(path: Path) -> None:
    [past_batch] = get(path, "/v1/query/progress?last=1")["batches"]

    assert {
        "batch_id": 99,
        "run_id": "run-2",
        "started_at": "2026-11-20T12:00:00Z",
        "duration_seconds": 0.5,
        "phase_seconds": {"add_batch": 0.25, "trigger_execution": 0.5},
        "input_records": 30,
        "output_records": 30,
        "late_rows": 2,
        "state_rows": 400,
        "state_rows_updated": 50,
        "state_rows_removed": 10,
        "state_memory_bytes": 1_000_000,
        "watermark": "2026-11-20T11:59:44.500000Z",
        "left": {
            "records": 20,
            "filtered_records": 0,
            "null_keys": 1,
            "bad_records": {"malformed_json": 3, "tombstone": 0},
            "event_time_max": "2026-11-20T11:59:57.500000Z",
            "offsets_behind_latest_total": 15,
        },
        "right": {
            "records": 10,
            "filtered_records": 0,
            "null_keys": 0,
            "bad_records": {"malformed_json": 3, "tombstone": 0},
            "event_time_max": "2026-11-20T11:59:56Z",
            "offsets_behind_latest_total": 2,
        },
    } == past_batch


def test_lag_of_a_batch_that_was_executed_again_is_unknown() -> None:
    assert SideBatchView.of(side(latest_offsets={})).offsets_behind_latest_total is None


@pytest.mark.parametrize("last", ["0", "101", "x", ""])
def test_number_of_batches_is_limited(path: Path, last: str) -> None:
    with serving(path, status()):
        body = problem(call("GET", f"/v1/query/progress?last={last}", settings(path)))

    assert (422, ["query.last"]) == (body["status"], [each["field"] for each in body["errors"]])


def test_failures_are_returned(path: Path) -> None:
    assert {
        "failures": [
            {
                "code": "broker",
                "message": "no broker answers at localhost:9092",
                "retryable": True,
                "at": "2026-11-20T12:00:00Z",
            }
        ]
    } == get(path, "/v1/query/failures")
