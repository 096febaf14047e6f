"""The private protocol between job and sidecar: one line of JSON each way on a Unix socket.

It may change with every version; the sidecar's HTTP API is the public one.
"""

import contextlib
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from job.errors import ConflictError, SetupError
from job.progress import JobStatus

Verb = Literal["pause", "resume", "stop", "restart"]

REQUEST_BYTES_MAX = 64 * 1024
_IDLE_SECONDS = 5.0
# A stop waits up to this long; the default of 0.5 s is what a resume takes.
_POLL_SECONDS = 0.05
# sun_path of a Unix socket address holds 108 bytes on Linux, the closing zero included.
_SOCKET_PATH_BYTES_MAX = 107


class Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    call: Literal["status"] | Verb
    by: str = "unknown"
    """Who asks, for the log."""


class Refusal(BaseModel):
    model_config = ConfigDict(frozen=True)

    code: str
    message: str
    allowed: list[str] = []
    """The verbs that the query's state allows."""


class Reply(BaseModel):
    model_config = ConfigDict(frozen=True)

    status: JobStatus | None = None
    refusal: Refusal | None = None


class Controlled(Protocol):
    """What can be asked and commanded: the engine."""

    def status(self) -> JobStatus: ...

    def command(self, verb: Verb, by: str) -> None:
        """Take note of `verb` and return at once; ConflictError where the state forbids it."""


@contextmanager
def control_socket(path: Path, controlled: Controlled) -> Iterator[None]:
    """Answers on `path` while the context lasts; SetupError where another job already does."""
    _make_way(path)
    server = _Server(str(path), _Conversation)
    server.controlled = controlled
    path.chmod(0o600)
    serve = partial(server.serve_forever, poll_interval=_POLL_SECONDS)
    thread = threading.Thread(target=serve, name="control", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        path.unlink(missing_ok=True)


def reply(line: bytes, controlled: Controlled) -> Reply:
    """The answer to one request line."""
    try:
        request = Request.model_validate_json(line)
    except ValidationError as error:
        return Reply(refusal=Refusal(code="request", message=str(error)))
    try:
        if request.call != "status":
            controlled.command(request.call, request.by)
    except ConflictError as error:
        return Reply(
            status=controlled.status(),
            refusal=Refusal(code=error.code, message=str(error), allowed=error.allowed),
        )
    return Reply(status=controlled.status())


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    controlled: Controlled


class _Conversation(socketserver.StreamRequestHandler):
    timeout = _IDLE_SECONDS
    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # whoever asked has gone away
            line = self.rfile.readline(REQUEST_BYTES_MAX)
            if line:
                answer = reply(line, self.server.controlled).model_dump_json()
                self.wfile.write(answer.encode() + b"\n")


def _make_way(path: Path) -> None:
    """Remove what a killed job left behind, but never a living job's socket."""
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES_MAX:
        raise SetupError(
            f"the path of the control socket is longer than {_SOCKET_PATH_BYTES_MAX} bytes: "
            f"set STREAMJOIN_SOCKET to a shorter one than {path}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
        else:
            raise SetupError(
                f"another job answers on {path}: stop it, or set STREAMJOIN_SOCKET to another path"
            )
