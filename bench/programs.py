"""The programs that can be measured: each starts on a task and joins until it is told to end."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bench.load import Workload
from bench.processes import Watch
from deploy.local.java import java_home
from deploy.local.kafka import EmbeddedKafka
from deploy.local.processes import last_lines, start_child, stop_child
from job.errors import StreamjoinError
from job.spec import Delivery

# A batch of the backlog takes some seconds; a busy machine several times that.
_STOP_SECONDS = 60.0


@dataclass(frozen=True)
class Task:
    """What to join, from where to where."""

    workload: Workload
    bootstrap_servers: str
    left_topic: str
    right_topic: str
    output_topic: str


class Program(Protocol):
    @property
    def name(self) -> str: ...

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
        """Raise where the program has ended by itself."""
        if self._process.poll() is not None:
            raise StreamjoinError(
                f"it ended with exit code {self._process.returncode}. {self._log} ends with:\n"
                f"{last_lines(self._log)}"
            )


@contextmanager
def running(program: Program, task: Task, kafka: EmbeddedKafka, folder: Path) -> Iterator[Running]:
    folder.mkdir(parents=True)
    log = folder / "log"
    started_at = time.time()
    process = program.start(task, folder, log)
    try:
        with Watch(process.pid, broker_pid=kafka.pid) as watch:
            yield Running(started_at, watch, process, log)
    finally:
        stop_child(process, grace_seconds=_STOP_SECONDS)


@dataclass(frozen=True)
class Streamjoin:
    """This project's job, with the settings it has when nobody sets any."""

    name: str
    delivery: Delivery

    def start(self, task: Task, folder: Path, log: Path) -> subprocess.Popen[bytes]:
        spec = folder / "spec.yaml"
        spec.write_text(join_spec(task, folder / "checkpoint", self.delivery))
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            # A socket's path has to be short; from here it is.
            "STREAMJOIN_SOCKET": os.path.relpath(folder / "socket"),
        }
        command = Path(sys.executable).with_name("streamjoin")
        return start_child([command, "run", spec], log=log, environment=environment)


PROGRAMS: dict[str, Program] = {
    program.name: program
    for program in [
        Streamjoin("streamjoin", Delivery.EXACTLY_ONCE),
        Streamjoin("streamjoin-at-least-once", Delivery.AT_LEAST_ONCE),
    ]
}


def join_spec(task: Task, checkpoint: Path, delivery: Delivery) -> str:
    delay = f"{task.workload.watermark_delay_ms} milliseconds"
    return f"""\
name: bench
kafka:
  bootstrap_servers: {task.bootstrap_servers}
left:
  topic: {task.left_topic}
  schema: ad_id BIGINT, shown_at TIMESTAMP, campaign STRING, cost DOUBLE
  key: [ad_id]
  event_time: shown_at
  watermark_delay: {delay}
right:
  topic: {task.right_topic}
  schema: ad_id BIGINT, clicked_at TIMESTAMP, user STRING
  key: [ad_id]
  event_time: clicked_at
  watermark_delay: {delay}
join:
  type: inner
  match_window: {{before: 0 seconds, after: {task.workload.match_window_ms} milliseconds}}
output:
  topic: {task.output_topic}
  key: ad_id
  columns:
    ad_id: left.ad_id
    campaign: left.campaign
    user: right.user
    shown_at: left.shown_at
    clicked_at: right.clicked_at
  delivery: {delivery}
checkpoint: {checkpoint}
on_bad_record: drop
"""
