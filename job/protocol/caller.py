"""Calls the job's control socket from a command. The service has its own, asynchronous client."""

import socket
from pathlib import Path

from job.errors import JobUnavailableError
from job.protocol.calls import Request, Status
from job.protocol.control import Response
from job.protocol.job_process import how_to_end, serving_pid
from job.protocol.status import JobStatus

ANSWER_SECONDS = 10.0


def running_job(path: Path) -> JobStatus | None:
    """The status of the job that serves on `path`. None: no job serves there."""
    try:
        return call(path, Status()).status
    except (FileNotFoundError, ConnectionError):
        return None


def job_to_end(path: Path, name: str) -> str:
    """What to do with the job whose query a change, or its undo, has stopped. `name`: of the
    join."""
    try:
        job = running_job(path)
    except JobUnavailableError:
        job = None
    if job is None or job.name != name:
        return f"end its job if it runs elsewhere: no job of {name} answers on {path}"
    return f"its job still runs, without a query: {how_to_end(serving_pid(path))}"


def _connect(connection: socket.socket, path: Path) -> None:
    try:
        connection.connect(str(path))
    except (FileNotFoundError, ConnectionError):
        raise
    except OSError as error:
        raise JobUnavailableError(
            f"the socket {path} of the job (STREAMJOIN_SOCKET) cannot be used: {error}"
        ) from error


def call(path: Path, request: Request, seconds: float = ANSWER_SECONDS) -> Response:
    """Raises OSError if there is no job, JobUnavailableError if the job refuses the call or hangs,
    or if the socket cannot be used."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        _connect(connection, path)
        try:
            connection.sendall(request.model_dump_json().encode() + b"\n")
            line = connection.makefile().readline()
        except TimeoutError as error:
            raise JobUnavailableError(
                f"the job on {path} does not answer within {seconds:.0f} s: wait until it "
                "does, or end its process"
            ) from error
        if not line:
            raise ConnectionResetError(f"the job on {path} has ended before it answered")
        response = Response.model_validate_json(line)
    if response.error is not None:
        raise JobUnavailableError(f"the job on {path} answers: {response.error.message}")
    return response
