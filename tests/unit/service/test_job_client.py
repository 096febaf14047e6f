"""The client of the control socket, over the real protocol."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from job.errors import ConflictError, JobUnavailableError
from job.protocol.calls import Command, Pause, Restart, Stop
from job.protocol.control import control_socket, respond
from job.protocol.status import JobStatus, QueryState
from service.job_client import JobClient
from tests.polling import wait_until
from tests.unit.service.builders import SmallJob, batch, hung_job, status, status_after
from tests.unit.service.calls import AT_ONCE, DEADLINE, SLACK_SECONDS

PATIENT = timedelta(seconds=20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.sock"


def test_status_arrives_unchanged(path: Path) -> None:
    given = status_after(batch(batch_id=1), batch(batch_id=2))

    with control_socket(path, SmallJob(given)):
        assert given == asyncio.run(client(path, deadline=PATIENT).status())


def test_status_with_thousands_of_partitions_arrives(path: Path) -> None:
    offsets = dict.fromkeys(range(20_000), 1_000_000)
    left = batch().left.model_copy(update={"end_offsets": offsets, "latest_offsets": offsets})
    given = status_after(batch(left=left))

    with control_socket(path, SmallJob(given)):
        assert given == asyncio.run(client(path, deadline=PATIENT).status())


def test_command_reaches_the_job_with_the_name_of_the_client(path: Path) -> None:
    job = SmallJob(status())

    with control_socket(path, job):
        after = asyncio.run(client(path, deadline=PATIENT).command(Pause(by="ada")))

    assert [("pause", "ada")] == job.commands
    assert QueryState.PAUSED is after.state


def test_refused_command_is_a_conflict_that_names_the_allowed_verbs(path: Path) -> None:
    job = SmallJob(status(QueryState.FAILED), allowed=("restart", "stop"))

    with control_socket(path, job), pytest.raises(ConflictError) as refused:
        asyncio.run(client(path, deadline=PATIENT).command(Pause(by="ada")))

    assert ["restart", "stop"] == refused.value.allowed
    assert "pause is not possible while the query is FAILED" == str(refused.value)


def test_missing_socket_is_an_error_with_path_and_fix(path: Path) -> None:
    assert (
        f"no job answers on {path}: start it with `streamjoin run`, "
        "or set STREAMJOIN_SOCKET to the path of the job's socket"
    ) == unavailable(path)


def test_socket_of_a_killed_job_is_like_a_missing_one(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))

    assert unavailable(path).startswith(f"no job answers on {path}: start it")


def test_call_to_a_hung_job_ends_at_the_deadline(path: Path) -> None:
    with hung_job(path):
        started = time.monotonic()
        message = unavailable(path)

    assert (
        f"the job on {path} did not answer within 0.3 s: it hangs or is overloaded; "
        "check its log, or restart its process"
    ) == message
    assert time.monotonic() - started < DEADLINE.total_seconds() + SLACK_SECONDS


def test_error_of_a_command_to_a_hung_job_names_its_expiry(path: Path) -> None:
    with hung_job(path):
        message = unavailable(path, Restart())

    assert message.endswith(
        ". If the job has not executed restart yet, it will not: the command has expired"
    )


def test_expired_command_is_not_executed() -> None:
    job = SmallJob(status())
    late = Stop(by="ada", not_after=datetime.now(UTC) - timedelta(seconds=2))
    in_time = late.model_copy(update={"not_after": datetime.now(UTC) + PATIENT})

    refusal = respond(late.model_dump_json().encode(), job, threading.Event()).error
    assert refusal is not None
    assert ("expired", []) == (refusal.code, job.commands)
    assert respond(in_time.model_dump_json().encode(), job, threading.Event()).error is None
    assert [("stop", "ada")] == job.commands


def test_refusal_of_an_expired_command_is_reported(path: Path) -> None:
    expired = b'{"error": {"code": "expired", "message": "stop expired and was not executed"}}\n'

    with answering(path, lambda connection: connection.sendall(expired)):
        assert "stop expired and was not executed" == unavailable(path, Stop(), deadline=PATIENT)


def test_full_backlog_counts_as_a_hung_job(path: Path) -> None:
    with hung_job(path, backlog=0), socket.socket(socket.AF_UNIX) as first:
        first.connect(str(path))  # no room for a second

        assert "did not answer within 0.3 s: it hangs" in unavailable(path)


def test_call_to_a_job_that_answers_byte_by_byte_ends_at_the_deadline(path: Path) -> None:
    def drip(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # until the client disconnects
            while True:
                connection.sendall(b" ")
                connection.settimeout(0.02)
                with contextlib.suppress(TimeoutError):
                    connection.recv(1)

    with answering(path, drip):
        started = time.monotonic()
        message = unavailable(path)

    assert "did not answer within 0.3 s" in message
    assert time.monotonic() - started < DEADLINE.total_seconds() + SLACK_SECONDS


@pytest.mark.parametrize("answer", [b"", b'{"status": {"na', b'{"status": {"name": "x"}}\n'])
def test_unreadable_answer_names_the_possible_causes(path: Path, answer: bytes) -> None:
    with answering(path, lambda connection: connection.sendall(answer)):
        assert (
            f"the answer on {path} is incomplete or of another version: check the job's log, "
            "and run the same version of job and service"
        ) == unavailable(path, deadline=PATIENT)


def test_request_that_the_job_does_not_accept_is_of_another_version(path: Path) -> None:
    refusal = b'{"error": {"code": "invalid_request", "message": "call: unexpected"}}\n'

    with answering(path, lambda connection: connection.sendall(refusal)):
        assert (
            "the job does not accept the request (call: unexpected): "
            "run the same version of job and service"
        ) == unavailable(path, deadline=PATIENT)


def test_simultaneous_status_calls_share_one_connection(path: Path) -> None:
    async def call_simultaneously() -> list[object]:
        job_client = client(path, deadline=DEADLINE)
        return await asyncio.gather(
            *(job_client.status() for _ in range(AT_ONCE)), return_exceptions=True
        )

    with hung_job(path, backlog=2 * AT_ONCE) as listener:
        errors = asyncio.run(call_simultaneously())

        assert [JobUnavailableError] * AT_ONCE == [type(error) for error in errors]
        assert 1 == waiting_connections(listener)


def test_later_status_call_gets_the_later_status(path: Path) -> None:
    job = SmallJob(status(QueryState.STARTING))

    async def call_twice() -> list[QueryState]:
        job_client = client(path, deadline=PATIENT)
        before = await job_client.status()
        job.current = status(QueryState.RUNNING)
        return [before.state, (await job_client.status()).state]

    with control_socket(path, job):
        assert [QueryState.STARTING, QueryState.RUNNING] == asyncio.run(call_twice())


def test_status_after_a_command_includes_its_effect(path: Path) -> None:
    """Even while a status call from before the command is pending."""
    job = SlowAtFirst(status())

    async def call_before_and_after_a_command() -> QueryState:
        job_client = client(path, deadline=PATIENT)
        before = asyncio.create_task(job_client.status())
        await asyncio.to_thread(wait_until, lambda: job.calls, 20.0, "the job has the call")
        await job_client.command(Pause(by="ada"))
        after = asyncio.create_task(job_client.status())
        await asyncio.wait([after], timeout=SLACK_SECONDS)
        job.may_answer.set()
        await before
        return (await after).state

    with control_socket(path, job):
        assert QueryState.PAUSED is asyncio.run(call_before_and_after_a_command())


def test_cancelled_caller_does_not_cancel_the_others(path: Path) -> None:
    job = SlowAtFirst(status())

    async def cancel_one() -> JobStatus:
        job_client = client(path, deadline=PATIENT)
        impatient, patient = (asyncio.create_task(job_client.status()) for _ in range(2))
        await asyncio.to_thread(wait_until, lambda: job.calls, 20.0, "the job has the call")
        impatient.cancel()
        await asyncio.wait([impatient])
        job.may_answer.set()
        return await patient

    with control_socket(path, job):
        assert status() == asyncio.run(cancel_one())


def test_job_that_starts_again_is_found(path: Path) -> None:
    async def call_before_and_after() -> JobStatus:
        job_client = client(path, deadline=PATIENT)
        with pytest.raises(JobUnavailableError):
            await job_client.status()
        with control_socket(path, SmallJob(status())):
            return await job_client.status()

    assert status() == asyncio.run(call_before_and_after())


def client(path: Path, *, deadline: timedelta, slow: timedelta = PATIENT) -> JobClient:
    return JobClient(path, deadline=deadline, slow_deadline=slow)


class SlowAtFirst(SmallJob):
    """Its first status call waits for `may_answer`, then returns the status from before."""

    def __init__(self, given: JobStatus) -> None:
        super().__init__(given)
        self.calls = 0
        self.may_answer = threading.Event()

    def status(self) -> JobStatus:
        self.calls += 1
        current = self.current
        if self.calls == 1:
            self.may_answer.wait(PATIENT.total_seconds())
        return current


def unavailable(path: Path, command: Command | None = None, deadline: timedelta = DEADLINE) -> str:
    """Message of the error if the job does not answer."""

    async def call() -> None:
        job_client = client(path, deadline=deadline)
        await (job_client.command(command) if command else job_client.status())

    with pytest.raises(JobUnavailableError) as error:
        asyncio.run(call())
    return str(error.value)


@contextmanager
def answering(path: Path, answer) -> Iterator[None]:
    """Accepts one connection, reads the request, calls `answer`, and disconnects."""

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            answer(connection)

    with hung_job(path) as listener:
        thread = threading.Thread(target=serve, args=[listener], daemon=True)
        thread.start()
        yield
        thread.join(PATIENT.total_seconds())


def waiting_connections(listener: socket.socket) -> int:
    listener.setblocking(False)
    count = 0
    with contextlib.suppress(BlockingIOError):
        while True:
            listener.accept()[0].close()
            count += 1
    return count
