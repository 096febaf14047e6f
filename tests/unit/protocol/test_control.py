"""The protocol between job and sidecar: what is asked, what is answered, what is refused."""

import json
import socket
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from job.errors import BusyError, CheckpointError, ConflictError, RequestError, SetupError
from job.join_spec.start_positions import StartPositions
from job.protocol.control import REQUEST_BYTES_MAX, Response, control_socket, respond
from job.protocol.status import QueryState
from tests.polling import wait_until
from tests.unit.service.answers import all_answers
from tests.unit.service.builders import WAITS, SmallJob, batch, status, status_after

PATIENCE_SECONDS = 20.0


def asked(job: SmallJob, call: str, **fields: Any) -> Response:
    return respond(json.dumps({"call": call, **fields}).encode(), job, Event())


@pytest.fixture
def job() -> SmallJob:
    made = SmallJob(status_after(batch()))
    made.answers.update(all_answers())
    return made


@pytest.mark.parametrize("call", all_answers())
def test_a_question_is_answered_with_its_answer_alone(job: SmallJob, call: str) -> None:
    answered = asked(job, call)

    assert all_answers()[call].model_dump(mode="json") == answered.result
    assert (None, None) == (answered.status, answered.error)


def test_a_question_takes_its_arguments_along(job: SmallJob) -> None:
    asked(job, "state", state={"side": "left", "key": ["a", "7"], "limit": 3})

    assert job.last_request is not None
    assert job.last_request.state is not None
    assert ("left", ["a", "7"], 3) == (
        job.last_request.state.side,
        job.last_request.state.key,
        job.last_request.state.limit,
    )


def test_reset_takes_along_where_to_start(job: SmallJob) -> None:
    answered = asked(job, "reset", by="ada", starts={"left": {"0": 5}, "right": "latest"})

    assert [("reset", "ada")] == job.commands
    assert StartPositions(left={0: 5}, right="latest") == job.starts
    assert answered.status is not None
    assert QueryState.STOPPED is answered.status.state


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RequestError("which key?"), {"code": "request", "allowed": []}),
        (
            ConflictError("is STOPPED", allowed=["resume"]),
            {"code": "conflict", "allowed": ["resume"]},
        ),
        (BusyError("later", retry_after_seconds=2.5), {"code": "busy", "retry_after_seconds": 2.5}),
        (CheckpointError("unreadable"), {"code": "checkpoint", "retry_after_seconds": None}),
    ],
)
def test_what_is_refused_says_what_kind_of_refusal_it_is(
    job: SmallJob, error: Exception, expected: dict[str, Any]
) -> None:
    job.answers["state"] = error
    refusal = asked(job, "state").error

    assert refusal is not None
    assert str(error) == refusal.message
    assert expected == {name: getattr(refusal, name) for name in expected}


@pytest.mark.parametrize(
    "fields",
    [
        {"call": "explode"},
        {"call": "status", "unknown": 1},
        {"call": "reset", "starts": {"left": "yesterday", "right": "latest"}},
        {"call": "reset", "starts": {"left": {"0": -1}, "right": "latest"}},
        {"call": "reset", "starts": {"left": "latest"}},
        {"call": "state", "state": {"side": "middle", "key": ["7"], "limit": 1}},
    ],
)
def test_what_is_no_request_is_not_understood(job: SmallJob, fields: dict[str, Any]) -> None:
    refusal = asked(job, **fields).error

    assert refusal is not None
    assert "invalid_request" == refusal.code
    assert ([], None) == (job.commands, job.last_request)


def test_an_accident_is_told_by_its_kind_and_not_by_what_it_says(job: SmallJob) -> None:
    job.answers["state"] = KeyError("planted-pa55word")
    refusal = asked(job, "state").error

    assert refusal is not None
    assert ("internal_error", "KeyError") == (refusal.code, refusal.message)


def test_who_hangs_up_ends_the_look_up(tmp_path: Path) -> None:
    job = SmallJob(status())
    job.answers["state_count"] = WAITS
    with control_socket(tmp_path / "job.sock", job), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "job.sock"))
        connection.sendall(b'{"call": "state_count"}\n')
        wait_until(lambda: job.gone is not None, PATIENCE_SECONDS, "the job is asked")
        assert job.gone is not None
        assert not job.gone.is_set()

        connection.close()

        wait_until(job.gone.is_set, PATIENCE_SECONDS, "the job knows")


def test_an_answer_does_not_count_as_hanging_up(tmp_path: Path) -> None:
    job = SmallJob(status())
    job.answers.update(all_answers())
    with control_socket(tmp_path / "job.sock", job), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "job.sock"))
        connection.sendall(b'{"call": "state_count"}\n')
        answered = json.loads(connection.makefile().readline())

    assert answered["result"]["batch_id"] == 7
    assert job.gone is not None
    assert not job.gone.is_set()


def test_a_request_of_the_largest_size_is_read_whole(tmp_path: Path) -> None:
    job = SmallJob(status())
    job.answers.update(all_answers())
    frame = json.dumps({"call": "validate", "spec": ""})
    spec = "x" * (REQUEST_BYTES_MAX - len(frame) - 1)
    with control_socket(tmp_path / "job.sock", job), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "job.sock"))
        connection.sendall(json.dumps({"call": "validate", "spec": spec}).encode() + b"\n")
        connection.makefile().readline()

    assert job.last_request is not None
    assert spec == job.last_request.spec


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_left_as_it_is(tmp_path: Path, job: SmallJob, kind: str) -> None:
    path, victim = tmp_path / "job.sock", tmp_path / "join.yaml"
    victim.write_text("name: x\n")
    match kind:
        case "file":
            path.write_text("name: x\n")
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(victim)

    with pytest.raises(SetupError, match="is not a socket"), control_socket(path, job):
        pass
    assert path.is_dir() if kind == "folder" else "name: x\n" == path.read_text()
    assert "name: x\n" == victim.read_text()


def test_a_socket_that_a_killed_job_has_left_is_replaced(tmp_path: Path, job: SmallJob) -> None:
    path = tmp_path / "job.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))

    with control_socket(path, job), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path, job: SmallJob) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "job.sock"

    with pytest.raises(SetupError, match="set it to a path in a folder"), control_socket(path, job):
        pass
