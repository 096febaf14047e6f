"""Every error of the HTTP API is a problem of RFC 9457, also in its OpenAPI description."""

from pathlib import Path

import pytest
from fastapi import FastAPI, Request

from service.body_limit import BODY_BYTES_MAX
from tests.unit.service.builders import serving, status
from tests.unit.service.calls import COMMANDS, PROBLEM, call, problem, settings


def test_unknown_path_is_a_problem(path: Path) -> None:
    assert {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "unknown path: see /openapi.json for all calls",
        "instance": "/v1/queries%22%0A",
    } == problem(call("GET", "/v1/queries%22%0A", settings(path)))


def test_trailing_slash_is_an_unknown_path_and_no_redirect(path: Path) -> None:
    assert 404 == problem(call("PUT", "/v1/query/pause/", settings(path)))["status"]


def test_wrong_method_is_a_problem_that_names_the_allowed_one(path: Path) -> None:
    answer = call("GET", "/v1/query/pause", settings(path))

    assert "PUT" == answer.headers["allow"]
    assert {
        "type": "about:blank",
        "title": "Method Not Allowed",
        "status": 405,
        "detail": "method GET is not allowed; allowed: PUT",
        "instance": "/v1/query/pause",
    } == problem(answer)


def test_invalid_request_is_a_problem_with_each_field(path: Path) -> None:
    answer = call(
        "GET", "/broken", settings(path), install=breakable, params={"last": "s3cret", "step": "1"}
    )

    body = problem(answer)
    assert (422, "urn:streamjoin:problem:invalid_request") == (body["status"], body["type"])
    assert ["query.last"] == [error["field"] for error in body["errors"]]
    assert "s3cret" not in answer.text


def test_internal_error_is_a_problem_without_details(path: Path) -> None:
    answer = call("GET", "/broken", settings(path), install=breakable, params={"last": 1})

    assert {
        "type": "about:blank",
        "title": "Internal Server Error",
        "status": 500,
        "detail": "internal error of the service: see its log",
        "instance": "/broken",
    } == problem(answer)


def test_body_whose_content_length_is_too_large_is_refused(path: Path) -> None:
    too_large = b"x" * (BODY_BYTES_MAX + 1)
    with serving(path, status()) as job:
        answer = call("PUT", "/v1/query/pause", settings(path), content=too_large)

    assert {
        "type": "about:blank",
        "title": "Request Entity Too Large",
        "status": 413,
        "detail": "the body is too large: at most 65536 bytes",
        "instance": "/v1/query/pause",
    } == problem(answer)
    assert [] == job.commands


def test_body_without_content_length_is_counted(path: Path) -> None:
    async def chunks(total: int):
        for _ in range(total // 1024):
            yield b"x" * 1024

    def upload(total: int) -> int:
        made = settings(path)
        return call("POST", "/upload", made, install=breakable, content=chunks(total)).status_code

    assert [200, 413] == [upload(BODY_BYTES_MAX), upload(BODY_BYTES_MAX + 1024)]


@pytest.mark.parametrize(
    "accept",
    [
        "application/openmetrics-text;version=abc",
        "application/openmetrics-text;version=9.9.9",
        "application/openmetrics-text;version=1.0.0;escaping=abc",
        "text/plain;version=",
        "text/plain;version=1.0.0;escaping=abc",
    ],
)
def test_scraper_with_an_unknown_accept_header_is_served(path: Path, accept: str) -> None:
    answer = call("GET", "/metrics", settings(path), headers={"accept": accept})

    assert 200 == answer.status_code
    assert "\nstreamjoin_job_up 0.0\n" in answer.text


# --- OpenAPI


def test_every_error_is_declared_as_a_problem(path: Path) -> None:
    document = call("GET", "/openapi.json", settings(path), install=breakable).json()

    declared = {
        media
        for operations in document["paths"].values()
        for operation in operations.values()
        for code, response in operation["responses"].items()
        if int(code) >= 400
        for media in response["content"]
    }
    assert {PROBLEM} == declared
    assert "Problem" in document["components"]["schemas"]
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_commands_declare_their_errors(path: Path) -> None:
    document = call("GET", "/openapi.json", settings(path)).json()

    for verb, (method, _) in COMMANDS.items():
        responses = document["paths"][f"/v1/query/{verb}"][method.lower()]["responses"]
        assert {"202", "400", "401", "403", "409", "413", "422", "500", "503"} == set(responses)


def test_pages_that_load_external_scripts_are_off(path: Path) -> None:
    for page in ("/docs", "/redoc"):
        assert 404 == call("GET", page, settings(path)).status_code


def breakable(app: FastAPI) -> None:
    """Adds calls with errors that the calls of the service cannot have."""

    @app.get("/broken")
    async def broken(last: int, step: int = 1) -> None:
        raise RuntimeError(f"secret of {last} and {step}")

    @app.post("/upload")
    async def upload(request: Request) -> int:
        return len(await request.body())
