"""POST /v1/validate: the forms of a body, and the answer of the job."""

from pathlib import Path

import pytest

from tests.unit.service.calls import problem
from tests.unit.service.test_state import send


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
def test_spec_is_validated_by_the_job(path: Path, kind: str, content: str) -> None:
    answer, job = send(
        path, "POST", "/v1/validate", content=content, headers={"content-type": kind}
    )

    assert {
        "problems": [{"field": "left.key", "message": "is required"}],
        "plan": None,
        "checkpoint_changes": [{"field": "join type", "frozen": "inner", "wanted": "x"}],
    } == answer.json()
    assert 200 == answer.status_code
    assert "name: x" == job.last_request.spec


def test_spec_of_the_maximum_size_arrives(path: Path) -> None:
    spec = "\\\x07" * (64 * 1024 // 2)
    answer, job = send(
        path, "POST", "/v1/validate", content=spec, headers={"content-type": "text/yaml"}
    )

    assert 200 == answer.status_code
    assert spec == job.last_request.spec


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
def test_body_that_is_not_a_spec_is_refused(
    path: Path, kind: str, content: bytes, code: int
) -> None:
    answer, job = send(
        path, "POST", "/v1/validate", content=content, headers={"content-type": kind}
    )

    assert code == problem(answer)["status"]
    assert job.last_request is None
