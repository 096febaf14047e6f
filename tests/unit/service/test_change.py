"""POST /v1/query/change."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from job.errors import ConflictError, RequestError
from job.protocol.reports import ChangeRequestReport
from tests.unit.service.answers import all_answers
from tests.unit.service.builders import NOW, SmallJob, batch, serving, status_after
from tests.unit.service.calls import call, problem, settings

URL = "/v1/query/change"
SPEC = "name: ad_attribution\n"


def sent(
    path: Path,
    url: str = URL,
    answer: Any = None,
    body: Mapping[str, Any] | None = None,
    **options: Any,
) -> tuple[httpx.Response, SmallJob]:
    with serving(path, status_after(batch()), **options) as job:
        job.answers = {**all_answers(), **({"change_plan": answer} if answer else {})}
        return call("POST", url, settings(path), json={"spec": SPEC, **(body or {})}), job


def test_change_is_accepted_with_its_plan(path: Path) -> None:
    answer, job = sent(path)

    assert (202, {"text": "What changes", "facts": {"records": 12}}) == (
        answer.status_code,
        answer.json(),
    )
    assert ([("change", "http:127.0.0.1")], SPEC) == (job.commands, job.last_command.spec)
    assert SPEC == job.last_request.spec


def test_body_can_be_yaml(path: Path) -> None:
    with serving(path, status_after(batch())) as job:
        job.answers = {**all_answers()}
        kind = {"Content-Type": "text/yaml"}
        answer = call("POST", URL, settings(path), content=SPEC, headers=kind)

    assert (202, SPEC) == (answer.status_code, job.last_command.spec)


def test_state_partitions_are_a_parameter(path: Path) -> None:
    answer, job = sent(path, f"{URL}?state_partitions=8")

    assert (202, 8) == (answer.status_code, job.last_command.state_partitions)
    assert 8 == job.last_request.state_partitions


@pytest.mark.parametrize(
    ("url", "body"), [(f"{URL}?state_partitions=0", {}), (URL, {"state_partitions": 8})]
)
def test_invalid_state_partitions_change_nothing(
    path: Path, url: str, body: dict[str, int]
) -> None:
    answer, job = sent(path, url, body=body)

    assert 422 == answer.status_code
    assert "state_partitions" in answer.text
    assert [] == job.commands


def test_dry_run_changes_nothing(path: Path) -> None:
    answer, job = sent(path, f"{URL}?dry_run=true")

    assert (200, "What changes") == (answer.status_code, answer.json()["text"])
    assert [] == job.commands


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (RequestError("checkpoint: must be a folder next to the running checkpoint"), 422),
        (ConflictError("Kafka has deleted records", allowed=[]), 409),
    ],
)
def test_refused_plan_changes_nothing(path: Path, refusal: Exception, code: int) -> None:
    answer, job = sent(path, answer=refusal)

    assert (code, str(refusal)) == (problem(answer)["status"], problem(answer)["detail"])
    assert [] == job.commands


def test_state_that_allows_no_change_is_a_conflict(path: Path) -> None:
    answer, _ = sent(path, allowed=("resume",))

    assert (409, ["resume"]) == (problem(answer)["status"], problem(answer)["allowed"])


def test_change_that_waits_is_cancelled(path: Path) -> None:
    with serving(path, status_after(batch())) as job:
        answer = call("DELETE", URL, settings(path))

    assert (202, "RUNNING") == (answer.status_code, answer.json()["state"])
    assert [("cancel", "http:127.0.0.1")] == job.commands


def test_undo_is_accepted(path: Path) -> None:
    answer, job = sent(path, f"{URL}/undo")

    assert (202, "RUNNING") == (answer.status_code, answer.json()["state"])
    assert [("undo", "http:127.0.0.1")] == job.commands


def test_refused_undo_changes_nothing(path: Path) -> None:
    answers = {"check_undo": ConflictError("has begun to deliver", allowed=[])}
    with serving(path, status_after(batch())) as job:
        job.answers = answers
        answer = call("POST", f"{URL}/undo", settings(path))

    assert (409, "has begun to deliver") == (answer.status_code, problem(answer)["detail"])
    assert [] == job.commands


def test_failed_change_is_in_the_status(path: Path) -> None:
    report = ChangeRequestReport(
        requested_by="ada", requested_at=NOW, checkpoint="/next", failed_at=NOW, error="no folder"
    )
    with serving(path, status_after(batch(), last_change=report)):
        shown = call("GET", "/v1/query", settings(path)).json()["last_change"]

    assert {
        "requested_by": "ada",
        "requested_at": "2026-11-20T12:00:00Z",
        "checkpoint": "/next",
        "made_at": None,
        "failed_at": "2026-11-20T12:00:00Z",
        "error": "no folder",
        "waits_for": None,
        "repeated_interval": None,
        "records_left": None,
    } == shown
