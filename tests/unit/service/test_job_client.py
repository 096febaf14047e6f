"""The sidecar asks over the real protocol, and waits for no job longer than its deadline."""

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
from job.protocol.control import Request, Verb, control_socket, respond
from job.protocol.status import JobStatus, QueryState
from service.job_client import JobClient
from tests.polling import wait_until
from tests.unit.service.builders import SmallJob, batch, hung_job, status, status_after
from tests.unit.service.calls import AT_ONCE, DEADLINE, SLACK_SECONDS

PATIENT = timedelta(seconds=20)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "job.sock"


def test_the_status_arrives_as_the_job_gave_it(path: Path) -> None:
    given = status_after(batch(batch_id=1), batch(batch_id=2))

    with control_socket(path, SmallJob(given)):
        assert given == asyncio.run(client(path, deadline=PATIENT).status())


def test_a_status_with_thousands_of_partitions_arrives(path: Path) -> None:
    offsets = dict.fromkeys(range(20_000), 1_000_000)
    left = batch().left.model_copy(update={"end_offsets": offsets, "latest_offsets": offsets})
    given = status_after(batch(left=left))

    with control_socket(path, SmallJob(given)):
        assert given == asyncio.run(client(path, deadline=PATIENT).status())


def test_a_command_reaches_the_job_with_the_name_of_who_asked(path: Path) -> None:
    job = SmallJob(status())

    with control_socket(path, job):
        after = asyncio.run(client(path, deadline=PATIENT).command("pause", by="ada"))

    assert [("pause", "ada")] == job.commands
    assert QueryState.PAUSED is after.state


def test_a_refused_command_is_a_conflict_that_names_the_allowed_verbs(path: Path) -> None:
    job = SmallJob(status(QueryState.FAILED), allowed=("restart", "stop"))

    with control_socket(path, job), pytest.raises(ConflictError) as refused:
        asyncio.run(client(path, deadline=PATIENT).command("pause", by="ada"))

    assert ["restart", "stop"] == refused.value.allowed
    assert "pause is not possible while the query is FAILED" == str(refused.value)


def test_without_a_socket_the_error_names_its_path_and_the_remedy(path: Path) -> None:
    assert (
        f"no job answers on {path}: start it with `streamjoin run`, "
        "or set STREAMJOIN_SOCKET to the path the job was given"
    ) == unavailable(path)


def test_the_socket_of_a_killed_job_is_like_none(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))

    assert unavailable(path).startswith(f"no job answers on {path}: start it")


def test_a_hung_job_costs_the_deadline_and_no_more(path: Path) -> None:
    with hung_job(path):
        started = time.monotonic()
        message = unavailable(path)

    assert (
        f"the job on {path} did not answer within 0.3 s: it is hung or overloaded; "
        "look at its log, or end it and start it again"
    ) == message
    assert time.monotonic() - started < DEADLINE.total_seconds() + SLACK_SECONDS


def test_a_command_to_a_hung_job_is_not_said_to_be_without_effect(path: Path) -> None:
    with hung_job(path):
        message = unavailable(path, "restart")

    assert message.endswith(". If it has not taken the restart by now, it will not")


def test_a_command_that_is_read_too_late_is_left_alone() -> None:
    job = SmallJob(status())
    late = Request(call="stop", by="ada", not_after=datetime.now(UTC) - timedelta(seconds=2))
    in_time = late.model_copy(update={"not_after": datetime.now(UTC) + PATIENT})

    refusal = respond(late.model_dump_json().encode(), job, threading.Event()).error
    assert refusal is not None
    assert ("expired", []) == (refusal.code, job.commands)
    assert respond(in_time.model_dump_json().encode(), job, threading.Event()).error is None
    assert [("stop", "ada")] == job.commands


def test_a_command_that_was_too_late_can_be_given_again(path: Path) -> None:
    expired = b'{"error": {"code": "expired", "message": "the stop came too late: ask again"}}\n'

    with answering(path, lambda connection: connection.sendall(expired)):
        assert "the stop came too late: ask again" == unavailable(path, "stop", deadline=PATIENT)


def test_a_job_that_leaves_too_many_unanswered_counts_as_hung(path: Path) -> None:
    with hung_job(path, backlog=0), socket.socket(socket.AF_UNIX) as first:
        first.connect(str(path))  # no room for a second

        assert "did not answer within 0.3 s: it is hung" in unavailable(path)


def test_a_job_that_answers_byte_by_byte_costs_the_deadline_and_no_more(path: Path) -> None:
    def drip(connection: socket.socket) -> None:
        with contextlib.suppress(OSError):  # until the sidecar has had enough
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
def test_an_answer_that_cannot_be_read_says_what_may_have_happened(
    path: Path, answer: bytes
) -> None:
    with answering(path, lambda connection: connection.sendall(answer)):
        assert (
            f"the answer on {path} was cut short or is of another version: look at the job's log, "
            "and run job and sidecar of the same version"
        ) == unavailable(path, deadline=PATIENT)


