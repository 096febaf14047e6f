"""Lookups of state over HTTP: their answers, errors, permissions, deadlines and cancellation."""

import asyncio
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from job.errors import BusyError, CheckpointError, ConflictError, RequestError, StreamjoinError
from job.protocol.calls import Explain, State
from job.protocol.results import PlanResult
from job.protocol.status import QueryState
from job.spec.sides import Side
from tests.polling import wait_until
from tests.unit.service.answers import ROW_JSON, all_answers, key_rows_json
from tests.unit.service.builders import (
    WAITS,
    SmallJob,
    batch,
    hung_job,
    serving,
    status,
    status_after,
)
from tests.unit.service.calls import (
    DEADLINE,
    PATIENCE_SECONDS,
    SLACK_SECONDS,
    call,
    problem,
    settings,
    with_client,
)

LOOKUPS = {
    "state_count": "/v1/query/state",
    "state": "/v1/query/state/left?key=7",
    "explain": "/v1/query/explain?key=7",
}


def send(path: Path, method: str, url: str, **request: Any) -> tuple[httpx.Response, SmallJob]:
    with serving(path, status()) as job:
        job.answers.update(all_answers())
        return call(method, url, settings(path), **request), job


def test_rows_are_counted_by_side_and_partition(path: Path) -> None:
    answer, _ = send(path, "GET", "/v1/query/state")

    body = answer.json()
    oldest = "2026-11-20T12:00:00Z"
    assert (7, oldest, 0.75) == (body["batch_id"], body["counted_at"], body["duration_seconds"])
    assert {
        "rows": 160,
        "unmatched_rows": 42,
        "partitions": [
            {"partition": 0, "rows": 100, "unmatched_rows": 30, "event_time_min": oldest},
            {"partition": 1, "rows": 60, "unmatched_rows": 12, "event_time_min": oldest},
        ],
        "stored_ids": 90,
        "sample_keys": [["a"], ["b"]],
    } == body["left"]
    assert (240, None) == (body["right"]["rows"], body["right"]["unmatched_rows"])


@pytest.mark.parametrize("side", ["left", "right"])
def test_rows_of_a_key_are_returned(path: Path, side: Side) -> None:
    answer, job = send(path, "GET", f"/v1/query/state/{side}?key=a%20b&key=7&limit=3")

    assert key_rows_json("left", ROW_JSON) == answer.json()
    assert State(side=side, key=["a b", "7"], limit=3) == job.last_request


def test_key_is_explained_with_its_rows_on_both_sides(path: Path) -> None:
    since = "&since=2026-11-20T10:00:00Z"
    answer, job = send(path, "GET", f"/v1/query/explain?key=7{since}")

    assert {
        "sentences": ["The query is PAUSED."],
        "left": key_rows_json("left", ROW_JSON),
        "right": key_rows_json("right"),
    } == answer.json()
    at = datetime(2026, 11, 20, 10, tzinfo=UTC)
    assert Explain(key=["7"], limit=20, since=at) == job.last_request


@pytest.mark.parametrize(
    "url",
    [
        "/v1/query/state/left",
        "/v1/query/explain",
        "/v1/query/explain?key=7&since=2026-11-20T10:00:00",
        "/v1/query/state/middle?key=7",
        "/v1/query/state/left?key=7&limit=0",
        "/v1/query/state/left?key=7&limit=101",
        "/v1/query/explain?key=" + "x" * 1025,
        "/v1/query/explain?" + "&".join(["key=1"] * 17),
    ],
)
def test_invalid_lookup_is_refused(path: Path, url: str) -> None:
    answer, job = send(path, "GET", url)

    assert 422 == problem(answer)["status"]
    assert job.last_request is None


@pytest.mark.parametrize(
    ("error", "code", "kind", "detail"),
    [
        (RequestError("the key has 2 parts"), 422, "invalid_request", "the key has 2 parts"),
        (ConflictError("it is STOPPED", allowed=["resume"]), 409, "conflict", "it is STOPPED"),
        (BusyError("8 lookups wait", retry_after_seconds=2.1), 429, "busy", "8 lookups wait"),
        (CheckpointError("cannot be read"), 503, "job_unavailable", "cannot be read"),
    ],
)
@pytest.mark.parametrize("name", LOOKUPS)
def test_refusal_of_the_job_has_its_status_and_type(
    path: Path, name: str, error: StreamjoinError, code: int, kind: str, detail: str
) -> None:
    with serving(path, status()) as job:
        job.answers[name] = error
        answer = call("GET", LOOKUPS[name], settings(path))

    body = problem(answer)
    assert (code, f"urn:streamjoin:problem:{kind}", detail) == (
        body["status"],
        body["type"],
        body["detail"],
    )
    assert {409: ["resume"]}.get(code) == body.get("allowed")
    assert {429: "3"}.get(code) == answer.headers.get("retry-after")


def test_internal_error_of_the_job_is_not_one_of_the_service(path: Path) -> None:
    with serving(path, status()) as job:
        job.answers["state_count"] = KeyError("an accident")
        body = problem(call("GET", "/v1/query/state", settings(path)))
        after = call("GET", "/v1/query", settings(path))

    assert (503, "the job failed to answer (KeyError): see its log") == (
        body["status"],
        body["detail"],
    )
    assert 200 == after.status_code


