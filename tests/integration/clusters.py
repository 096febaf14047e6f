"""A real Spark standalone cluster: a master and workers, processes with their own folders."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from deploy.local.processes import last_lines, start_child, stop_child
from job.installation.java import java_home
from tests import processes
from tests.brokers import SHORT_LIVED
from tests.integration.jobs import START_SECONDS, STOP_SECONDS
from tests.polling import wait_until

SPARK_CLASS = Path(sys.executable).with_name("spark-class")
HOST = "127.0.0.1"
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_UP = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED = re.compile("Successfully registered with master")


class Cluster:
    """`with Cluster(folder) as cluster:` starts the master; workers are added."""

    def __init__(self, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        """`environment`: additional variables of the executors."""
        self.folder = folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self._more = dict(environment or {})
        self._children: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        log = self.folder / "master.log"
        master = self._start("master.Master", ["--port", "0"], log, self.folder)
        self.url = self._wait_for(master, log, _UP).group(1)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for child in reversed(self._children):
            stop_child(child, grace_seconds=STOP_SECONDS)

    def have_workers(self, count: int, cores: int = 1) -> None:
        """Start the missing workers, each with so many cores; returns when they are registered."""
        alive = sum(child.poll() is None for child in self._children) - 1  # the master
        started = [self._start_worker(cores) for _ in range(count - alive)]
        for child, log in started:
            self._wait_for(child, log, _REGISTERED)

    def executors(self) -> list[psutil.Process]:
        """The JVMs that the workers have started."""
        alive = [child.pid for child in self._children if child.poll() is None]
        started = [process for pid in alive for process in processes.tree(pid)]
        return [process for process in started if _EXECUTOR in processes.command_line(process)]

    def kill_worker(self, executor: psutil.Process) -> None:
        """Kill the worker of the executor with all its processes."""
        [worker] = [
            parent for parent in executor.parents() if _WORKER in processes.command_line(parent)
        ]
        killed = processes.tree(worker.pid)
        # The worker first: it replaces an executor that ends.
        processes.signal_all(killed, signal.SIGKILL)
        wait_until(
            lambda: all(map(processes.has_ended, killed)), STOP_SECONDS, "the worker has ended"
        )

    def wait_for_executors(self, count: int) -> None:
        """Wait until this many executors are registered."""
        parts = "Successfully registered with driver"
        wait_until(
            lambda: count == sum(parts in stderr(executor) for executor in self.executors()),
            START_SECONDS,
            f"{count} executors take part",
        )

    def _start_worker(self, cores: int) -> "tuple[subprocess.Popen[bytes], Path]":
        name = f"worker-{len(self._children)}"
        folder = self.folder / name
        folder.mkdir()
        log = self.folder / f"{name}.log"
        options = ["--cores", str(cores), "--memory", "1g", "--work-dir", str(folder / "work")]
        return self._start("worker.Worker", [*options, self.url], log, folder / "scratch"), log

    def _start(
        self, name: str, options: list[str], log: Path, scratch: Path
    ) -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,  # spark-class finds Spark by it
            "JDK_JAVA_OPTIONS": " ".join(SHORT_LIVED),
            "SPARK_LOCAL_DIRS": str(scratch),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            **self._more,
        }
        place = ["--host", HOST, "--webui-port", "0"]
        command = [SPARK_CLASS, f"org.apache.spark.deploy.{name}", *place, *options]
        child = start_child([str(word) for word in command], log=log, environment=environment)
        self._children.append(child)
        return child

    def _wait_for(
        self, child: "subprocess.Popen[bytes]", log: Path, line: re.Pattern[str]
    ) -> re.Match[str]:
        def found() -> re.Match[str] | None:
            assert child.poll() is None, last_lines(log)
            return line.search(log.read_text())

        return wait_until(found, START_SECONDS, f"{log.stem} contains {line.pattern}")


def stderr(executor: psutil.Process) -> str:
    """The log of an executor; it is in the executor's own working folder."""
    try:
        return (Path(executor.cwd()) / "stderr").read_text()
    except (psutil.NoSuchProcess, FileNotFoundError):  # the executor has ended, or has not started
        return ""
