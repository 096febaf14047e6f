"""The private protocol between job and service: one line of JSON each way on a Unix socket.

It may change with every version; the service's HTTP API is the public one.
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
from typing import Any, Protocol

import structlog
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from job.errors import BusyError, ConflictError, ExpiredError, SetupError, StreamjoinError
from job.protocol.calls import Command, Read, Request
from job.protocol.job_process import how_to_end, peer_pid
from job.protocol.status import JobStatus

# A spec of 64 kB in which every byte is escaped.
REQUEST_BYTES_MAX = 512 * 1024
_IDLE_SECONDS = 5.0
# Upper bound of the time that a stop waits; with the default of 0.5 s a resume would be slower.
_POLL_SECONDS = 0.05
# sun_path of a Unix socket address has 108 bytes on Linux, including the terminating zero.
_SOCKET_PATH_BYTES_MAX = 107

_log = structlog.get_logger()
_REQUEST: TypeAdapter[Request] = TypeAdapter(Request)


class CallError(BaseModel):
    """Why a call failed."""

    model_config = ConfigDict(frozen=True)

    code: str
    """Code of a StreamjoinError, `invalid_request` or `internal_error`."""
    message: str
    allowed: list[str] = []
    """Verbs that the query's state allows."""
    retry_after_seconds: float | None = None


class Response(BaseModel):
    model_config = ConfigDict(frozen=True)

    status: JobStatus | None = None
    """The status after `status` or a command."""
    result: dict[str, Any] | None = None
    """A model of results.py or a StateCount. None after `status` and commands."""
    error: CallError | None = None


class CallHandler(Protocol):
    """Executes the calls of the protocol. Called from many threads."""

    def status(self) -> JobStatus: ...

    def command(self, command: Command) -> None:
        """Records the command and returns at once.

        Raises ConflictError if the query's state does not allow the command, RequestError if its
        spec is invalid.
        """

    def read(self, request: Read, caller_gone: Event) -> BaseModel:
        """The result. May take long, and ends early once `caller_gone` is set.

        Raises StreamjoinError if there is no result.
        """


@contextmanager
def control_socket(path: Path, handler: CallHandler) -> Iterator[None]:
    """Serves calls on `path` inside the context. Raises SetupError if another job serves there."""
    _remove_stale_socket(path)
    server = _Server(str(path), _RequestHandler)
    server.call_handler = handler
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


def respond(line: bytes, handler: CallHandler, caller_gone: Event) -> Response:
    """Executes one request line. `caller_gone` is set when the caller closes the connection."""
    try:
        request = _REQUEST.validate_json(line)
    except ValidationError as error:
        return Response(error=CallError(code="invalid_request", message=_problems(error)))
    try:
        if isinstance(request, Read):
            return Response(result=handler.read(request, caller_gone).model_dump(mode="json"))
        if isinstance(request, Command):
            _check_not_expired(request, datetime.now(UTC))
            handler.command(request)
    except StreamjoinError as error:
        return Response(status=handler.status(), error=_call_error(error))
    except Exception as error:
        # Spark may stop during a lookup. Its message may contain secrets, so only the type of the
        # error is returned; the log is scrubbed.
        _log.exception("call_failed", call=request.call)
        return Response(error=CallError(code="internal_error", message=type(error).__name__))
    return Response(status=handler.status())


def _problems(error: ValidationError) -> str:
    """`reset.starts: Field required`"""
    problems = (f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
    return f"invalid request: {'; '.join(problems)}"


def _check_not_expired(command: Command, now: datetime) -> None:
    if command.not_after is not None and now > command.not_after:
        late = (now - command.not_after).total_seconds()
        _log.warning("command_expired", verb=command.call, by=command.by, late_seconds=late)
        raise ExpiredError(
            f"{command.call} expired {late:.1f} s ago and was not executed: try again"
        )


def _call_error(error: StreamjoinError) -> CallError:
    return CallError(
        code=error.code,
        message=str(error),
        allowed=error.allowed if isinstance(error, ConflictError) else [],
        retry_after_seconds=error.retry_after_seconds if isinstance(error, BusyError) else None,
    )


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    # Connections that the kernel queues for the server: with the default of 5, some of nine
    # simultaneous calls fail.
    request_queue_size = 32
    call_handler: CallHandler


class _RequestHandler(socketserver.StreamRequestHandler):
    timeout = _IDLE_SECONDS
    server: _Server

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # the caller closed the connection
            line = self.rfile.readline(REQUEST_BYTES_MAX)
            if line:
                caller_gone = Event()
                with _watch_caller(self.connection, caller_gone):
                    response = respond(line, self.server.call_handler, caller_gone)
                self.wfile.write(response.model_dump_json().encode() + b"\n")


@contextmanager
def _watch_caller(connection: socket.socket, caller_gone: Event) -> Iterator[None]:
    """Sets `caller_gone` if the caller closes the connection inside the context."""
    context_end, wake = socket.socketpair()

    sockets = select.poll()  # select() takes no descriptor above 1023
    sockets.register(connection, select.POLLIN)
    sockets.register(wake, select.POLLIN)

    def watch() -> None:
        ready = [descriptor for descriptor, _ in sockets.poll()]
        if wake.fileno() not in ready:
            caller_gone.set()  # a request is one line: only the end of the connection can follow

    watcher = threading.Thread(target=watch, name="control-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        context_end.close()
        watcher.join()
        wake.close()


def _remove_stale_socket(path: Path) -> None:
    """Removes the socket of a killed job.

    Raises SetupError if a running job serves on it, or if the path is not a socket.
    """
    if len(os.fsencode(path)) > _SOCKET_PATH_BYTES_MAX:
        raise SetupError(
            f"STREAMJOIN_SOCKET {path} is longer than {_SOCKET_PATH_BYTES_MAX} bytes: set it to a "
            "shorter path"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise SetupError(
                f"STREAMJOIN_SOCKET {path} exists and is not a socket: set it to an unused path"
            )
    except FileNotFoundError:
        return
    except OSError as error:
        raise SetupError(
            f"STREAMJOIN_SOCKET {path} cannot be used ({error.strerror}): set it to a path in a "
            "folder that this user can write"
        ) from error
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
        else:
            raise SetupError(
                f"another job serves on STREAMJOIN_SOCKET {path}: "
                f"{how_to_end(peer_pid(probe))}, or set STREAMJOIN_SOCKET to another path. "
                "`streamjoin stop` stops only its query"
            )
