"""A change of a join under load: the pause that a consumer sees, and lost and repeated results.

python -m bench.change                                       all changes, about 8 minutes
python -m bench.change --rate 200 --warm-up-seconds 15       a short run, about 4 minutes

`state partitions`: from one per core to four. The running job makes the change, as
`POST /v1/query/change` requests it. `engine`: from micro_batch to real_time, in the same way.
`command`: the first change by `streamjoin change`, then `streamjoin run` with the new spec.
Rows stay in state for a minute. The warm-up fills the state.
"""

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path

import yaml
from confluent_kafka import Consumer

from bench.__main__ import exit_code
from bench.latency import Stream
from bench.load import Workload, row_of
from bench.output import new_output
from bench.report import machine
from bench.running import Task
from bench.streamjoin import job_command, join_spec, socket_of
from bench.topics import temporary_topics
from deploy.local.kafka import EmbeddedKafka
from deploy.local.processes import start_child, stop_child
from job.errors import StreamjoinError
from job.installation.java import java_home
from job.protocol.caller import call, running_job
from job.protocol.calls import Change, ChangePlan
from job.protocol.status import JobStatus
from job.spec.engine import Engine
from job.spec.output import Delivery
from job.waiting import wait_until

_DATA = Path(__file__).parents[1] / "data" / "bench-change"
_WORKLOAD = Workload("change", match_window_ms=60_000, watermark_delay_ms=2_000)
# The event time of a record is the time at which it was due.
_AHEAD = "1 second"
_POLL_SECONDS = 0.05
_CHANGE_SECONDS = 120.0
_STOP_SECONDS = 60.0
# Once all expected results have arrived, wait this long for repeated ones.
_SETTLED_SECONDS = 2.0
_STATE_PARTITIONS = "STREAMJOIN_STATE_PARTITIONS"
_PARTITIONS_AFTER = 4 * (os.cpu_count() or 1)


class Arrivals(threading.Thread):
    """Records when the consumer received each result."""

    def __init__(self, consumer: Consumer) -> None:
        super().__init__(daemon=True)
        self._consumer = consumer
        self._ended = threading.Event()
        self.at: list[float] = []
        self.results: Counter[int] = Counter()
        """Number of results by ad."""

    def run(self) -> None:
        while not self._ended.is_set():
            message = self._consumer.poll(_POLL_SECONDS)
            if message is not None and message.error() is None:
                self.at.append(time.monotonic())
                self.results[row_of(message.value() or b"").ad_id] += 1

    def end(self) -> None:
        self._ended.set()
        self.join()

    def longest_gap(self, since: float, until: float) -> float:
        """Longest time without a result, in seconds."""
        times = [since, *(at for at in self.at if since <= at < until), until]
        return max(later - earlier for earlier, later in pairwise(times))


@dataclass
class Job:
    """The job under load, and the spec that it continues with."""

    task: Task
    folder: Path
    _processes: list["subprocess.Popen[bytes]"] = field(default_factory=list)

    @property
    def socket(self) -> Path:
        # The path of a socket must be short; relative to this folder it is.
        return Path(os.path.relpath(socket_of(self.folder)))

    def spec(self, name: str, engine: Engine = Engine.MICRO_BATCH) -> Path:
        """Write a spec whose checkpoint has this name."""
        text = join_spec(self.task, self.folder / name, Delivery.EXACTLY_ONCE, engine)
        document = yaml.safe_load(text)
        for side in ("left", "right"):
            document[side]["max_event_time_ahead"] = _AHEAD
        file = self.folder / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document, sort_keys=False))
        return file

    def start(self, spec: Path) -> None:
        log = self.folder / "log"
        environment = self._environment()
        self._processes.append(start_child(job_command(spec), log=log, environment=environment))

    def stop(self) -> None:
        for process in self._processes:
            stop_child(process, grace_seconds=_STOP_SECONDS)

    def request(self, spec: Path, state_partitions: int | None = None) -> None:
        """Let the running job make the change."""
        text = spec.read_text()
        call(self.socket, ChangePlan(spec=text, state_partitions=state_partitions))
        call(self.socket, Change(by="bench", spec=text, state_partitions=state_partitions))

    def command(self, *arguments: str | Path, state_partitions: int) -> None:
        program = Path(sys.executable).with_name("streamjoin")
        made = subprocess.run(
            [program, *arguments],
            env={**self._environment(), _STATE_PARTITIONS: str(state_partitions)},
            capture_output=True,
            text=True,
            timeout=_CHANGE_SECONDS,
        )
        if made.returncode:
            raise StreamjoinError(f"the change failed: {made.stderr}")

    def wait_for(self, condition: Callable[[JobStatus], object], what: str) -> JobStatus:
        found: list[JobStatus] = []

        def reached() -> bool:
            status = running_job(self.socket)
            if status is None or not condition(status):
                return False
            found.append(status)
            return True

        if not wait_until(reached, _CHANGE_SECONDS, _POLL_SECONDS):
            raise StreamjoinError(f"{what} did not happen: see {self.folder / 'log'}")
        return found[-1]

    def _environment(self) -> dict[str, str]:
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "STREAMJOIN_SOCKET": str(self.socket),
            "STREAMJOIN_NEW_QUERY": "true",
        }
        environment.pop(_STATE_PARTITIONS, None)
        return environment


