"""A command that calls a job which ends meanwhile."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest

from job.errors import JobUnavailableError
from job.protocol.caller import call, running_job
from job.protocol.calls import Stop


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