def test_answer_of_another_shape_is_of_another_version(path: Path) -> None:
    with serving(path, status()) as job:
        job.answers["state_count"] = PlanResult(text="x", facts={}, spec={})
        body = problem(call("GET", "/v1/query/state", settings(path)))

    assert 503 == body["status"]
    assert "run the same version of job and service" in body["detail"]


# --- Permissions


@pytest.mark.parametrize(
    ("method", "url", "read", "control"),
    [
        ("GET", "/v1/query/state", 200, 200),
        ("GET", "/v1/query/state/left?key=7", 200, 200),
        ("GET", "/v1/query/explain?key=7", 403, 200),
        ("GET", "/v1/query/plan", 200, 200),
        ("GET", "/v1/query/spec", 200, 200),
        ("GET", "/v1/query/progress", 200, 200),
        ("GET", "/v1/query/failures", 200, 200),
        ("GET", "/v1/query/offsets", 200, 200),
        ("POST", "/v1/validate", 200, 200),
        ("PATCH", "/v1/query/offsets", 403, 202),
        ("POST", "/v1/query/reset", 403, 202),
    ],
)
def test_reading_needs_the_scope_read_and_a_new_checkpoint_control(
    path: Path, method: str, url: str, read: int, control: int
) -> None:
    tokens = path.with_name("tokens")
    tokens.write_text("eve read aaaaaaaaaaaaaaaa\nada control cccccccccccccccc\n")
    tokens.chmod(0o600)
    body: dict[str, Any] = {"confirm": "ad_attribution", "start": "latest"}
    if url == "/v1/validate":
        body = {"spec": "name: x"}
    elif method == "PATCH":
        body = {"confirm": "ad_attribution", "left": {"0": 90}}

    def code(token: str | None) -> int:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        request = {"headers": headers, **({} if method == "GET" else {"json": body})}
        return call(method, url, settings(path, tokens_file=tokens), **request).status_code

    with serving(path, status_after(batch(), state=QueryState.STOPPED)) as job:
        job.answers.update(all_answers())
        assert [401, read, control] == [code(None), code("a" * 16), code("c" * 16)]
        assert ["ada@127.0.0.1"] * (control == 202) == [by for _, by in job.commands]


# --- Cancellation and deadlines


@pytest.mark.parametrize("name", LOOKUPS)
def test_job_cancels_a_lookup_whose_call_is_cancelled(path: Path, name: str) -> None:
    async def cancel_during_lookup(client: httpx.AsyncClient) -> None:
        lookup = asyncio.create_task(client.get(LOOKUPS[name]))
        await asyncio.to_thread(
            wait_until,
            lambda: job.gone is not None,
            PATIENCE_SECONDS,
            "the job has the call",
        )
        assert job.gone is not None
        assert not job.gone.is_set()
        lookup.cancel()
        await asyncio.wait([lookup])
        await asyncio.to_thread(wait_until, job.gone.is_set, PATIENCE_SECONDS, "the job cancels")

    with serving(path, status()) as job:
        job.answers[name] = WAITS
        with_client(cancel_during_lookup, settings(path))


@pytest.mark.parametrize("name", LOOKUPS)
def test_lookup_has_its_own_deadline(path: Path, name: str) -> None:
    with serving(path, status()) as job:
        job.answers[name] = WAITS
        started = time.monotonic()
        body = problem(call("GET", LOOKUPS[name], settings(path, lookup_seconds=0.3)))
        elapsed = time.monotonic() - started

        assert job.gone is not None
        wait_until(job.gone.is_set, PATIENCE_SECONDS, "the job cancels")
    assert 503 == body["status"]
    assert (
        "did not answer within 0.3 s: the call was cancelled; repeat it when the query has less "
        "load, or increase STREAMJOIN_LOOKUP_SECONDS"
    ) in body["detail"]
    assert elapsed < DEADLINE.total_seconds() + SLACK_SECONDS


@pytest.mark.parametrize(
    "url", [*LOOKUPS.values(), *(f"/v1/query/{name}" for name in ("plan", "progress", "offsets"))]
)
def test_hung_job_is_detected_within_the_shorter_deadline(path: Path, url: str) -> None:
    patient = settings(
        path, job_answer_seconds=DEADLINE.total_seconds(), lookup_seconds=PATIENCE_SECONDS
    )
    with hung_job(path):
        started = time.monotonic()
        body = problem(call("GET", url, patient))

    assert 503 == body["status"]
    assert time.monotonic() - started < DEADLINE.total_seconds() + SLACK_SECONDS


def test_service_answers_other_calls_during_a_lookup(path: Path) -> None:
    async def call_meanwhile(client: httpx.AsyncClient) -> int:
        lookup = asyncio.create_task(client.get("/v1/query/state"))
        await asyncio.to_thread(
            wait_until,
            lambda: job.gone is not None,
            PATIENCE_SECONDS,
            "the job has the call",
        )
        async with asyncio.timeout(SLACK_SECONDS):
            meanwhile = await client.get("/v1/query")
        lookup.cancel()
        await asyncio.wait([lookup])
        return meanwhile.status_code

    with serving(path, status()) as job:
        job.answers["state_count"] = WAITS
        assert 200 == with_client(call_meanwhile, settings(path))
