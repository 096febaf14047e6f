"""A command that calls a job which ends meanwhile."""

import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from job.errors import JobUnavailableError
from job.protocol.caller import call, job_to_end, running_job
from job.protocol.calls import Stop
from job.protocol.control import control_socket
from job.protocol.status import QueryState
from tests.unit.service.builders import SmallJob, status


@pytest.fixture
def ending_job(tmp_path: Path) -> Iterator[Path]:
    """The socket of a job that accepts connections and closes them without an answer."""
    path = tmp_path / "job.sock"
    with closing(socket.socket(socket.AF_UNIX)) as listener:
        listener.bind(str(path))
        listener.listen()

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65_536)

        thread = Thread(target=accept, daemon=True)
        thread.start()
        yield path
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def test_unusable_socket_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / ("long" * 30), tmp_path / "file" / "job.sock"):
        with pytest.raises(JobUnavailableError, match=r"job\.sock|longlong"):
            running_job(path)
    assert running_job(tmp_path / "no.sock") is None


def test_job_that_ends_during_a_call_is_no_running_job(ending_job: Path) -> None:
    assert running_job(ending_job) is None
    with pytest.raises(ConnectionError, match="has ended before it answered"):
        call(ending_job, Stop())


def test_job_whose_query_a_change_has_stopped_is_named_by_its_pid(tmp_path: Path) -> None:
    served, pid = tmp_path / "job.sock", os.getpid()
    stopped = status(QueryState.STOPPED)

    with control_socket(served, SmallJob(stopped)):
        text, other = job_to_end(served, stopped.name), job_to_end(served, "another_join")

    assert (
        f"its job still runs, without a query: end process {pid} (Ctrl-C in its terminal, or "
        f"`kill {pid}`)"
    ) == text
    assert f"end its job if it runs elsewhere: no job of another_join answers on {served}" == other
    gone = job_to_end(served, stopped.name)
    assert f"end its job if it runs elsewhere: no job of {stopped.name} answers on" in gone
