"""A running program: it is started on a task, and joins until it is stopped."""

import contextlib
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.load import Workload
from bench.processes import Watch
from deploy.local.kafka import EmbeddedKafka
from deploy.local.processes import last_lines, stop_child
from job.errors import StreamjoinError

# A batch of the backlog takes some seconds; on a busy machine several times that.
_STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Task:
    """The topics to join, and the output topic."""

    workload: Workload
    bootstrap_servers: str
    left_topic: str
    right_topic: str
    output_topic: str
    join_name: str = "bench"
    """Name in the spec of Streamjoin. Jobs that run at the same time have different names."""


@dataclass(frozen=True)
class Program(ABC):
    """A program that can be measured."""

    name: str
    joins: bool = field(default=True, kw_only=True)
    """False: it emits each click unchanged."""
    is_peer: bool = field(default=False, kw_only=True)
    """True: another system. Rows that it drops as late in the uneven workload are a figure."""
    joins_tables: bool = field(default=False, kw_only=True)
    """Whether it can run a workload with a table."""
    commit_interval_seconds: float = field(default=0.0, kw_only=True)
    """The longest time until results are committed after they were written."""

    def prepare(self) -> None:  # noqa: B027  # some have nothing to prepare
        """Fetch and build what is not there yet; no figure contains it."""

    @abstractmethod
    def start(self, task: Task, folder: Path, log: Path) -> subprocess.Popen[bytes]:
        """Start one process, with or without children, that keeps its state in `folder`."""


@dataclass(frozen=True)
class Running:
    started_at: float
    """Seconds since 1970, right before the launch."""
    watch: Watch
    _process: subprocess.Popen[bytes]
    _log: Path

    def check(self) -> None:
        """Raise if the program has ended by itself."""
        if self._process.poll() is not None:
            raise StreamjoinError(
                f"it ended with exit code {self._process.returncode}. {self._log} ends with:\n"
                f"{last_lines(self._log)}"
            )

    def jvm(self) -> psutil.Process:
        for member in self._tree():
            if member.name() == "java":
                return member
        raise StreamjoinError(f"no JVM among the processes of {self._process.pid}")

    def kill(self) -> None:
        """End the whole tree as a crash would: SIGKILL."""
        members = self._tree()
        for member in members:
            with contextlib.suppress(psutil.NoSuchProcess):
                member.kill()
        self._process.wait()
        psutil.wait_procs(members, _STOP_SECONDS)

    def kill_driver(self) -> None:
        """Send SIGKILL to the first process alone. Its JVM ends with it."""
        self._process.kill()
        self._process.wait()

    def _tree(self) -> list[psutil.Process]:
        root = psutil.Process(self._process.pid)
        return [root, *root.children(recursive=True)]


@contextmanager
def running(program: Program, task: Task, kafka: EmbeddedKafka, folder: Path) -> Iterator[Running]:
    """In a folder of an earlier run the program continues from there."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    started_at = time.time()
    process = program.start(task, folder, log)
    try:
        with Watch(process.pid, broker_pid=kafka.pid) as watch:
            yield Running(started_at, watch, process, log)
    finally:
        stop_child(process, grace_seconds=_STOP_SECONDS)
