"""The HTTP API in front of a real control socket."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from job.protocol.status import QueryState
from tests.unit.service.builders import (
    NO_BROKER,
    batch,
    hung_job,
    just_polled,
    serving,
    status,
    status_after,
)
from tests.unit.service.calls import (
    COMMANDS,
    SLACK_SECONDS,
    call,
    problem,
    settings,
    with_client,
)

# --- Commands


@pytest.mark.parametrize("verb", COMMANDS)
def test_command_is_accepted_and_answered_with_the_current_state(path: Path, verb: str) -> None:
    method, state = COMMANDS[verb]
    with serving(path, status()) as job:
        answer = call(method, f"/v1/query/{verb}", settings(path))

    assert (202, state) == (answer.status_code, answer.json()["state"])
    assert [(verb, "http:127.0.0.1")] == job.commands


@pytest.mark.parametrize("verb", COMMANDS)
def test_command_is_idempotent(path: Path, verb: str) -> None:
    method, state = COMMANDS[verb]
    with serving(path, status()):
        answers = [call(method, f"/v1/query/{verb}", settings(path)) for _ in range(2)]

    assert [(202, state)] * 2 == [(each.status_code, each.json()["state"]) for each in answers]


def test_forbidden_command_is_a_conflict_with_the_allowed_verbs(path: Path) -> None:
    with serving(path, status(QueryState.FAILED), allowed=("restart", "stop")):
        answer = call("PUT", "/v1/query/pause", settings(path))

    assert {
        "type": "urn:streamjoin:problem:conflict",
        "title": "The state of the query forbids the command",
        "status": 409,
        "detail": "pause is not possible while the query is FAILED",
        "instance": "/v1/query/pause",
        "allowed": ["restart", "stop"],
    } == problem(answer)


@pytest.mark.parametrize("verb", COMMANDS)
def test_commands_without_tokens_are_refused_on_a_public_address(path: Path, verb: str) -> None:
    with serving(path, status()) as job:
        answer = call(COMMANDS[verb][0], f"/v1/query/{verb}", settings(path, host="0.0.0.0"))  # noqa: S104

    assert 403 == problem(answer)["status"]
    assert (
        "commands are refused: the service listens on 0.0.0.0, which is not a loopback address, "
        "and has no tokens; set STREAMJOIN_TOKENS_FILE, or STREAMJOIN_HOST to a loopback address"
    ) == problem(answer)["detail"]
    assert [] == job.commands


# --- Probes and metrics


def test_livez_needs_no_job(path: Path) -> None:
    assert (200, {"checks": []}) == answered(call("GET", "/livez", settings(path)))


def test_readyz_lists_its_checks(path: Path) -> None:
    running = status_after(batch(), last_progress_at=just_now(), brokers=just_polled())
    with serving(path, running):
        code, body = answered(call("GET", "/readyz", settings(path)))

    assert 200 == code
    assert [
        ("job", True), ("query", True), ("progress", True),
        ("brokers", True), ("lag", True), ("watermark", True),
    ] == checks(body)  # fmt: skip


def test_not_ready_is_a_problem_that_names_the_failing_check(path: Path) -> None:
    down = status_after(batch(), state=QueryState.RESTARTING, last_failure=NO_BROKER)
    fresh = {"last_progress_at": just_now(), "brokers": just_polled()}
    with serving(path, down.model_copy(update=fresh)):
        body = problem(call("GET", "/readyz", settings(path)))

    assert ("urn:streamjoin:problem:not_ready", 503) == (body["type"], body["status"])
    assert (
        "query: is RESTARTING after a failure at 2026-11-20T12:00:00+00:00: "
        "no broker answers at localhost:9092"
    ) == body["detail"]
    assert ["query"] == [name for name, ok in checks(body) if not ok]


def test_maximum_age_of_progress_is_a_setting(path: Path) -> None:
    with serving(path, status_after(batch(), brokers=just_polled())):  # progress was long ago
        patient = settings(path, progress_age_max_seconds=1e9)

        assert 503 == call("GET", "/readyz", settings(path)).status_code
        assert 200 == call("GET", "/readyz", patient).status_code


@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ({"lag_max_records": 15}, 200),
        ({"lag_max_records": 14}, 503),
        ({"watermark_lag_max_seconds": 1e9}, 200),
        ({"watermark_lag_max_seconds": 60}, 503),
    ],
)
def test_limits_of_lag_and_watermark_lag_are_settings(
    path: Path, limit: dict[str, float], code: int
) -> None:
    running = status_after(batch(), last_progress_at=just_now(), brokers=just_polled())
    with serving(path, running):
        assert code == call("GET", "/readyz", settings(path, **limit)).status_code


def test_startupz_succeeds_after_the_first_progress(path: Path) -> None:
    with serving(path, status(QueryState.RUNNING)) as job:
        before = call("GET", "/startupz", settings(path))
        job.current = status_after(batch())
        after = call("GET", "/startupz", settings(path))

    assert 503 == problem(before)["status"]
    assert (200, [("job", True), ("started", True)]) == (after.status_code, checks(after.json()))


def test_scrape_has_the_current_figures_of_the_job(path: Path) -> None:
    with serving(path, status_after(batch())) as job:
        first = call("GET", "/metrics", settings(path))
        job.current = status_after(batch(), batch())
        second = call("GET", "/metrics", settings(path))

    assert "\nstreamjoin_output_records_total 30.0\n" in first.text
    assert "\nstreamjoin_output_records_total 60.0\n" in second.text
    assert first.headers["content-type"].startswith("text/plain; version=")


def test_scrape_succeeds_without_a_job(path: Path) -> None:
    scrape = call("GET", "/metrics", settings(path))

    exposed = {line.split("{")[0].split(" ")[0] for line in scrape.text.splitlines()} - {"#"}
    assert (200, {"streamjoin_job_up", "streamjoin_build_info"}) == (scrape.status_code, exposed)
    assert "\nstreamjoin_job_up 0.0\n" in scrape.text


# --- Without a job


@pytest.mark.parametrize(
    ("method", "url"),
    [("GET", "/v1/query"), *((method, f"/v1/query/{v}") for v, (method, _) in COMMANDS.items())],
)
def test_calls_without_a_job_are_unavailable_with_the_fix(
    path: Path, method: str, url: str
) -> None:
    assert {
        "type": "urn:streamjoin:problem:job_unavailable",
        "title": "The job does not answer",
        "status": 503,
        "detail": f"no job answers on {path}: start it with `streamjoin run`, "
        "or set STREAMJOIN_SOCKET to the path of the job's socket",
        "instance": url,
    } == problem(call(method, url, settings(path)))


def test_livez_does_not_wait_for_a_hung_job(path: Path) -> None:
    async def livez_while_another_call_waits(client: httpx.AsyncClient) -> int:
        waiting = asyncio.create_task(client.get("/readyz"))
        async with asyncio.timeout(SLACK_SECONDS):
            alive = await client.get("/livez")
        waiting.cancel()
        await asyncio.wait([waiting])
        return alive.status_code

    with hung_job(path):
        assert 200 == with_client(livez_while_another_call_waits, settings(path))


def answered(answer: httpx.Response) -> tuple[int, Any]:
    return answer.status_code, answer.json()


def checks(body: dict[str, Any]) -> list[tuple[str, bool]]:
    return [(check["name"], check["ok"]) for check in body["checks"]]


def just_now() -> datetime:
    return datetime.now(UTC)
