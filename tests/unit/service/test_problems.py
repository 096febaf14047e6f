"""Every error of the HTTP API is a problem in the sense of RFC 9457, and is declared as one."""

from pathlib import Path

import pytest
from fastapi import FastAPI, Request

from service.body_limit import BODY_BYTES_MAX
from tests.unit.service.builders import serving, status
from tests.unit.service.calls import COMMANDS, PROBLEM, call, problem, settings


def test_an_unknown_path_is_a_problem(path: Path) -> None:
    assert {
        "type": "about:blank",
        "title": "Not Found",
        "status": 404,
        "detail": "there is nothing at this path; the calls are listed at /openapi.json",
        "instance": "/v1/queries%22%0A",
    } == problem(call("GET", "/v1/queries%22%0A", settings(path)))


def test_a_slash_too_many_is_an_unknown_path_not_a_redirect(path: Path) -> None:
    assert 404 == problem(call("PUT", "/v1/query/pause/", settings(path)))["status"]


def test_a_wrong_method_is_a_problem_that_names_the_right_one(path: Path) -> None:
    answer = call("GET", "/v1/query/pause", settings(path))

    assert "PUT" == answer.headers["allow"]
    assert {
        "type": "about:blank",
        "title": "Method Not Allowed",
        "status": 405,
        "detail": "GET is not possible here; possible: PUT",
        "instance": "/v1/query/pause",
    } == problem(answer)


def test_a_request_that_is_not_valid_is_a_problem_with_each_field(path: Path) -> None:
    answer = call(
        "GET", "/broken", settings(path), install=breakable, params={"last": "s3cret", "step": "1"}
    )

    body = problem(answer)
    assert (422, "urn:streamjoin:problem:invalid_request") == (body["status"], body["type"])
    assert ["query.last"] == [error["field"] for error in body["errors"]]
    assert "s3cret" not in answer.text


def test_a_defect_is_a_problem_that_tells_nothing_of_itself(path: Path) -> None:
    answer = call("GET", "/broken", settings(path), install=breakable, params={"last": 1})

    assert {
        "type": "about:blank",
        "title": "Internal Server Error",
        "status": 500,
        "detail": "this is a defect of the sidecar; its log has the details",
        "instance": "/broken",
    } == problem(answer)


def test_a_body_that_says_it_is_too_large_is_refused(path: Path) -> None:
    too_large = b"x" * (BODY_BYTES_MAX + 1)
    with serving(path, status()) as job:
        answer = call("PUT", "/v1/query/pause", settings(path), content=too_large)

    assert {
        "type": "about:blank",
        "title": "Request Entity Too Large",
        "status": 413,
        "detail": "a body may have at most 65536 bytes",
        "instance": "/v1/query/pause",
    } == problem(answer)
    assert [] == job.commands


def test_a_body_that_does_not_say_its_length_is_counted(path: Path) -> None:
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
def test_a_scraper_that_asks_for_a_strange_format_is_served(path: Path, accept: str) -> None:
    answer = call("GET", "/metrics", settings(path), headers={"accept": accept})

    assert 200 == answer.status_code
    assert "\nstreamjoin_job_up 0.0\n" in answer.text


# --- The description


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


def test_commands_declare_the_ways_they_can_be_refused(path: Path) -> None:
    document = call("GET", "/openapi.json", settings(path)).json()

    for verb, (method, _) in COMMANDS.items():
        responses = document["paths"][f"/v1/query/{verb}"][method.lower()]["responses"]
        assert {"202", "400", "401", "403", "409", "413", "500", "503"} == set(responses)


def test_no_page_loads_anything_from_elsewhere(path: Path) -> None:
    for page in ("/docs", "/redoc"):
        assert 404 == call("GET", page, settings(path)).status_code


def breakable(app: FastAPI) -> None:
    """Calls the sidecar does not have, for errors that its own cannot make."""

    @app.get("/broken")
    async def broken(last: int, step: int = 1) -> None:
        raise RuntimeError(f"secret of {last} and {step}")

    @app.post("/upload")
    async def upload(request: Request) -> int:
        return len(await request.body())
