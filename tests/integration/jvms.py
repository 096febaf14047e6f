"""A JVM that the jobs of a worker use one after another: its start costs most of a short job's CPU
time."""

import subprocess
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Self

import pytest

from job.plan.tuning import CONF, DRIVER_OPTIONS
from job.settings import JobSettings
from job.spark.session import _command
from tests import processes

PATCH = Path(__file__).with_name("shared_jvm")
_END_SECONDS = 60.0


class SharedJvm:
    """Starts with the first job that needs it, and again after `discard`.

    A job on it runs as a user runs it, up to the JVM: a separate process, a separate Spark
    session. Tests start a separate JVM if they kill the driver alone, inspect or freeze the JVM, or
    run two jobs at a time.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def environment(self, base: dict[str, str]) -> dict[str, str]:
        """Of a job on this JVM, which is started with `base` if it does not run."""
        if self._process is None or self._process.poll() is not None:
            self._start(base)
        return {
            **base,
            "PYTHONPATH": f"{PATCH}:{base.get('PYTHONPATH', '')}",
            "STREAMJOIN_TEST_JVM": str(self._folder),
        }

    def _start(self, environment: dict[str, str]) -> None:
        self.discard()  # what is left of a killed one
        connection = self._folder / "connection"
        connection.unlink(missing_ok=True)
        settings = JobSettings(driver_memory=environment["STREAMJOIN_DRIVER_MEMORY"])
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                _command(settings, CONF[DRIVER_OPTIONS]),
                env={
                    **environment,
                    "_PYSPARK_DRIVER_CONN_INFO_PATH": str(connection),
                    "SPARK_CONNECT_MODE": "0",
                },
                stdin=subprocess.PIPE,  # the JVM ends when this pipe breaks
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (self._folder / "pid").write_text(str(self._process.pid))

    @property
    def log(self) -> Path:
        return self._folder / "log"

    @property
    def tree(self) -> list[processes.psutil.Process]:
        """The JVM and its children."""
        assert self._process is not None
        return processes.tree(self._process.pid)

    def discard(self) -> None:
        """End the JVM: the next job starts another."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None


@cache
def _of_this_process() -> SharedJvm:
    return SharedJvm(Path(tempfile.mkdtemp(prefix="sj-jvm-")))


@pytest.fixture(scope="session")
def jvm() -> Iterator[SharedJvm]:
    """For the jobs of a worker that run one after another; see CONTRIBUTING.md. The conftest.py
    of each folder with jobs imports it: it is the same JVM in all of them."""
    with _of_this_process() as shared:
        yield shared
