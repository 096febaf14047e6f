"""The protocol between job and service: requests, responses, errors, the socket."""

import json
import os
import socket
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from job.errors import BusyError, CheckpointError, ConflictError, RequestError, SetupError
from job.protocol.calls import Change, State
from job.protocol.control import REQUEST_BYTES_MAX, Response, control_socket, respond
from job.protocol.status import QueryState
from job.spec.start_positions import StartPositions
from tests.polling import wait_until
from tests.unit.service.answers import all_answers
from tests.unit.service.builders import WAITS, SmallJob, batch, status, status_after

PATIENCE_SECONDS = 20.0


KEY = {"key": ["7"], "limit": 5}
REQUIRED: dict[str, dict[str, Any]] = {
    "state": {**KEY, "side": "left"},
    "explain": KEY,
    "validate": {"spec": "name: x"},
    "change_plan": {"spec": "name: x"},
}
"""Required fields of the calls that have some."""


def sent(job: SmallJob, call: str, **fields: Any) -> Response:
    return respond(json.dumps({"call": call, **fields}).encode(), job, Event())


@pytest.fixture
def job() -> SmallJob:
    made = SmallJob(status_after(batch()))
    made.answers.update(all_answers())
    return made


@pytest.mark.parametrize("call", all_answers())
def test_read_call_returns_its_result_alone(job: SmallJob, call: str) -> None:
    response = sent(job, call, **REQUIRED.get(call, {}))

    assert all_answers()[call].model_dump(mode="json") == response.result
    assert (None, None) == (response.status, response.error)


def test_arguments_of_a_read_call_reach_the_job(job: SmallJob) -> None:
    sent(job, "state", side="left", key=["a", "7"], limit=3)

    assert State(side="left", key=["a", "7"], limit=3) == job.last_request


def test_start_positions_of_a_reset_reach_the_job(job: SmallJob) -> None:
    response = sent(job, "reset", by="ada", starts={"left": {"0": 5}, "right": "latest"})

    assert [("reset", "ada")] == job.commands
    assert StartPositions(left={0: 5}, right="latest") == job.last_command.starts
    assert response.status is not None
    assert QueryState.STOPPED is response.status.state


def test_spec_of_a_change_reaches_the_job(job: SmallJob) -> None:
    sent(job, "change", by="ada", spec="name: x", state_partitions=8)

    assert Change(by="ada", spec="name: x", state_partitions=8) == job.last_command


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RequestError("`key` is required"), {"code": "request", "allowed": []}),
        (
            ConflictError("is STOPPED", allowed=["resume"]),
            {"code": "conflict", "allowed": ["resume"]},
        ),
        (BusyError("later", retry_after_seconds=2.5), {"code": "busy", "retry_after_seconds": 2.5}),
        (CheckpointError("unreadable"), {"code": "checkpoint", "retry_after_seconds": None}),
    ],
)
def test_error_has_the_code_of_its_kind(
    job: SmallJob, error: Exception, expected: dict[str, Any]
) -> None:
    job.answers["state"] = error
    failure = sent(job, "state", **REQUIRED["state"]).error

    assert failure is not None
    assert str(error) == failure.message
    assert expected == {name: getattr(failure, name) for name in expected}


@pytest.mark.parametrize(
    "fields",
    [
        {"call": "explode"},
        {"call": "status", "unknown": 1},
        {"call": "reset", "starts": {"left": "yesterday", "right": "latest"}},
        {"call": "reset", "starts": {"left": {"0": -1}, "right": "latest"}},
        {"call": "reset", "starts": {"left": "latest"}},
        {"call": "reset"},
        {"call": "change"},
        {"call": "stop", "spec": "name: x"},
        {"call": "state", **KEY},
        {"call": "state", **KEY, "side": "middle"},
        {"call": "explain", **KEY, "side": "left"},
    ],
)
def test_malformed_request_is_invalid(job: SmallJob, fields: dict[str, Any]) -> None:
    failure = sent(job, **fields).error

    assert failure is not None
    assert "invalid_request" == failure.code
    assert ([], None) == (job.commands, job.last_request)


def test_internal_error_returns_its_type_and_not_its_message(job: SmallJob) -> None:
    job.answers["state"] = KeyError("planted-pa55word")
    failure = sent(job, "state", **REQUIRED["state"]).error

    assert failure is not None
    assert ("internal_error", "KeyError") == (failure.code, failure.message)


def test_closed_connection_cancels_the_lookup(tmp_path: Path) -> None:
    job = SmallJob(status())
    job.answers["state_count"] = WAITS
    with control_socket(tmp_path / "job.sock", job), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "job.sock"))
        connection.sendall(b'{"call": "state_count"}\n')
        wait_until(lambda: job.gone is not None, PATIENCE_SECONDS, "the job receives the call")
        assert job.gone is not None
        assert not job.gone.is_set()

        connection.close()

        wait_until(job.gone.is_set, PATIENCE_SECONDS, "the call is cancelled")


def test_response_does_not_cancel_the_call(tmp_path: Path) -> None:
    job = SmallJob(status())
    job.answers.update(all_answers())
    with control_socket(tmp_path / "job.sock", job), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "job.sock"))
        connection.sendall(b'{"call": "state_count"}\n')
        response = json.loads(connection.makefile().readline())

    assert response["result"]["batch_id"] == 7
    assert job.gone is not None
    assert not job.gone.is_set()


def test_largest_request_is_read_completely(tmp_path: Path) -> None:
    job = SmallJob(status())
    job.answers.update(all_answers())
    frame = json.dumps({"call": "validate", "spec": ""})
    spec = "x" * (REQUEST_BYTES_MAX - len(frame) - 1)
    with control_socket(tmp_path / "job.sock", job), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(tmp_path / "job.sock"))
        connection.sendall(json.dumps({"call": "validate", "spec": spec}).encode() + b"\n")
        connection.makefile().readline()

    assert spec == job.last_request.spec


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_path_that_is_no_socket_is_not_changed(tmp_path: Path, job: SmallJob, kind: str) -> None:
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


def test_socket_of_a_killed_job_is_replaced(tmp_path: Path, job: SmallJob) -> None:
    path = tmp_path / "job.sock"
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))

    with control_socket(path, job), socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))


def test_second_job_names_the_process_of_the_first(tmp_path: Path, job: SmallJob) -> None:
    path = tmp_path / "job.sock"
    message = rf"another job serves on STREAMJOIN_SOCKET {path}: end process {os.getpid()} \(Ctrl-C"

    with control_socket(path, job):
        with pytest.raises(SetupError, match=message), control_socket(path, job):
            pass
        assert path.exists()


def test_folder_that_cannot_be_created_is_named(tmp_path: Path, job: SmallJob) -> None:
    (tmp_path / "file").touch()
    path = tmp_path / "file" / "job.sock"

    with pytest.raises(SetupError, match="set it to a path in a folder"), control_socket(path, job):
        pass
