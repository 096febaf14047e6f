"""Authorization with tokens (RFC 6750), and the log of commands."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from job.protocol.status import QueryState
from service.body_limit import BODY_BYTES_MAX
from service.settings import ServiceSettings
from tests.unit.service.builders import NO_BROKER, SmallJob, batch, serving, status_after
from tests.unit.service.calls import COMMANDS, call, problem, settings

READ = "0QXcFq6cXXuE4kqLq7bW"
CONTROL = "Yk3iq0Yl8B2w1c5v0m9K"
PUBLIC = "0.0.0.0"  # noqa: S104
OPEN_CALLS = ["/livez", "/readyz", "/startupz", "/openapi.json"]


@pytest.fixture
def made(path: Path, tmp_path: Path) -> ServiceSettings:
    """Settings of a service with two tokens on a public address."""
    file = tmp_path / "tokens"
    file.write_text(f"grafana read {READ}\nada control {CONTROL}\n")
    return settings(path, tokens_file=file, host=PUBLIC)


@pytest.fixture(autouse=True)
def job(path: Path) -> Iterator[SmallJob]:
    failed = status_after(batch(), last_failure=NO_BROKER, state=QueryState.RESTARTING)
    with serving(path, failed) as job:
        yield job


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def challenge_of(answer: httpx.Response) -> tuple[int, str]:
    return problem(answer)["status"], answer.headers["www-authenticate"]


# --- Reading


@pytest.mark.parametrize("url", ["/v1/query", "/metrics"])
def test_reading_needs_a_token_of_either_scope(url: str, made: ServiceSettings) -> None:
    for token in (READ, CONTROL):
        assert 200 == call("GET", url, made, headers=bearer(token)).status_code
    assert 200 == call("GET", url, made, headers={"Authorization": f"bearer {READ}"}).status_code


def test_allowed_commands_are_those_of_the_client(path: Path, made: ServiceSettings) -> None:
    open_to_all = settings(path, host=PUBLIC)
    calls = ((made, READ), (made, CONTROL), (open_to_all, READ), (settings(path), READ))
    allowed = [
        call("GET", "/v1/query", service, headers=bearer(token)).json()["allowed_commands"]
        for service, token in calls
    ]

    every = ["pause", "resume", "stop", "restart"]
    assert [[], every, [], every] == allowed


@pytest.mark.parametrize("url", ["/v1/query", "/metrics"])
def test_missing_token_is_requested(url: str, made: ServiceSettings) -> None:
    answer = call("GET", url, made)

    assert (401, 'Bearer realm="streamjoin"') == challenge_of(answer)
    assert "Authorization: Bearer <token>" in problem(answer)["detail"]


@pytest.mark.parametrize("authorization", ["Basic YWRhOmFkYQ==", "Bearer", "Bearer ", READ, ""])
def test_other_authorization_is_no_token(authorization: str, made: ServiceSettings) -> None:
    answer = call("GET", "/v1/query", made, headers={"Authorization": authorization})

    assert (401, 'Bearer realm="streamjoin"') == challenge_of(answer)


@pytest.mark.parametrize("token", ["x" * 20, READ[:-1], READ + "x", READ + "\u00e9"])
def test_unknown_token_is_refused_and_not_repeated(token: str, made: ServiceSettings) -> None:
    header = {"Authorization": f"Bearer {token}".encode()}
    answer = call("GET", "/v1/query", made, headers=header)

    assert (401, 'Bearer realm="streamjoin", error="invalid_token"') == challenge_of(answer)
    assert token not in answer.text


def test_two_authorization_headers_are_a_bad_request(made: ServiceSettings) -> None:
    headers = [("Authorization", f"Bearer {READ}"), ("Authorization", f"Bearer {CONTROL}")]
    answer = call("GET", "/v1/query", made, headers=headers)

    assert (400, 'Bearer realm="streamjoin", error="invalid_request"') == challenge_of(answer)


@pytest.mark.parametrize("name", ["access_token", "token"])
def test_token_in_the_url_is_ignored(name: str, made: ServiceSettings) -> None:
    with capture_logs() as logs:
        answer = call("PUT", "/v1/query/pause", made, params={name: CONTROL})

    assert 401 == answer.status_code
    assert CONTROL not in answer.text
    assert CONTROL not in str(logs)


def test_metrics_open_needs_no_token(made: ServiceSettings) -> None:
    opened = made.model_copy(update={"metrics_open": True})

    assert 200 == call("GET", "/metrics", opened).status_code
    assert 401 == call("GET", "/v1/query", opened).status_code


def test_every_other_call_needs_a_token(made: ServiceSettings) -> None:
    described = call("GET", "/openapi.json", made).json()["paths"]

    without_token = {
        f"{method} {path}"
        for path, operations in described.items()
        for method in operations
        if call(method.upper(), path, made).status_code != 401
    }
    assert without_token <= {"get /livez", "get /readyz", "get /startupz", "get /"}


# --- Probes


@pytest.mark.parametrize("url", OPEN_CALLS)
def test_probes_and_openapi_need_no_token(url: str, made: ServiceSettings) -> None:
    assert call("GET", url, made).status_code in {200, 503}


def test_probe_has_details_only_for_clients_that_can_read(made: ServiceSettings) -> None:
    anonymous = problem(call("GET", "/readyz", made))
    reader = problem(call("GET", "/readyz", made, headers=bearer(READ)))

    assert NO_BROKER.message in reader["detail"]
    assert "localhost:9092" not in str(anonymous)
    assert [check["name"] for check in reader["checks"]] == [
        check["name"] for check in anonymous["checks"]
    ]
    assert [check["ok"] for check in reader["checks"]] == [
        check["ok"] for check in anonymous["checks"]
    ]
    assert "fails; a token is required to see the reason" in anonymous["detail"]


# --- Commands


@pytest.mark.parametrize("verb", COMMANDS)
def test_command_needs_the_scope_control_and_the_job_gets_its_name(
    verb: str, made: ServiceSettings, job: SmallJob
) -> None:
    answer = call(COMMANDS[verb][0], f"/v1/query/{verb}", made, headers=bearer(CONTROL))

    assert 202 == answer.status_code
    assert [(verb, "ada@127.0.0.1")] == [(each[0], each[1]) for each in job.commands]


@pytest.mark.parametrize("verb", COMMANDS)
@pytest.mark.parametrize(
    ("headers", "status", "challenge"),
    [
        ({}, 401, ""),
        (bearer("x" * 20), 401, ', error="invalid_token"'),
        (bearer(READ), 403, ', error="insufficient_scope", scope="control"'),
    ],
)
def test_denied_command_does_not_reach_the_job(
    verb: str,
    headers: dict[str, str],
    status: int,
    challenge: str,
    made: ServiceSettings,
    job: SmallJob,
) -> None:
    answer = call(COMMANDS[verb][0], f"/v1/query/{verb}", made, headers=headers)

    assert (status, f'Bearer realm="streamjoin"{challenge}') == challenge_of(answer)
    assert [] == job.commands


NO_BODY = (b"{", b'"\xff', b"[]", b"")


@pytest.mark.parametrize("body", NO_BODY)
@pytest.mark.parametrize(
    ("method", "verb"), [("POST", "reset"), ("PATCH", "offsets"), ("POST", "change")]
)
def test_denied_command_is_refused_before_its_body_is_parsed(
    method: str, verb: str, body: bytes, made: ServiceSettings
) -> None:
    url, kind = f"/v1/query/{verb}", {"Content-Type": "application/json"}

    def status(**headers: str) -> int:
        return call(method, url, made, content=body, headers={**kind, **headers}).status_code

    assert 401 == status()
    assert 403 == status(**bearer(READ))
    assert status(**bearer(CONTROL)) in {400, 422}
    local = made.model_copy(update={"tokens_file": None, "host": "127.0.0.1"})
    foreign = {"Origin": "https://elsewhere.example"}
    answer = call(method, url, local, content=body, headers={**kind, **foreign})
    assert 403 == answer.status_code


def test_local_client_needs_a_token_too(made: ServiceSettings) -> None:
    here = made.model_copy(update={"host": "127.0.0.1"})

    assert 401 == call("PUT", "/v1/query/pause", here).status_code
    assert 202 == call("PUT", "/v1/query/pause", here, headers=bearer(CONTROL)).status_code


def test_changed_token_file_takes_effect(made: ServiceSettings) -> None:
    assert made.tokens_file is not None
    made.tokens_file.write_text(f"eve control {'e' * 20}\n")

    assert 401 == call("PUT", "/v1/query/pause", made, headers=bearer(CONTROL)).status_code
    assert 202 == call("PUT", "/v1/query/pause", made, headers=bearer("e" * 20)).status_code


# --- Without tokens


# --- CORS and large bodies


@pytest.mark.parametrize("method", ["GET", "OPTIONS"])
def test_cors_allows_no_other_site(method: str, made: ServiceSettings) -> None:
    headers = {
        "Origin": "https://evil.example",
        "Access-Control-Request-Method": "PUT",
        "Access-Control-Request-Headers": "authorization",
        **bearer(READ),
    }
    answer = call(method, "/v1/query", made, headers=headers)

    assert not [name for name in answer.headers if name.startswith("access-control-")]


def test_large_body_is_refused_before_the_token_is_checked(
    made: ServiceSettings, job: SmallJob
) -> None:
    large = b"x" * (BODY_BYTES_MAX + 1)

    assert 413 == call("PUT", "/v1/query/pause", made, content=large).status_code
    assert [] == job.commands


# --- The log of commands


def audited(made: ServiceSettings, url: str, method: str, **request: Any) -> list[dict[str, Any]]:
    with capture_logs() as logs:
        call(method, url, made, **request)
    kept = ("event", "verb", "by", "client", "result", "status")
    return [{name: line[name] for name in kept} for line in logs if "verb" in line]


def test_command_is_logged_with_client_address_verb_and_result(
    made: ServiceSettings, job: SmallJob
) -> None:
    job.allowed = ("resume",)

    lines = [
        *audited(made, "/v1/query/resume", "PUT", headers=bearer(CONTROL)),
        *audited(made, "/v1/query/pause", "PUT", headers=bearer(CONTROL)),
        *audited(made, "/v1/query/pause", "PUT", headers=bearer(READ)),
        *audited(made, "/v1/query/pause", "PUT", headers=bearer("x" * 20)),
    ]

    here = {"client": "127.0.0.1"}
    assert [
        {"event": "command", "verb": "resume", "by": "ada@127.0.0.1", **here,
         "result": "Accepted", "status": 202},
        {"event": "command", "verb": "pause", "by": "ada@127.0.0.1", **here,
         "result": "Conflict", "status": 409},
        {"event": "denied", "verb": "pause", "by": "grafana", **here,
         "result": "Forbidden", "status": 403},
        {"event": "denied", "verb": "pause", "by": "unknown", **here,
         "result": "Unauthorized", "status": 401},
    ] == lines  # fmt: skip


def test_command_without_a_job_is_logged(made: ServiceSettings) -> None:
    without_job = made.model_copy(update={"socket": Path("/nowhere")})
    [line] = audited(without_job, "/v1/query/stop", "PUT", headers=bearer(CONTROL))

    assert ("command", "stop", "Service Unavailable") == (
        line["event"], line["verb"], line["result"]
    )  # fmt: skip


def test_reading_is_logged_only_if_denied(made: ServiceSettings) -> None:
    assert [] == audited(made, "/v1/query", "GET", headers=bearer(READ))
    assert ["denied"] == [line["event"] for line in audited(made, "/v1/query", "GET")]


def test_no_log_line_contains_a_token(made: ServiceSettings) -> None:
    with capture_logs() as logs:
        for token in (READ, CONTROL, "x" * 20):
            call("PUT", f"/v1/query/pause?t={token}", made, headers=bearer(token))

    assert 3 == len([line for line in logs if "verb" in line])
    for token in (READ, CONTROL, "x" * 20):
        assert token not in str(logs)
