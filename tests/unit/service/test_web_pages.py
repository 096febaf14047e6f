"""Requests from web pages of other sites, foreign Host headers, HEAD, and the page's policy."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from job.api.texts import PHASE_WORDS, PHASES_MAX
from job.protocol.progress import WHOLE_BATCH
from tests.unit.service.answers import all_answers
from tests.unit.service.builders import batch, serving, status_after
from tests.unit.service.calls import call, problem, settings

PUBLIC = "0.0.0.0"  # noqa: S104
UNSAFE = [
    ("POST", "/v1/validate"),
    ("POST", "/v1/query/restart"),
    ("POST", "/v1/query/reset"),
    ("PUT", "/v1/query/pause"),
    ("PATCH", "/v1/query/offsets"),
]
CROSS_ORIGIN = [
    {"origin": "https://evil.example"},
    {"origin": "null"},
    {"origin": "http://127.0.0.1:8080.evil.example"},
    {"origin": "http://127.0.0.1:9090"},
    {"origin": "http://[::1"},
    {"sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "cross-site", "origin": "http://127.0.0.1:8080"},
]


@pytest.mark.parametrize("headers", CROSS_ORIGIN, ids=str)
@pytest.mark.parametrize(("method", "url"), UNSAFE)
@pytest.mark.parametrize("has_tokens", [False, True], ids=["without tokens", "with tokens"])
def test_cross_origin_request_is_refused_on_every_call_that_is_not_safe(
    path: Path, method: str, url: str, headers: dict[str, str], has_tokens: bool
) -> None:
    made: dict[str, Any] = {}
    if has_tokens:
        tokens = path.with_name("tokens")
        tokens.write_text("ada control cccccccccccccccc\n")
        made = {"tokens_file": tokens, "host": PUBLIC}
        headers = {**headers, "authorization": "Bearer cccccccccccccccc"}
    headers = {**headers, "content-type": "text/plain"}
    with serving(path, status_after(batch())) as job:
        answer = call(method, url, settings(path, **made), content="name: x", headers=headers)

    assert 403 == problem(answer)["status"]
    assert "cross-origin request refused" in problem(answer)["detail"]
    assert (None, []) == (job.last_request, job.commands)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://127.0.0.1:8080"},
        {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8080"},
        {"sec-fetch-site": "none"},
        # Behind a proxy that terminates TLS and calls the service by another name.
        {"sec-fetch-site": "same-origin", "origin": "https://join.example.org"},
    ],
    ids=str,
)
def test_same_origin_requests_and_programs_are_accepted(
    path: Path, headers: dict[str, str]
) -> None:
    headers = {**headers, "content-type": "text/yaml"}
    with serving(path, status_after(batch())) as job:
        job.answers.update(all_answers())
        answer = call("POST", "/v1/validate", settings(path), content="name: x", headers=headers)

    assert 200 == answer.status_code


@pytest.mark.parametrize("url", ["/", "/metrics", "/v1/query"])
def test_foreign_host_header_is_refused_on_a_loopback_address(path: Path, url: str) -> None:
    with serving(path, status_after(batch())):
        for host in ("evil.example", "evil.example:8080", "127.0.0.1.evil.example", "[::1", ""):
            answer = call("GET", url, settings(path), headers={"host": host})
            assert 403 == problem(answer)["status"], host
        for host in ("localhost:8080", "127.0.0.1", "[::1]:8080"):
            assert 200 == call("GET", url, settings(path), headers={"host": host}).status_code


@pytest.mark.parametrize("url", ["/livez", "/readyz", "/startupz"])
def test_probe_accepts_every_host_header_and_has_no_details(path: Path, url: str) -> None:
    for host in ("10.1.2.3:8080", "evil.example"):
        answer = call("GET", url, settings(path), headers={"host": host})

        assert (200 if url == "/livez" else 503) == answer.status_code
        assert str(path) not in answer.text


@pytest.mark.parametrize("host", ["10.1.2.3:8080", "service:8080", "join.streaming.svc:8080"])
@pytest.mark.parametrize("url", ["/", "/metrics"])
def test_every_host_header_is_accepted_on_a_public_address(path: Path, url: str, host: str) -> None:
    with serving(path, status_after(batch())):
        made = settings(path, host=PUBLIC)

        assert 200 == call("GET", url, made, headers={"host": host}).status_code


@pytest.mark.parametrize("host", ["10.1.2.3:8080", "join.example.org"])
def test_every_host_header_is_accepted_with_tokens(path: Path, host: str) -> None:
    tokens = path.with_name("tokens")
    tokens.write_text("grafana read aaaaaaaaaaaaaaaa\n")
    made = settings(path, tokens_file=tokens)
    headers = {"host": host, "authorization": "Bearer aaaaaaaaaaaaaaaa"}
    with serving(path, status_after(batch())):
        for url in ("/", "/metrics", "/v1/query"):
            assert 200 == call("GET", url, made, headers=headers).status_code


def test_head_is_allowed_wherever_get_is(path: Path) -> None:
    described = call("GET", "/openapi.json", settings(path)).json()["paths"]
    gets = [url for url, operations in described.items() if "get" in operations]
    query = {"/v1/query/state/{side}": "/v1/query/state/left?key=7"}
    query["/v1/query/explain"] = "/v1/query/explain?key=7"
    with serving(path, status_after(batch())) as job:
        job.answers.update(all_answers())
        for url in [*gets, "/", "/openapi.json"]:
            target = query.get(url, url)
            get = call("GET", target, settings(path))
            head = call("HEAD", target, settings(path))
            assert (get.status_code, "") == (head.status_code, head.text), url
            assert get.headers.keys() == head.headers.keys()


def test_head_is_not_allowed_where_get_is_not(path: Path) -> None:
    answer = call("HEAD", "/v1/query/pause", settings(path))

    assert (405, "PUT") == (answer.status_code, answer.headers["allow"])
    assert "GET, HEAD" == call("DELETE", "/livez", settings(path)).headers["allow"]


def test_policy_allows_only_the_script_and_style_of_the_page(path: Path) -> None:
    answer = call("GET", "/", settings(path))

    policy = dict(
        part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")
    )
    for directive, tag in (("script-src", "script"), ("style-src", "style")):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"'sha256-{digest}'" == policy[directive]
    assert ("'none'", "'self'") == (policy["default-src"], policy["connect-src"])
    assert "'none'" == policy["frame-ancestors"]
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_page_has_the_words_of_status_for_the_phases_of_a_batch(path: Path) -> None:
    page = call("GET", "/", settings(path)).text

    def constant(name: str) -> Any:
        [text] = re.findall(f"^const {name} = (.*?);$", page, re.DOTALL | re.MULTILINE)
        return json.loads(text)

    assert PHASE_WORDS == constant("PHASE_WORDS")
    assert (WHOLE_BATCH, PHASES_MAX) == (constant("WHOLE_BATCH"), constant("PHASES_MAX"))
