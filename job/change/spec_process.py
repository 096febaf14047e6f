"""Validates and plans the specs of clients in another process: one at a time, each with a deadline.

The driver's Python interpreter also delivers batches, so an expensive spec must not run in it. The
process starts with the first call, which takes about 2 s of CPU time. It and its process for SQL
(job/sql/worker.py) need about 450 MB of memory, until ten minutes without a call have passed.
"""

import os
import pickle
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Event
from typing import IO, cast

import structlog

from job.change.sent_spec import PlannedSpec, PlanRequest
from job.change.spec_server import LENGTH_BYTES, Answer, Request
from job.errors import BusyError, CancelledError, JobUnavailableError, StreamjoinError
from job.plan.validation import ValidationRequest
from job.protocol.results import ValidationResult

# The most expensive specs of 64 kB take 2 s of CPU time.
SECONDS_MAX = 20.0
# The rest of the caller's time is for the way of the result.
_SHARE_OF_CALLERS_TIME = 0.8
_IDLE_SECONDS_MAX = 600.0
_POLL_SECONDS = 0.05
# Each waiting call occupies a thread of the control socket.
_WAITING_MAX = 8
_ERROR_CHARS_MAX = 2_000
_SERVER = (sys.executable, "-m", "job.change.spec_server")
# Variables that Python needs to start, and to reach a schema registry; the others may contain
# passwords.
_ENVIRONMENT = (
    *("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ", "TMPDIR"),
    # For the process that reads SQL: where Java and the jars are.
    *("JAVA_HOME", "STREAMJOIN_JARS", "XDG_CACHE_HOME", "HOME"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "http_proxy", "https_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)

_log = structlog.get_logger()


class SpecProcess:
    """Safe for calls from many threads.

    The calls raise BusyError if other calls take all of the caller's time, JobUnavailableError if
    this one does, CancelledError once `caller_gone` is set. `within_seconds`: time until the
    caller's deadline.
    """

    def __init__(
        self,
        server: Sequence[str] = _SERVER,
        *,
        seconds_max: float = SECONDS_MAX,
        idle_seconds_max: float = _IDLE_SECONDS_MAX,
    ) -> None:
        """`seconds_max`: of a call, with its wait for other calls and for the process."""
        self._server = server
        self._seconds_max = seconds_max
        self._idle_seconds_max = idle_seconds_max
        self._running: _Running | None = None
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(1 + _WAITING_MAX)
        self._work = ""
        self._ends_by = 0.0
        self._closed = Event()
        self._idle = threading.Timer(0, lambda: None)

    def close(self) -> None:
        """Cancel the running call and all later ones."""
        self._closed.set()
        self._idle.cancel()
        with self._turn:
            self._end()

    def validate(
        self, request: ValidationRequest, caller_gone: Event, *, within_seconds: float
    ) -> ValidationResult:
        """Raises StreamjoinError if the spec cannot be read, for example without Java."""
        answer = self._call("validation", request, caller_gone, within_seconds)
        if isinstance(answer, StreamjoinError):
            raise answer
        return cast("ValidationResult", answer)

    def plan(
        self, request: PlanRequest, caller_gone: Event, *, within_seconds: float
    ) -> PlannedSpec:
        """Raises StreamjoinError as `plan_sent_spec`."""
        answer = self._call("planning", request, caller_gone, within_seconds)
        if isinstance(answer, StreamjoinError):
            raise answer
        return cast("PlannedSpec", answer)

    def _call(
        self, work: str, request: Request, caller_gone: Event, within_seconds: float
    ) -> Answer:
        """`work`: noun for messages."""
        wait = min(self._seconds_max, _SHARE_OF_CALLERS_TIME * within_seconds)
        call = _Call(work, time.monotonic() + wait, caller_gone, self._closed)
        with self._one_at_a_time(call):
            call.check_caller()
            return self._answer(request, call)

    @contextmanager
    def _one_at_a_time(self, call: "_Call") -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise self._busy(f"{_WAITING_MAX} calls already wait for the {self._work} of a spec")
        try:
            while not self._turn.acquire(timeout=_POLL_SECONDS):
                call.check_caller()
                if call.seconds <= 0:
                    raise self._busy(f"the {self._work} of another spec is running")
            try:
                self._work, self._ends_by = call.work, call.deadline
                yield
            finally:
                self._turn.release()
        finally:
            self._places.release()

    def _busy(self, reason: str) -> BusyError:
        wait = max(1.0, self._ends_by - time.monotonic())
        return BusyError(f"{reason}: try again in {wait:.0f} s", retry_after_seconds=wait)

    def _answer(self, request: Request, call: "_Call") -> Answer:
        self._idle.cancel()
        if self._running is None or self._running.has_ended:
            self._end()
            self._running = _Running(self._server)
        try:
            output = self._running.answer(request, call)
        except BaseException:
            self._end()
            raise
        self._idle = threading.Timer(self._idle_seconds_max, self._end_if_idle)
        self._idle.daemon = True
        self._idle.start()
        answer: Answer = pickle.loads(output)  # noqa: S301  # of the job
        return answer

    def _end_if_idle(self) -> None:
        if self._turn.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._turn.release()

    def _end(self) -> None:
        if self._running is not None:
            self._running.end()
            self._running = None


class _Call:
    def __init__(self, work: str, deadline: float, caller_gone: Event, closed: Event) -> None:
        self.work = work
        self.deadline = deadline
        self._gone = (caller_gone, closed)

    @property
    def seconds(self) -> float:
        """Until the deadline."""
        return self.deadline - time.monotonic()

    def check_caller(self) -> None:
        if any(event.is_set() for event in self._gone):
            raise CancelledError(
                f"the {self.work} was cancelled: the client is gone, or the job ends"
            )


class _Running:
    """The process, and the process that it starts for SQL."""

    def __init__(self, server: Sequence[str]) -> None:
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # `end` closes it
        self._process = subprocess.Popen(
            server,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
            start_new_session=True,
        )

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):  # an unsent rest
                    stream.close()
        self._log.close()

    def answer(self, request: Request, call: _Call) -> bytes:
        question = pickle.dumps((max(_POLL_SECONDS, call.seconds), request))
        # A process that does not read must not block the call.
        threading.Thread(target=self._send, args=(question,), daemon=True).start()
        output = bytearray()
        with selectors.DefaultSelector() as selector:
            assert self._process.stdout is not None
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while not _is_complete(output):
                call.check_caller()
                if call.seconds <= 0:
                    raise JobUnavailableError(
                        f"the {call.work} timed out: make the spec smaller, or try again when the "
                        "machine is less busy"
                    )
                if selector.select(_POLL_SECONDS):
                    part = os.read(self._process.stdout.fileno(), 1 << 16)
                    if not part:
                        raise self._failure(call)
                    output += part
        return bytes(output[LENGTH_BYTES:])

    def _send(self, question: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(OSError, ValueError):  # the process has ended, which `answer` reports
            self._process.stdin.write(question)
            self._process.stdin.flush()

    def _failure(self, call: _Call) -> JobUnavailableError:
        code = self._process.wait()
        self._log.seek(0)
        reason = self._log.read().decode(errors="replace")[-_ERROR_CHARS_MAX:]
        _log.error("spec_process_failed", work=call.work, exit_code=code, reason=reason)
        return JobUnavailableError(
            f"the {call.work} failed with exit code {code}: see its error in the log of the job"
        )


def _is_complete(output: bytearray) -> bool:
    length = int.from_bytes(output[:LENGTH_BYTES])
    return len(output) >= LENGTH_BYTES and len(output) == LENGTH_BYTES + length
