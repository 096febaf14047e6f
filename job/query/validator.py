"""Runs job/plan/validation.py as a short-lived process: one at a time, each with a deadline.

The driver delivers batches with the same Python interpreter: a spec that costs much must not run
in it. Starting the process costs about 0.8 s of CPU time; between validations it needs no memory.
"""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Event

import structlog
from pydantic import ValidationError

from job.errors import BusyError, CancelledError, JobUnavailableError
from job.plan.validation import ValidationRequest
from job.protocol.results import ValidationResult

# The specs of 64 kB that cost most take 2 s of CPU time, 0.8 s of it for Python's imports.
VALIDATION_SECONDS_MAX = 20.0
# The answer has to reach a caller who waits no longer than that.
_SHARE_OF_THE_CALLERS_WAIT = 0.8
_POLL_SECONDS = 0.05
# Each holds a thread of the control socket.
_WAITING_MAX = 8
_ERROR_CHARS_MAX = 2_000
_COMMAND = (sys.executable, "-m", "job.plan.validation")
# What Python needs to start; the rest of the environment may hold passwords.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "LANG", "LC_ALL", "TZ")

_log = structlog.get_logger()


class Validator:
    """Safe to be called by many threads at once."""

    def __init__(self, command: Sequence[str] = _COMMAND) -> None:
        self._command = command
        self._turn = threading.Lock()
        self._places = threading.BoundedSemaphore(1 + _WAITING_MAX)
        self._ends_by = 0.0
        self._closed = Event()

    def close(self) -> None:
        """End the validation that is running; later ones are refused."""
        self._closed.set()

    def validated(
        self, request: ValidationRequest, gone: Event, *, within_seconds: float
    ) -> ValidationResult:
        """The answer of the process.

        `within_seconds`: how long the caller waits, for its turn and for the answer. Raises
        BusyError where another validation takes all of that time, JobUnavailableError where this
        one does, CancelledError once `gone` is set.
        """
        wait = min(VALIDATION_SECONDS_MAX, _SHARE_OF_THE_CALLERS_WAIT * within_seconds)
        deadline = time.monotonic() + wait
        with self._one_at_a_time(deadline, gone):
            return self._answer(request, deadline, gone)

    @contextmanager
    def _one_at_a_time(self, deadline: float, gone: Event) -> Iterator[None]:
        if not self._places.acquire(blocking=False):
            raise self._busy(f"{_WAITING_MAX} specs already wait for their validation")
        try:
            while not self._turn.acquire(timeout=_POLL_SECONDS):
                self._check_caller(gone)
                if time.monotonic() > deadline:
                    raise self._busy("another spec is being validated, one at a time")
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

    def _answer(self, request: ValidationRequest, deadline: float, gone: Event) -> ValidationResult:
        seconds = max(_POLL_SECONDS, deadline - time.monotonic())
        process = subprocess.Popen(
            [*self._command, str(seconds)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={name: os.environ[name] for name in _ENVIRONMENT if name in os.environ},
        )
        try:
            output, errors = self._communicated(process, request, deadline, gone)
        finally:
            process.kill()
            process.communicate()  # closes the pipes and leaves no zombie
        try:
            return ValidationResult.model_validate_json(output)
        except ValidationError as error:
            reason = errors.decode(errors="replace")[-_ERROR_CHARS_MAX:]
            _log.error("validation_failed", exit_code=process.returncode, reason=reason)
            raise JobUnavailableError(
                f"the validation ended with exit code {process.returncode}: the job's log has its "
                "error"
            ) from error

    def _communicated(
        self,
        process: subprocess.Popen[bytes],
        request: ValidationRequest,
        deadline: float,
        gone: Event,
    ) -> tuple[bytes, bytes]:
        """What the process has written, once it has ended."""
        line: bytes | None = request.model_dump_json().encode()
        while True:
            try:
                return process.communicate(line, timeout=_POLL_SECONDS)
            except subprocess.TimeoutExpired:
                line = None  # the first call keeps what is still to be sent
            self._check_caller(gone)
            if time.monotonic() > deadline:
                raise JobUnavailableError(
                    "the validation took too long and was ended: make the spec smaller, or try "
                    "again when the machine has less to do"
                )

    def _check_caller(self, gone: Event) -> None:
        if gone.is_set() or self._closed.is_set():
            raise CancelledError("the validation was cancelled: the caller or the job is gone")
