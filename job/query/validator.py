"""Validates and plans the specs of clients in short-lived processes: one at a time, each with a
deadline.

The driver's Python interpreter also delivers batches, so an expensive spec must not run in it.
Starting the process takes about 0.8 s of CPU time; between two calls it needs no memory.
"""

import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event

import structlog

from job.change.planning import PlanRequest
from job.change.sent_spec import PlannedSpec
from job.errors import BusyError, CancelledError, JobUnavailableError, StreamjoinError
from job.plan.validation import ValidationRequest
from job.protocol.results import ValidationResult

# The most expensive specs of 64 kB take 2 s of CPU time, 0.8 s of it for Python's imports.
VALIDATION_SECONDS_MAX = 20.0
# The rest of the caller's time is for the way of the result.
_SHARE_OF_CALLERS_TIME = 0.8
_POLL_SECONDS = 0.05
# Each waiting call occupies a thread of the control socket.
_WAITING_MAX = 8
_ERROR_CHARS_MAX = 2_000
_VALIDATION = (sys.executable, "-m", ValidationRequest.__module__)
_PLANNING = (sys.executable, "-m", PlanRequest.__module__)
# Variables that Python needs to start, and to reach a schema registry; the others may contain
# passwords.
_ENVIRONMENT = (
    *("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "http_proxy", "https_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
)

_log = structlog.get_logger()


class SpecProcess:
    """Safe for calls from many threads."""

    def __init__(self, command: Sequence[str], work: str) -> None:
        """`work`: noun for messages."""
        self._command = command
        self._work = work
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(1 + _WAITING_MAX)
        self._ends_by = 0.0
        self._closed = Event()

    def close(self) -> None:
        """Cancel the running call and all later ones."""
        self._closed.set()

    def run(self, request: bytes, caller_gone: Event, *, within_seconds: float) -> bytes:
        """The result of the process.

        `within_seconds`: time until the caller's deadline, for the queue and the process. Raises
        BusyError if other calls take all of it, JobUnavailableError if this one does,
        CancelledError once `caller_gone` is set.
        """
        wait = min(VALIDATION_SECONDS_MAX, _SHARE_OF_CALLERS_TIME * within_seconds)
        deadline = time.monotonic() + wait
        with self._one_at_a_time(deadline, caller_gone):
            return self._run(request, deadline, caller_gone)

    @contextmanager
    def _one_at_a_time(self, deadline: float, caller_gone: Event) -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise self._busy(f"{_WAITING_MAX} calls already wait for {self._work}")
        try:
            while not self._turn.acquire(timeout=_POLL_SECONDS):
                self._check_caller(caller_gone)
                if time.monotonic() > deadline:
                    raise self._busy(f"the {self._work} of another spec is running")
            try:
                self._ends_by = deadline
                yield
            finally:
                self._turn.release()
        finally:
            self._places.release()

    def _busy(self, reason: str) -> BusyError:
        wait = max(1.0, self._ends_by - time.monotonic())
        return BusyError(f"{reason}: try again in {wait:.0f} s", retry_after_seconds=wait)

    def _run(self, request: bytes, deadline: float, caller_gone: Event) -> bytes:
        seconds = max(_POLL_SECONDS, deadline - time.monotonic())
        process = subprocess.Popen(
            [*self._command, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        )
        try:
            output, errors = self._communicate(process, request, deadline, caller_gone)
        finally:
            process.kill()
            process.communicate()  # closes the pipes and leaves no zombie
        if process.returncode != 0:
            reason = errors.decode(errors="replace")[-_ERROR_CHARS_MAX:]
            _log.error(
                "spec_process_failed",
                work=self._work,
                exit_code=process.returncode,
                reason=reason,
            )
            raise JobUnavailableError(
                f"the {self._work} failed with exit code {process.returncode}: see its error in "
                "the log of the job"
            )
        return output

    def _communicate(
        self,
        process: subprocess.Popen[bytes],
        request: bytes,
        deadline: float,
        caller_gone: Event,
    ) -> tuple[bytes, bytes]:
        """Output and errors of the process, after its end."""
        unsent: bytes | None = request
        while True:
            try:
                return process.communicate(unsent, timeout=_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                unsent = None  # the first call keeps the unsent rest
            self._check_caller(caller_gone)
            if time.monotonic() > deadline:
                raise JobUnavailableError(
                    f"the {self._work} timed out: make the spec smaller, or try again when the "
                    "machine is less busy"
                )

    def _check_caller(self, caller_gone: Event) -> None:
        if caller_gone.is_set() or self._closed.is_set():
            raise CancelledError(
                f"the {self._work} was cancelled: the client is gone, or the job ends"
            )


class Validator(SpecProcess):
    def __init__(self, command: Sequence[str] = _VALIDATION) -> None:
        super().__init__(command, "validation")

    def validate(
        self, request: ValidationRequest, caller_gone: Event, *, within_seconds: float
    ) -> ValidationResult:
        """Raises StreamjoinError as `run`."""
        line = request.model_dump_json().encode()
        return ValidationResult.model_validate_json(
            self.run(line, caller_gone, within_seconds=within_seconds)
        )


class ChangePlanner(SpecProcess):
    def __init__(self, command: Sequence[str] = _PLANNING) -> None:
        super().__init__(command, "planning")

    def plan(
        self, request: PlanRequest, caller_gone: Event, *, within_seconds: float
    ) -> PlannedSpec:
        """Raises StreamjoinError as `run` and `planned`."""
        output = self.run(pickle.dumps(request), caller_gone, within_seconds=within_seconds)
        answer: PlannedSpec | StreamjoinError = pickle.loads(output)  # noqa: S301  # of the job
        if isinstance(answer, StreamjoinError):
            raise answer
        return answer
