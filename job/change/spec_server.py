"""Validates and plans the specs that clients send: `python -m job.change.spec_server`.

Reads pickled requests from standard input, each with its limit of seconds, and writes pickled
answers to standard output, each after its length. A spec of a client can need more resources than
the job has: this process has limits, and no secrets.
"""

import math
import os
import pickle
import resource
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, BinaryIO

from job.change.sent_spec import PlannedSpec, PlanRequest, plan_sent_spec
from job.errors import Problem, SpecError, StreamjoinError
from job.plan.validation import ValidationRequest, invalid, validated
from job.protocol.results import ValidationResult
from job.settings import JobSettings, read_settings
from job.sql.questions import SqlQuestions
from job.sql.worker import CostError, SqlWorker

LENGTH_BYTES = 8
# The most expensive specs of 64 kB need 90 MB of address space, including Python.
_MEMORY_BYTES_MAX = 512 * 1024 * 1024
_TOO_LARGE = f"needs more than {_MEMORY_BYTES_MAX:,} bytes of memory: make the spec smaller"
_NOT_CHECKED = "is not checked: other expressions need too much time; simplify them first"
# The rest of the call's time is for the other work on its spec.
_SHARE_OF_SQL = 0.8
# The batches of the query have priority.
_NICENESS = 10

Request = ValidationRequest | PlanRequest
Answer = ValidationResult | PlannedSpec | StreamjoinError


class _Limits:
    """Limits of this process while it reads a spec. The process that reads SQL has its own, and
    inherits none of these."""

    def __init__(self) -> None:
        self._soft: Mapping[int, int] = {}

    @contextmanager
    def set(self, cpu_seconds: float) -> Iterator[None]:
        used = time.process_time()
        self._soft = {
            resource.RLIMIT_CPU: math.ceil(used + cpu_seconds),
            resource.RLIMIT_AS: _MEMORY_BYTES_MAX,
        }
        with self._limited(self._soft):
            yield

    @contextmanager
    def lifted(self) -> Iterator[None]:
        with self._limited(dict.fromkeys(self._soft, resource.RLIM_INFINITY)):
            yield

    @staticmethod
    @contextmanager
    def _limited(soft: Mapping[int, int]) -> Iterator[None]:
        before = {limit: resource.getrlimit(limit) for limit in soft}
        try:
            for limit, most in soft.items():
                hard = before[limit][1]
                resource.setrlimit(limit, (_least(most, hard), hard))
            yield
        finally:
            for limit, both in before.items():
                resource.setrlimit(limit, both)


def _least(soft: int, hard: int) -> int:
    limits = [each for each in (soft, hard) if each != resource.RLIM_INFINITY]
    return min(limits, default=resource.RLIM_INFINITY)


def _answer(request: Request, sql: SqlQuestions) -> Answer:
    try:
        if isinstance(request, ValidationRequest):
            return validated(request, sql)
        return plan_sent_spec(request, sql)
    except StreamjoinError as error:
        return error


def _too_large(request: Request) -> Answer:
    problem = Problem("the file", None, _TOO_LARGE)
    return invalid([problem]) if isinstance(request, ValidationRequest) else SpecError([problem])


def _requests(source: BinaryIO) -> Iterator[tuple[float, Request]]:
    while True:
        try:
            yield pickle.load(source)  # noqa: S301  # from the job
        except EOFError:
            return


def _ask(
    worker: SqlWorker, limits: _Limits, deadline: float, question: Mapping[str, Any]
) -> Mapping[str, Any]:
    """CostError at the deadline, which is before that of the call: the client gets the field of the
    expression that takes too long."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise CostError(_NOT_CHECKED)
    with limits.lifted():
        return worker.ask(question, seconds=seconds)


def main() -> None:
    os.nice(_NICENESS)
    limits = _Limits()
    with SqlWorker(read_settings(JobSettings).jars) as worker:
        worker.start()

        for seconds, request in _requests(sys.stdin.buffer):
            deadline = time.monotonic() + _SHARE_OF_SQL * seconds
            ask = partial(_ask, worker, limits, deadline)
            try:
                with limits.set(seconds):
                    answer = _answer(request, SqlQuestions(ask))
            except MemoryError:
                answer = _too_large(request)
            output = pickle.dumps(answer)
            sys.stdout.buffer.write(len(output).to_bytes(LENGTH_BYTES) + output)
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
