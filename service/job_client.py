"""Client of the job's control socket. Each call has a deadline."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import structlog
from pydantic import BaseModel, ValidationError

from job.errors import BusyError, ConflictError, JobUnavailableError, RequestError
from job.protocol import calls
from job.protocol.calls import Command, Read, Request
from job.protocol.control import CallError, Response
from job.protocol.status import JobStatus

# A status takes 10 kB plus 100 bytes per topic partition, a past batch 4 kB.
_RESPONSE_BYTES_MAX = 16 * 1024 * 1024
# Calls for which the job reads its checkpoint with Spark, or plans a spec.
_SlowCall = calls.State | calls.Explain | calls.StateCount | calls.SpecCall | calls.CheckUndo

Result = TypeVar("Result", bound=BaseModel)

_log = structlog.get_logger()


class JobClient:
    def __init__(self, path: Path, *, deadline: timedelta, slow_deadline: timedelta) -> None:
        """`slow_deadline`: for lookups of state and validation."""
        self._path = path
        self._deadline_seconds = deadline.total_seconds()
        self._slow_deadline_seconds = slow_deadline.total_seconds()
        self._status_call: asyncio.Task[JobStatus] | None = None
        self._is_down = False

    async def status(self) -> JobStatus:
        """The current status.

        Simultaneous callers share one call, so that many scrapes do not flood a job that hangs.
        """
        if self._status_call is None or self._status_call.done():
            self._status_call = asyncio.create_task(self._status(calls.Status()))
        return await asyncio.shield(self._status_call)

    async def read(self, request: Read, result: type[Result]) -> Result:
        """The result, as a `result`. If this task is cancelled, the job cancels the call.

        Raises RequestError for an invalid request, BusyError or ConflictError if the job cannot
        execute it now, JobUnavailableError if the job does not answer.
        """
        if isinstance(request, _SlowCall):
            await self.status()  # detects a hung job within the shorter deadline
        if isinstance(request, calls.SpecCall):
            request = request.model_copy(update={"within_seconds": self._slow_deadline_seconds})
        response = await self._call(request)
        with _same_version(self._path, request):
            return result.model_validate(response.result)

    async def command(self, command: Command) -> JobStatus:
        """The status once the job has accepted the command.

        Raises ConflictError if the state of the query forbids the command.
        """
        not_after = datetime.now(UTC) + timedelta(seconds=self._deadline_seconds)
        try:
            return await self._status(command.model_copy(update={"not_after": not_after}))
        finally:
            self._status_call = None  # later callers get a status after the command

    async def close(self) -> None:
        if self._status_call is not None:
            self._status_call.cancel()
            with contextlib.suppress(asyncio.CancelledError, JobUnavailableError):
                await self._status_call

    async def _status(self, request: Request) -> JobStatus:
        response = await self._call(request)
        with _same_version(self._path, request):
            return JobStatus.model_validate(response.status)

    async def _call(self, request: Request) -> Response:
        try:
            response = await self._exchange(request)
        except JobUnavailableError as error:
            self._note_availability(is_down=True, reason=str(error))
            raise
        self._note_availability(is_down=False)
        if response.error is not None:
            raise _error(response.error)
        return response

    async def _exchange(self, request: Request) -> Response:
        is_slow = isinstance(request, _SlowCall)
        seconds = self._slow_deadline_seconds if is_slow else self._deadline_seconds
        with _unavailability(self._path, seconds, request):
            async with asyncio.timeout(seconds):
                line = await _send_line(self._path, request.model_dump_json().encode() + b"\n")
        with _same_version(self._path, request):
            return Response.model_validate_json(line)

    def _note_availability(self, *, is_down: bool, reason: str | None = None) -> None:
        """Log once that the job stopped answering, and once that it answers again."""
        if is_down and not self._is_down:
            _log.warning("job_down", reason=reason)
        elif self._is_down and not is_down:
            _log.info("job_up", socket=str(self._path))
        self._is_down = is_down


@contextmanager
def _unavailability(path: Path, deadline_seconds: float, request: Request) -> Iterator[None]:
    """Raises every failure of the connection as a JobUnavailableError with its fix."""
    try:
        yield
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise JobUnavailableError(
            f"no job answers on {path}: start it with `streamjoin run`, "
            "or set STREAMJOIN_SOCKET to the path of the job's socket"
        ) from error
    except PermissionError as error:
        raise JobUnavailableError(
            f"permission denied for {path}: run job and service as the same user"
        ) from error
    except (TimeoutError, BlockingIOError) as error:
        remedy = (
            "the call was cancelled; repeat it when the query has less load, "
            "or increase STREAMJOIN_LOOKUP_SECONDS"
            if isinstance(request, _SlowCall)
            else "it hangs or is overloaded; check its log, or restart its process"
        )
        raise JobUnavailableError(
            f"the job on {path} did not answer within {deadline_seconds:g} s: "
            f"{remedy}{_expiry_note(request)}"
        ) from error
    except OSError as error:
        raise JobUnavailableError(
            f"the job on {path} did not answer ({error}): check its log{_expiry_note(request)}"
        ) from error
    except ValueError as error:  # asyncio's error for a line that is too long
        raise JobUnavailableError(
            f"the answer on {path} is longer than {_RESPONSE_BYTES_MAX:,} bytes: "
            "request fewer rows (`limit`)"
        ) from error


@contextmanager
def _same_version(path: Path, request: Request) -> Iterator[None]:
    """Raises JobUnavailableError if the job's answer does not match the model."""
    try:
        yield
    except ValidationError as error:
        raise JobUnavailableError(
            f"the answer on {path} is incomplete or of another version: check the job's log, "
            f"and run the same version of job and service{_expiry_note(request)}"
        ) from error


async def _send_line(path: Path, line: bytes) -> bytes:
    """The line that the job answers."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        # On a Unix socket this never blocks: it fails if the backlog of the socket is full.
        connection.setblocking(False)
        connection.connect(str(path))
        reader, writer = await asyncio.open_unix_connection(
            sock=connection, limit=_RESPONSE_BYTES_MAX
        )
    except BaseException:
        connection.close()
        raise
    try:
        writer.write(line)
        return await reader.readline()
    finally:
        writer.transport.abort()


def _error(error: CallError) -> Exception:
    """The exception for an error in the job's answer."""
    match error.code:
        case ConflictError.code:
            return ConflictError(error.message, allowed=error.allowed)
        case RequestError.code:
            return RequestError(error.message)
        case BusyError.code:
            wait = error.retry_after_seconds or 1.0
            return BusyError(error.message, retry_after_seconds=wait)
        case "invalid_request":
            return JobUnavailableError(
                f"the job does not accept the request ({error.message}): "
                "run the same version of job and service"
            )
        case "internal_error":
            return JobUnavailableError(f"the job failed to answer ({error.message}): see its log")
        case _:
            return JobUnavailableError(error.message)


def _expiry_note(request: Request) -> str:
    """Note for a command without an answer: the job does not execute it later. Empty: the request
    is not a command."""
    if not isinstance(request, Command):
        return ""
    return f". If the job has not executed {request.call} yet, it will not: the command has expired"
