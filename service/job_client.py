"""Asks the job over its control socket, and never waits for it longer than the deadline."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import structlog
from pydantic import ValidationError

from job.control import Reply, Request, Verb
from job.errors import ConflictError, JobUnavailableError
from job.progress import JobStatus

# A status takes 5 kB and 50 bytes for each partition of the topics.
_REPLY_BYTES_MAX = 16 * 1024 * 1024

_log = structlog.get_logger()


class JobClient:
    def __init__(self, path: Path, *, deadline: timedelta) -> None:
        self._path = path
        self._deadline_seconds = deadline.total_seconds()
        self._question: asyncio.Task[JobStatus] | None = None
        self._is_away = False

    async def status(self) -> JobStatus:
        """Callers at the same time share one question: many scrapes do not flood a hung job."""
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._asked(Request(call="status")))
        return await asyncio.shield(self._question)

    async def command(self, verb: Verb, *, by: str) -> JobStatus:
        """The status once the job has taken note; ConflictError where it refuses to."""
        try:
            return await self._asked(Request(call=verb, by=by))
        finally:
            self._question = None  # whoever asks from now on is to see the command's effect

    async def close(self) -> None:
        if self._question is not None:
            self._question.cancel()
            with contextlib.suppress(asyncio.CancelledError, JobUnavailableError):
                await self._question

    async def _asked(self, request: Request) -> JobStatus:
        try:
            reply = await self._reply(request)
        except JobUnavailableError as error:
            self._note(is_away=True, reason=str(error))
            raise
        self._note(is_away=False)
        return _status(reply)

    async def _reply(self, request: Request) -> Reply:
        with _unavailability(self._path, self._deadline_seconds, request):
            async with asyncio.timeout(self._deadline_seconds):
                line = await _exchanged(self._path, request.model_dump_json().encode() + b"\n")
            return Reply.model_validate_json(line)

    def _note(self, *, is_away: bool, reason: str | None = None) -> None:
        """Log that the job has gone or come back, once each."""
        if is_away and not self._is_away:
            _log.warning("job_away", reason=reason)
        elif self._is_away and not is_away:
            _log.info("job_back", socket=str(self._path))
        self._is_away = is_away


@contextmanager
def _unavailability(path: Path, deadline_seconds: float, request: Request) -> Iterator[None]:
    """Each way of not answering, in words and with its remedy."""
    try:
        yield
    except (FileNotFoundError, ConnectionRefusedError) as error:
        raise JobUnavailableError(
            f"no job answers on {path}: start it with `streamjoin run`, "
            "or set STREAMJOIN_SOCKET to the path the job was given"
        ) from error
    except PermissionError as error:
        raise JobUnavailableError(
            f"{path} belongs to another user: run job and sidecar as the same one"
        ) from error
    except (TimeoutError, BlockingIOError) as error:
        raise JobUnavailableError(
            f"the job on {path} did not answer within {deadline_seconds:g} s: it is hung or "
            f"overloaded; look at its log, or end it and start it again{_afterthought(request)}"
        ) from error
    except OSError as error:
        raise JobUnavailableError(
            f"the job on {path} did not answer ({error}): look at its log{_afterthought(request)}"
        ) from error
    except ValidationError as error:
        raise JobUnavailableError(
            f"the answer on {path} was cut short or is of another version: look at the job's log, "
            f"and run job and sidecar of the same version{_afterthought(request)}"
        ) from error


async def _exchanged(path: Path, line: bytes) -> bytes:
    """One line there, one line back."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        # On a Unix socket this never waits: it fails where the job has left too many unanswered.
        connection.setblocking(False)
        connection.connect(str(path))
        reader, writer = await asyncio.open_unix_connection(sock=connection, limit=_REPLY_BYTES_MAX)
    except BaseException:
        connection.close()
        raise
    try:
        writer.write(line)
        return await reader.readline()
    finally:
        writer.transport.abort()


def _status(reply: Reply) -> JobStatus:
    refusal = reply.refusal
    if refusal is not None and refusal.code == ConflictError.code:
        raise ConflictError(refusal.message, allowed=refusal.allowed)
    if refusal is not None or reply.status is None:
        reason = "no status" if refusal is None else refusal.message
        raise JobUnavailableError(
            f"the job does not understand this sidecar ({reason}): run both of the same version"
        )
    return reply.status


def _afterthought(request: Request) -> str:
    """A command that was sent cannot be taken back."""
    if request.call == "status":
        return ""
    return f". It may have taken the {request.call}, or may still do so"
