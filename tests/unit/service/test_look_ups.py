"""State, explain and validate over HTTP: what they tell, and how they end early."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from job.errors import BusyError, CheckpointError, ConflictError, RequestError, StreamjoinError
from job.protocol.results import PlanResult
from job.protocol.status import QueryState
from tests.polling import wait_until
from tests.unit.service.answers import ROW_SHOWN, all_answers, key_rows_shown
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

LOOK_UPS = {
    "state_count": "/v1/query/state",
    "state": "/v1/query/state/left?key=7",
    "explain": "/v1/query/explain?key=7",
}


def asked(path: Path, method: str, url: str, **request: Any) -> tuple[httpx.Response, SmallJob]:
    with serving(path, status()) as job:
        job.answers.update(all_answers())
        return call(method, url, settings(path), **request), job


def test_rows_are_counted_by_side_and_partition(path: Path) -> None:
    answer, _ = asked(path, "GET", "/v1/query/state")

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
    } == body["left"]
    assert (240, None) == (body["right"]["rows"], body["right"]["unmatched_rows"])


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_rows_of_a_key_are_shown(path: Path, side: str) -> None:
    answer, job = asked(path, "GET", f"/v1/query/state/{side}?key=a%20b&key=7&limit=3")

    assert key_rows_shown("left", ROW_SHOWN) == answer.json()
    assert job.asked is not None
    assert job.asked.state is not None
    assert (side, ["a b", "7"], 3) == (
        job.asked.state.side,
        job.asked.state.key,
        job.asked.state.limit,
    )


def test_a_key_is_explained_with_its_rows_on_both_sides(path: Path) -> None:
    answer, job = asked(path, "GET", "/v1/query/explain?key=7")

    assert {
        "sentences": ["The query is PAUSED."],
        "left": key_rows_shown("left", ROW_SHOWN),
        "right": key_rows_shown("right"),
    } == answer.json()
    assert job.asked is not None
    assert job.asked.state is not None
    assert (None, ["7"]) == (job.asked.state.side, job.asked.state.key)


@pytest.mark.parametrize(
    "url",
    [
        "/v1/query/state/left",
        "/v1/query/explain",
        "/v1/query/state/middle?key=7",
        "/v1/query/state/left?key=7&limit=0",
        "/v1/query/state/left?key=7&limit=101",
        "/v1/query/explain?key=" + "x" * 1025,
        "/v1/query/explain?" + "&".join(["key=1"] * 17),
    ],
)
def test_a_look_up_of_nothing_is_refused(path: Path, url: str) -> None:
    answer, job = asked(path, "GET", url)

    assert 422 == problem(answer)["status"]
    assert job.asked is None


@pytest.mark.parametrize(
    ("error", "code", "kind", "detail"),
    [
        (RequestError("the key has 2 parts"), 422, "invalid_request", "the key has 2 parts"),
        (ConflictError("it is STOPPED", allowed=["resume"]), 409, "conflict", "it is STOPPED"),
        (BusyError("ask again", retry_after_seconds=2.1), 429, "busy", "ask again"),
        (CheckpointError("cannot be read"), 503, "job_unavailable", "cannot be read"),
    ],
)
@pytest.mark.parametrize("question", LOOK_UPS)
def test_what_the_job_refuses_is_told_as_what_it_is(
    path: Path, question: str, error: StreamjoinError, code: int, kind: str, detail: str
) -> None:
    with serving(path, status()) as job:
        job.answers[question] = error
        answer = call("GET", LOOK_UPS[question], settings(path))

    body = problem(answer)
    assert (code, f"urn:streamjoin:problem:{kind}", detail) == (
        body["status"],
        body["type"],
        body["detail"],
    )
    assert {409: ["resume"]}.get(code) == body.get("allowed")
    assert {429: "3"}.get(code) == answer.headers.get("retry-after")


def test_a_job_that_breaks_over_a_question_is_no_defect_of_the_sidecar(path: Path) -> None:
    with serving(path, status()) as job:
        job.answers["state_count"] = KeyError("an accident")
        body = problem(call("GET", "/v1/query/state", settings(path)))
        after = call("GET", "/v1/query", settings(path))

    assert (503, "the job failed to answer (KeyError): its log says why") == (
        body["status"],
        body["detail"],
    )
    assert 200 == after.status_code


def test_an_answer_of_another_shape_is_of_another_version(path: Path) -> None:
    with serving(path, status()) as job:
        job.answers["state_count"] = PlanResult(text="x", facts={}, spec={})
        body = problem(call("GET", "/v1/query/state", settings(path)))

    assert 503 == body["status"]
    assert "run job and sidecar of the same version" in body["detail"]


# --- Who may


@pytest.mark.parametrize(
    ("method", "url", "read", "control"),
    [
        ("GET", "/v1/query/state", 200, 200),
        ("GET", "/v1/query/state/left?key=7", 200, 200),
        ("GET", "/v1/query/explain?key=7", 200, 200),
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
def test_looking_needs_the_scope_read_and_beginning_anew_control(
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


# --- Ends before the answer


@pytest.mark.parametrize("question", LOOK_UPS)
def test_the_job_gives_up_when_the_call_is_cancelled(path: Path, question: str) -> None:
    async def cancel_once_asked(client: httpx.AsyncClient) -> None:
        asking = asyncio.create_task(client.get(LOOK_UPS[question]))
        await asyncio.to_thread(
            wait_until, lambda: job.gone is not None, PATIENCE_SECONDS, "the job is asked"
        )
        assert job.gone is not None
        assert not job.gone.is_set()
        asking.cancel()
        await asyncio.wait([asking])
        await asyncio.to_thread(wait_until, job.gone.is_set, PATIENCE_SECONDS, "the job knows")

    with serving(path, status()) as job:
        job.answers[question] = WAITS
        with_client(cancel_once_asked, settings(path))


@pytest.mark.parametrize("question", LOOK_UPS)
def test_a_look_up_has_a_deadline_of_its_own(path: Path, question: str) -> None:
    with serving(path, status()) as job:
        job.answers[question] = WAITS
        started = time.monotonic()
        body = problem(call("GET", LOOK_UPS[question], settings(path, look_up_seconds=0.3)))
        elapsed = time.monotonic() - started

        assert job.gone is not None
        wait_until(job.gone.is_set, PATIENCE_SECONDS, "the job knows")
    assert 503 == body["status"]
    assert (
        "did not answer within 0.3 s: it was given up; ask again when the query has less to do, "
        "or set STREAMJOIN_LOOK_UP_SECONDS to more"
    ) in body["detail"]
    assert elapsed < DEADLINE.total_seconds() + SLACK_SECONDS


@pytest.mark.parametrize(
    "url", [*LOOK_UPS.values(), *(f"/v1/query/{what}" for what in ("plan", "progress", "offsets"))]
)
def test_a_hung_job_is_found_within_the_shorter_deadline(path: Path, url: str) -> None:
    patient = settings(
        path, job_answer_seconds=DEADLINE.total_seconds(), look_up_seconds=PATIENCE_SECONDS
    )
    with hung_job(path):
        started = time.monotonic()
        body = problem(call("GET", url, patient))

    assert 503 == body["status"]
    assert time.monotonic() - started < DEADLINE.total_seconds() + SLACK_SECONDS


def test_the_sidecar_answers_others_while_a_look_up_is_at_work(path: Path) -> None:
    async def ask_meanwhile(client: httpx.AsyncClient) -> int:
        asking = asyncio.create_task(client.get("/v1/query/state"))
        await asyncio.to_thread(
            wait_until, lambda: job.gone is not None, PATIENCE_SECONDS, "the job is asked"
        )
        async with asyncio.timeout(SLACK_SECONDS):
            meanwhile = await client.get("/v1/query")
        asking.cancel()
        await asyncio.wait([asking])
        return meanwhile.status_code

    with serving(path, status()) as job:
        job.answers["state_count"] = WAITS
        assert 200 == with_client(ask_meanwhile, settings(path))


# --- Validate


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("text/yaml", "name: x"),
        ("application/yaml", "name: x"),
        ("text/plain; charset=utf-8", "name: x"),
        ("TEXT/YAML", "name: x"),
        ("application/json", '{"spec": "name: x"}'),
    ],
)
def test_a_spec_is_judged_by_the_job(path: Path, kind: str, content: str) -> None:
    answer, job = asked(
        path, "POST", "/v1/validate", content=content, headers={"content-type": kind}
    )

    assert {
        "problems": [{"field": "left.key", "message": "is required"}],
        "plan": None,
        "checkpoint_changes": [{"field": "join type", "frozen": "inner", "wanted": "x"}],
    } == answer.json()
    assert 200 == answer.status_code
    assert job.asked is not None
    assert "name: x" == job.asked.spec


def test_a_spec_as_large_as_a_body_may_be_arrives(path: Path) -> None:
    spec = "\\\x07" * (64 * 1024 // 2)
    answer, job = asked(
        path, "POST", "/v1/validate", content=spec, headers={"content-type": "text/yaml"}
    )

    assert 200 == answer.status_code
    assert job.asked is not None
    assert spec == job.asked.spec


@pytest.mark.parametrize(
    ("kind", "content", "code"),
    [
        ("application/x-www-form-urlencoded", b"name: x", 415),
        ("", b"name: x", 415),
        ("text/yaml", b"name: \xff", 422),
        ("application/json", b"name: x", 422),
        ("application/json", b'{"spec": 5}', 422),
        ("application/json", b'{"spec": "x", "other": 1}', 422),
        ("text/yaml", b"x" * (64 * 1024 + 1), 413),
    ],
)
def test_what_is_no_text_of_a_spec_is_refused(
    path: Path, kind: str, content: bytes, code: int
) -> None:
    answer, job = asked(
        path, "POST", "/v1/validate", content=content, headers={"content-type": kind}
    )

    assert code == problem(answer)["status"]
    assert job.asked is None