def test_a_job_that_does_not_understand_is_of_another_version(path: Path) -> None:
    refusal = b'{"error": {"code": "invalid_request", "message": "call: unexpected"}}\n'

    with answering(path, lambda connection: connection.sendall(refusal)):
        assert (
            "the job does not understand this sidecar (call: unexpected): "
            "run both of the same version"
        ) == unavailable(path, deadline=PATIENT)


def test_questions_at_the_same_time_share_one_connection(path: Path) -> None:
    async def ask_at_once() -> list[object]:
        asking = client(path, deadline=DEADLINE)
        return await asyncio.gather(
            *(asking.status() for _ in range(AT_ONCE)), return_exceptions=True
        )

    with hung_job(path, backlog=2 * AT_ONCE) as listener:
        errors = asyncio.run(ask_at_once())

        assert [JobUnavailableError] * AT_ONCE == [type(error) for error in errors]
        assert 1 == waiting_connections(listener)


def test_a_later_question_is_asked_anew(path: Path) -> None:
    job = SmallJob(status(QueryState.STARTING))

    async def ask_twice() -> list[QueryState]:
        asking = client(path, deadline=PATIENT)
        before = await asking.status()
        job.current = status(QueryState.RUNNING)
        return [before.state, (await asking.status()).state]

    with control_socket(path, job):
        assert [QueryState.STARTING, QueryState.RUNNING] == asyncio.run(ask_twice())


def test_who_asks_after_a_command_sees_its_effect(path: Path) -> None:
    """Even while a question from before the command is still without its answer."""
    job = SlowAtFirst(status())

    async def ask_around_a_command() -> QueryState:
        asking = client(path, deadline=PATIENT)
        before = asyncio.create_task(asking.status())
        await asyncio.to_thread(wait_until, lambda: job.asked, 20.0, "the job was asked")
        await asking.command("pause", by="ada")
        after = asyncio.create_task(asking.status())
        await asyncio.wait([after], timeout=SLACK_SECONDS)
        job.may_answer.set()
        await before
        return (await after).state

    with control_socket(path, job):
        assert QueryState.PAUSED is asyncio.run(ask_around_a_command())


def test_one_who_gives_up_does_not_take_the_answer_from_the_others(path: Path) -> None:
    job = SlowAtFirst(status())

    async def one_gives_up() -> JobStatus:
        asking = client(path, deadline=PATIENT)
        impatient, patient = (asyncio.create_task(asking.status()) for _ in range(2))
        await asyncio.to_thread(wait_until, lambda: job.asked, 20.0, "the job was asked")
        impatient.cancel()
        await asyncio.wait([impatient])
        job.may_answer.set()
        return await patient

    with control_socket(path, job):
        assert status() == asyncio.run(one_gives_up())


def test_a_job_that_comes_back_is_found(path: Path) -> None:
    async def ask_before_and_after() -> JobStatus:
        asking = client(path, deadline=PATIENT)
        with pytest.raises(JobUnavailableError):
            await asking.status()
        with control_socket(path, SmallJob(status())):
            return await asking.status()

    assert status() == asyncio.run(ask_before_and_after())


def client(path: Path, *, deadline: timedelta, look_up: timedelta = PATIENT) -> JobClient:
    return JobClient(path, deadline=deadline, look_up_deadline=look_up)


class SlowAtFirst(SmallJob):
    """Its first status stays without answer until it may answer, and then is as it was."""

    def __init__(self, given: JobStatus) -> None:
        super().__init__(given)
        self.asked = 0
        self.may_answer = threading.Event()

    def status(self) -> JobStatus:
        self.asked += 1
        current = self.current
        if self.asked == 1:
            self.may_answer.wait(PATIENT.total_seconds())
        return current


def unavailable(path: Path, verb: Verb | None = None, deadline: timedelta = DEADLINE) -> str:
    """What the client says of a job that does not answer."""

    async def ask() -> None:
        asking = client(path, deadline=deadline)
        await (asking.command(verb, by="ada") if verb else asking.status())

    with pytest.raises(JobUnavailableError) as error:
        asyncio.run(ask())
    return str(error.value)


@contextmanager
def answering(path: Path, answer) -> Iterator[None]:
    """Takes one connection, reads the question, answers as told, and hangs up."""

    def converse(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            answer(connection)

    with hung_job(path) as listener:
        thread = threading.Thread(target=converse, args=[listener], daemon=True)
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
