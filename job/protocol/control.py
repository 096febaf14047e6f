"""The private protocol between job and sidecar: one line of JSON each way on a Unix socket.

It may change with every version; the sidecar's HTTP API is the public one.
"""

import contextlib
import os
import select
import socket
import socketserver
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, Literal, Protocol, cast, get_args

import structlog
from pydantic import BaseModel, ConfigDict, ValidationError

from job.errors import BusyError, ConflictError, ExpiredError, SetupError, StreamjoinError
from job.join_spec.start_positions import StartPositions
from job.protocol.progress import JobStatus

Verb = Literal["pause", "resume", "stop", "restart", "reset"]
Question = Literal[
    "plan", "progress", "failures", "state", "state_census", "why", "validate"
]  # fmt: skip

# A spec of 64 kB whose every byte is written as an escape.
REQUEST_BYTES_MAX = 512 * 1024
_IDLE_SECONDS = 5.0
# A stop waits up to this long; the default of 0.5 s is what a resume takes.
_POLL_SECONDS = 0.05
# sun_path of a Unix socket address holds 108 bytes on Linux, the closing zero included.
_SOCKET_PATH_BYTES_MAX = 107

_log = structlog.get_logger()


class StateRequest(BaseModel):
    """The rows of one key."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    side: Literal["left", "right"] | None = None
    """None: both, which is for `why` alone."""
    key: list[str]
    """Its parts as text, in the order of the spec."""
    limit: int


class Request(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    call: Literal["status"] | Verb | Question
    by: str = "unknown"
    """Who asks, for the log."""
    not_after: datetime | None = None
    """A command that is read later is left alone: who gave it has been told that it was not taken,
    as by a job that hung. By the clock of the machine that both share."""
    starts: StartPositions | None = None
    """For reset."""
    state: StateRequest | None = None
    """For state and why."""
    spec: str | None = None
    """For validate: its YAML."""
    within_seconds: float = 30.0
    """How long the caller waits for the answer. For validate."""


class Refusal(BaseModel):
    model_config = ConfigDict(frozen=True)

    code: str
    message: str
    allowed: list[str] = []
    """The verbs that the query's state allows."""
    retry_after_seconds: float | None = None


class Reply(BaseModel):
    model_config = ConfigDict(frozen=True)

    status: JobStatus | None = None
    answer: dict[str, Any] | None = None
    """To a question: one of answers.py."""
    refusal: Refusal | None = None


class CommandHandler(Protocol):
    """What can be asked and commanded: the engine."""

    def status(self) -> JobStatus: ...

    def command(self, verb: Verb, by: str, starts: StartPositions | None = None) -> None:
        """Take note of `verb` and return at once; ConflictError where the state forbids it."""

    def answer(self, request: Request, gone: Event) -> BaseModel:
        """One of answers.py; may take its time, and ends early once `gone` is set.

        Raises StreamjoinError where there is no answer.
        """


@contextmanager
def control_socket(path: Path, controlled: CommandHandler) -> Iterator[None]:
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


def reply(line: bytes, controlled: CommandHandler, gone: Event) -> Reply:
    """The answer to one request line; `gone` is set when nobody waits for it any more."""
    try:
        request = Request.model_validate_json(line)
    except ValidationError as error:
        return Reply(refusal=Refusal(code="not_understood", message=str(error)))
    try:
        if request.call in get_args(Question):
            answer = controlled.answer(request, gone)
            return Reply(answer=answer.model_dump(mode="json"))
        if request.call != "status":
            _refuse_expired(request, datetime.now(UTC))
            controlled.command(cast("Verb", request.call), request.by, request.starts)
    except StreamjoinError as error:
        return Reply(status=controlled.status(), refusal=_refusal(error))
    except Exception as error:
        # Spark may end beneath a look-up. What it says of that may hold secrets; the log is
        # scrubbed of them.
        _log.exception("call_failed", call=request.call)
        return Reply(refusal=Refusal(code="failed", message=type(error).__name__))
    return Reply(status=controlled.status())


def _refuse_expired(request: Request, now: datetime) -> None:
    if request.not_after is not None and now > request.not_after:
        late = (now - request.not_after).total_seconds()
        _log.warning("command_expired", verb=request.call, by=request.by, late_seconds=late)
        raise ExpiredError(
            f"the {request.call} came {late:.1f} s too late and was left alone: ask again"
        )


def _refusal(error: StreamjoinError) -> Refusal:
    return Refusal(
        code=error.code,
        message=str(error),
        allowed=error.allowed if isinstance(error, ConflictError) else [],
        retry_after_seconds=error.retry_after_seconds if isinstance(error, BusyError) else None,
    )


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    # Connections that the kernel accepts before the server does: with the default of 5, some of
    # nine simultaneous calls fail.
    request_queue_size = 32
    controlled: CommandHandler


class _Conversation(socketserver.StreamRequestHandler):
    timeout = _IDLE_SECONDS
    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # whoever asked has gone away
            line = self.rfile.readline(REQUEST_BYTES_MAX)
            if line:
                gone = Event()
                with _noticed(self.connection, gone):
                    answer = reply(line, self.server.controlled, gone).model_dump_json()
                self.wfile.write(answer.encode() + b"\n")


@contextmanager
def _noticed(connection: socket.socket, gone: Event) -> Iterator[None]:
    """Sets `gone` when the other end closes the connection while the context lasts."""
    answered, wake = socket.socketpair()

    def watch() -> None:
        readable, _, _ = select.select([connection, wake], [], [])
        if wake not in readable:
            gone.set()  # nothing but its end can come after a request's one line

    watcher = threading.Thread(target=watch, name="control-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        answered.close()
        watcher.join()
        wake.close()


def _make_way(path: Path) -> None:
    """Remove the socket that a killed job has left behind.

    SetupError where a living job has it, or where the path is anything but a socket.
    """
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES_MAX:
        raise SetupError(
            f"the path of the control socket is longer than {_SOCKET_PATH_BYTES_MAX} bytes: "
            f"set STREAMJOIN_SOCKET to a shorter one than {path}"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise SetupError(
                f"STREAMJOIN_SOCKET {path} exists and is not a socket; it is left as it is: "
                "set STREAMJOIN_SOCKET to a path that is free"
            )
    except FileNotFoundError:
        return
    except OSError as error:
        raise SetupError(
            f"STREAMJOIN_SOCKET {path} cannot be used ({error.strerror}): set it to a path in a "
            "folder that this user may write"
        ) from error
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
        else:
            raise SetupError(
                f"another job answers on {path}: stop it, or set STREAMJOIN_SOCKET to another path"
            )