def change_state_partitions(job: Job, _: Path) -> None:
    new = job.spec("new")
    job.request(new, state_partitions=_PARTITIONS_AFTER)


def change_engine(job: Job, _: Path) -> None:
    job.request(job.spec("new", Engine.REAL_TIME))


def change_by_command(job: Job, old: Path) -> None:
    new = job.spec("new")
    job.command("change", old, new, state_partitions=_PARTITIONS_AFTER)
    job.stop()
    job.start(new)


CHANGES: dict[str, Callable[[Job, Path], None]] = {
    "state partitions": change_state_partitions,
    "engine": change_engine,
    "command": change_by_command,
}


@dataclass(frozen=True)
class Measured:
    pause_seconds: float
    """Longest time without a result, from the beginning of the change."""
    pause_before_seconds: float
    """The same during the second half of the warm-up."""
    records_read_again: int
    expected: int
    lost: int
    repeated: int

    @property
    def correct(self) -> bool:
        return not (self.lost or self.repeated)

    def __str__(self) -> str:
        return (
            f"pause {self.pause_seconds:.1f} s (before the change at most "
            f"{self.pause_before_seconds:.1f} s), {self.records_read_again:,} records read again, "
            f"{self.expected:,} results expected, {self.lost:,} lost, {self.repeated:,} repeated"
        )


def measure(
    change: Callable[[Job, Path], None],
    kafka: EmbeddedKafka,
    folder: Path,
    arguments: argparse.Namespace,
) -> Measured:
    folder.mkdir(parents=True)
    partitions, warm_up = _WORKLOAD.partitions, arguments.warm_up_seconds
    with ExitStack() as opened:
        output = opened.enter_context(new_output(kafka, partitions))
        left, right = f"{output.topic}-left", f"{output.topic}-right"
        opened.enter_context(temporary_topics(kafka, left, right, partitions=partitions))
        task = Task(_WORKLOAD, kafka.bootstrap_servers, left, right, output.topic)
        arrivals = Arrivals(opened.enter_context(output.consumer()))
        job, stream = Job(task, folder), Stream(task, arguments.rate)
        opened.callback(job.stop)
        opened.callback(arrivals.end)
        opened.callback(stream.end)
        old = job.spec("old")
        job.start(old)
        arrivals.start()
        stream.start()
        job.wait_for(lambda status: status.last_batch, "the first batch")
        time.sleep(warm_up)
        began = time.monotonic()
        change(job, old)
        status = job.wait_for(
            lambda status: status.change and status.change.phase == "over", "the end of the replay"
        )
        time.sleep(arguments.rest_seconds)
        stream.end()
        ended = time.monotonic()
        wait_until(lambda: len(arrivals.results) >= stream.pairs, _CHANGE_SECONDS, _POLL_SECONDS)
        time.sleep(_SETTLED_SECONDS)
    assert status.change is not None
    return Measured(
        pause_seconds=arrivals.longest_gap(began, ended),
        pause_before_seconds=arrivals.longest_gap(began - warm_up / 2, began),
        records_read_again=status.change.records,
        expected=stream.pairs,
        lost=stream.pairs - len(arrivals.results),
        repeated=arrivals.results.total() - len(arrivals.results),
    )


def run(kafka: EmbeddedKafka, arguments: argparse.Namespace) -> bool:
    sys.stdout.write(f"{machine()}\n")
    measured = {}
    for name in arguments.changes or CHANGES:
        folder = _DATA / name.replace(" ", "-")
        measured[name] = measure(CHANGES[name], kafka, folder, arguments)
        sys.stdout.write(f"{name}, {arguments.rate:,}/s a side: {measured[name]}\n")
    return all(each.correct for each in measured.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.change", description=__doc__)
    parser.add_argument("--rate", type=int, default=1_000, help="rows per second and side (1,000)")
    parser.add_argument(
        "--change", dest="changes", action="append", choices=CHANGES, help="may be repeated (all)"
    )
    parser.add_argument(
        "--warm-up-seconds", type=float, default=75, help="from the first batch (75)"
    )
    parser.add_argument("--rest-seconds", type=float, default=30, help="after the replay (30)")
    arguments = parser.parse_args()
    shutil.rmtree(_DATA, ignore_errors=True)
    return exit_code(_DATA / "kafka", partial(run, arguments=arguments))


if __name__ == "__main__":
    sys.exit(main())
