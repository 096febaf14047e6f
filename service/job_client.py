"""Asks the job over its control socket, and never waits for it longer than the deadline."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar, get_args

import structlog
from pydantic import BaseModel, ValidationError

from job.errors import BusyError, ConflictError, JobUnavailableError, RequestError
from job.join_spec.start_positions import StartPositions
from job.protocol.control import CallError, Request, Response, Verb
from job.protocol.status import JobStatus

# A status takes 10 kB and 100 bytes for each partition of the topics, a batch of the history 4 kB.
_REPLY_BYTES_MAX = 16 * 1024 * 1024
# What the job must work for: it reads state with Spark, or plans a spec.
_SLOW = {"state", "state_count", "explain", "validate"}

Answer = TypeVar("Answer", bound=BaseModel)

_log = structlog.get_logger()


class JobClient:
    def __init__(self, path: Path, *, deadline: timedelta, look_up_deadline: timedelta) -> None:
        """`look_up_deadline`: for what takes the job some work."""
        self._path = path
        self._deadline_seconds = deadline.total_seconds()
        self._look_up_seconds = look_up_deadline.total_seconds()
        self._question: asyncio.Task[JobStatus] | None = None
        self._is_away = False

    async def status(self) -> JobStatus:
        """Callers at the same time share one question: many scrapes do not flood a hung job."""
        if self._question is None or self._question.done():
            self._question = asyncio.create_task(self._status(Request(call="status")))
        return await asyncio.shield(self._question)

    async def ask(self, question: Request, answer: type[Answer]) -> Answer:
        """The job's answer, which is of this type.

        Cancelled, it hangs up, and the job gives up what it looks for. RequestError where the
        question makes no sense, BusyError or ConflictError where it has no answer right now.
        """
        if question.call in _SLOW:
            await self.status()  # a job that hangs is found within the shorter deadline
            question = question.model_copy(update={"within_seconds": self._look_up_seconds})
        reply = await self._asked(question)
        with _same_version(self._path, question):
            return answer.model_validate(reply.result)

    async def command(
        self, verb: Verb, *, by: str, starts: StartPositions | None = None
    ) -> JobStatus:
        """The status once the job has taken note; ConflictError where it refuses to."""
        not_after = datetime.now(UTC) + timedelta(seconds=self._deadline_seconds)
        try:
            return await self._status(Request(call=verb, by=by, starts=starts, not_after=not_after))
        finally:
            self._question = None  # whoever asks from now on is to see the command's effect

    async def close(self) -> None:
        if self._question is not None:
            self._question.cancel()
            with contextlib.suppress(asyncio.CancelledError, JobUnavailableError):
                await self._question

    async def _status(self, request: Request) -> JobStatus:
        reply = await self._asked(request)
        with _same_version(self._path, request):
            return JobStatus.model_validate(reply.status)

    async def _asked(self, request: Request) -> Response:
        try:
            reply = await self._reply(request)
        except JobUnavailableError as error:
            self._note(is_away=True, reason=str(error))
            raise
        self._note(is_away=False)
        if reply.error is not None:
            raise _refused(reply.error)
        return reply

    async def _reply(self, request: Request) -> Response:
        seconds = self._look_up_seconds if request.call in _SLOW else self._deadline_seconds
        with _unavailability(self._path, seconds, request):
            async with asyncio.timeout(seconds):
                line = await _exchanged(self._path, request.model_dump_json().encode() + b"\n")
        with _same_version(self._path, request):
            return Response.model_validate_json(line)

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
        remedy = (
            "it was given up; ask again when the query has less to do, "
            "or set STREAMJOIN_LOOK_UP_SECONDS to more"
            if request.call in _SLOW
            else "it is hung or overloaded; look at its log, or end it and start it again"
        )
        raise JobUnavailableError(
            f"the job on {path} did not answer within {deadline_seconds:g} s: "
            f"{remedy}{_afterthought(request)}"
        ) from error
    except OSError as error:
        raise JobUnavailableError(
            f"the job on {path} did not answer ({error}): look at its log{_afterthought(request)}"
        ) from error
    except ValueError as error:  # what asyncio makes of a line that is too long
        raise JobUnavailableError(
            f"the answer on {path} is longer than {_REPLY_BYTES_MAX:,} bytes: ask for less"
        ) from error


@contextmanager
def _same_version(path: Path, request: Request) -> Iterator[None]:
    """JobUnavailableError where what the job has sent is not of the shape it should have."""
    try:
        yield
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


def _refused(error: CallError) -> Exception:
    """The error that the job has put into words, as it was there."""
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
                f"the job does not understand this sidecar ({error.message}): "
                "run both of the same version"
            )
        case "internal_error":
            return JobUnavailableError(
                f"the job failed to answer ({error.message}): its log says why"
            )
        case _:
            return JobUnavailableError(error.message)


def _afterthought(request: Request) -> str:
    """A command that was sent cannot be taken back, but it expires."""
    if request.call not in get_args(Verb):
        return ""
    return f". If it has not taken the {request.call} by now, it will not"
