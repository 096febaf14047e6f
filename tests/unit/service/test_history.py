"""Plan, spec, batches, failures and offsets over HTTP."""

from pathlib import Path
from typing import Any

import pytest

from job.join_spec.spec import spec_from_yaml
from job.plan.explain import explained, facts
from job.plan.planner import join_plan
from job.protocol.reports import SideOffsets
from job.protocol.results import PlanResult
from service.history import SideBatchView
from tests.unit.service.answers import all_answers
from tests.unit.service.builders import (
    batch,
    broker_report,
    just_looked,
    serving,
    side,
    status,
    status_after,
)
from tests.unit.service.calls import call, problem, settings
from tests.unit.specs import spec_yaml

SECRET = "planted-pa55word"


def shown(path: Path, url: str) -> Any:
    with serving(path, status_after(batch(), brokers=just_looked())) as job:
        job.answers.update(all_answers())
        answer = call("GET", url, settings(path))
    assert 200 == answer.status_code, answer.text
    return answer.json()


def test_the_plan_is_told_in_words_and_as_facts(path: Path) -> None:
    assert {
        "text": "Join ad_attribution",
        "facts": {"name": "ad_attribution"},
    } == shown(path, "/v1/query/plan")


def test_the_spec_is_told_without_its_secrets(path: Path) -> None:
    security = {"protocol": "SASL_PLAINTEXT", "mechanism": "PLAIN", "username": "ada"}
    spec = spec_from_yaml(spec_yaml(kafka__security={**security, "password": SECRET}), {})
    plan = join_plan(spec, state_partitions=1)
    answer = PlanResult(
        text=explained(plan),
        facts=facts(plan),
        spec=spec.model_dump(mode="json", by_alias=True),
    )
    with serving(path, status()) as job:
        job.answers["plan"] = answer
        told = [call("GET", f"/v1/query/{what}", settings(path)) for what in ("spec", "plan")]

    assert "ada" == told[0].json()["kafka"]["security"]["username"]
    assert "tested" == told[0].json()["name"]
    assert [] == [each.url for each in told if SECRET in each.text]


@pytest.mark.parametrize(("question", "count"), [("", 20), ("?last=1", 1), ("?last=100", 100)])
def test_the_last_batches_are_told_oldest_first(path: Path, question: str, count: int) -> None:
    batches = shown(path, f"/v1/query/progress{question}")["batches"]

    assert [*range(100 - count, 100)] == [told["batch_id"] for told in batches]


def test_a_past_batch_is_told_with_its_phases_and_sides(path: Path) -> None:
    [told] = shown(path, "/v1/query/progress?last=1")["batches"]

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
            "null_keys": 1,
            "bad_records": {"malformed_json": 3, "tombstone": 0},
            "event_time_max": "2026-11-20T11:59:57.500000Z",
            "offsets_behind_latest_total": 15,
        },
        "right": {
            "records": 10,
            "null_keys": 0,
            "bad_records": {"malformed_json": 3, "tombstone": 0},
            "event_time_max": "2026-11-20T11:59:56Z",
            "offsets_behind_latest_total": 2,
        },
    } == told


def test_a_batch_that_was_run_again_does_not_say_that_nothing_was_left() -> None:
    assert SideBatchView.of(side(latest_offsets={})).offsets_behind_latest_total is None


@pytest.mark.parametrize("last", ["0", "101", "x", ""])
def test_how_many_batches_has_limits(path: Path, last: str) -> None:
    with serving(path, status()):
        body = problem(call("GET", f"/v1/query/progress?last={last}", settings(path)))

    assert (422, ["query.last"]) == (body["status"], [each["field"] for each in body["errors"]])


def test_failures_are_told(path: Path) -> None:
    assert {
        "failures": [
            {
                "code": "broker",
                "message": "no broker answers at localhost:9092",
                "retryable": True,
                "at": "2026-11-20T12:00:00Z",
            }
        ]
    } == shown(path, "/v1/query/failures")


def test_offsets_are_told_by_side_and_partition(path: Path) -> None:
    body = shown(path, "/v1/query/offsets")

    assert {
        "topic": "impressions",
        "partitions": {
            "0": {
                "read": 90,
                "earliest": 10,
                "latest": 100,
                "behind_latest": 10,
                "retention_headroom": 80,
                "event_time": None,
            },
            "1": {
                "read": 100,
                "earliest": 40,
                "latest": 105,
                "behind_latest": 5,
                "retention_headroom": 60,
                "event_time": "2026-11-20T11:59:57.500000Z",
            },
        },
    } == body["left"]
    assert "clicks" == body["right"]["topic"]
    assert body["error"] is None


def test_offsets_that_are_not_known_are_null(path: Path) -> None:
    new = SideOffsets(topic="impressions", read={0: 5}, latest={0: 5, 1: 2}, earliest={1: 0})
    with serving(path, status(brokers=broker_report(left=new, error="x"))):
        body = call("GET", "/v1/query/offsets", settings(path)).json()

    partitions = body["left"]["partitions"]
    assert [5, None] == [partitions[number]["read"] for number in ("0", "1")]
    assert [None, 0] == [partitions[number]["earliest"] for number in ("0", "1")]
    assert [None, None] == [partitions[number]["retention_headroom"] for number in ("0", "1")]
    assert ("2026-11-20T12:00:00Z", "x") == (body["answered_at"], body["error"])


def test_before_the_first_look_at_the_brokers_there_are_no_partitions(path: Path) -> None:
    with serving(path, status()):
        body = call("GET", "/v1/query/offsets", settings(path)).json()

    nothing = {"topic": None, "partitions": {}}
    assert {"answered_at": None, "error": None, "left": nothing, "right": nothing} == body
