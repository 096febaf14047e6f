"""Client of the job's control socket. Each call has a deadline."""

import asyncio
import contextlib
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

import structlog
from pydantic import BaseModel

from job.errors import BusyError, ConflictError, JobUnavailableError, RequestError
from job.protocol import calls
from job.protocol.calls import Command, Read, Request
from job.protocol.control import CallError, Response
from job.protocol.status import JobStatus
from job.protocol.unavailable import RESPONSE_BYTES_MAX, SlowCall, same_version, unavailability

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
        if isinstance(request, SlowCall):
            await self.status()  # detects a hung job within the shorter deadline
        if isinstance(request, calls.SpecCall | calls.ReadSpec):
            request = request.model_copy(update={"within_seconds": self._slow_deadline_seconds})
        response = await self._call(request)
        with same_version(self._path, request):
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
        with same_version(self._path, request):
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
        is_slow = isinstance(request, SlowCall)
        seconds = self._slow_deadline_seconds if is_slow else self._deadline_seconds
        with unavailability(self._path, seconds, request):
            async with asyncio.timeout(seconds):
                line = await _send_line(self._path, request.model_dump_json().encode() + b"\n")
        with same_version(self._path, request):
            return Response.model_validate_json(line)

    def _note_availability(self, *, is_down: bool, reason: str | None = None) -> None:
        """Log once that the job stopped answering, and once that it answers again."""
        if is_down and not self._is_down:
            _log.warning("job_down", reason=reason)
        elif self._is_down and not is_down:
            _log.info("job_up", socket=str(self._path))
        self._is_down = is_down


async def _send_line(path: Path, line: bytes) -> bytes:
    """The line that the job answers."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        # On a Unix socket this never blocks: it fails if the backlog of the socket is full.
        connection.setblocking(False)
        connection.connect(str(path))
        reader, writer = await asyncio.open_unix_connection(
            sock=connection, limit=RESPONSE_BYTES_MAX
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
