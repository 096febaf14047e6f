"""The processes of the demo: broker, topics, job and service, started in order and stopped in
reverse."""

import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from deploy.demo.joins import DemoJoin
from deploy.demo.load import Side
from deploy.demo.screen import Addresses, step
from deploy.demo.service import Figures, figures, has_read
from deploy.local.kafka import EmbeddedKafka
from deploy.local.ports import HOST
from deploy.local.processes import last_lines, start_child, stop_child
from job.errors import BrokerError, QueryError, SetupError
from job.installation.java import java_home
from job.spec.engine import Engine

RUNS = Path(__file__).parents[2] / "data" / "demo"
PROGRAMS = Path(sys.executable).parent
# The service's default port, then the ports after it.
SERVICE_PORTS = range(8080, 8180)

PARTITIONS = 4
# A demo that runs for days must not fill the disk: this is some hours of its records.
ENDLESS_TOPIC = {"retention.bytes": "67108864", "segment.bytes": "16777216"}
TABLE_TOPIC = {"cleanup.policy": "compact", "segment.bytes": "16777216"}
DRIVER_MEMORY = "1g"

# An idle machine takes 6 s; a shared one several times that.
START_SECONDS = 180.0
# Longer than the job's own grace periods for the running batch and for its JVM.
STOP_SECONDS = 120.0
POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Program:
    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def has_ended(self) -> bool:
        return self.process.poll() is not None


@dataclass(frozen=True)
class System:
    kafka: EmbeddedKafka
    job: Program
    service: Program
    addresses: Addresses

    def figures(self) -> Figures | None:
        """The current figures. None: the service does not answer.

        Raises BrokerError or QueryError if the demo cannot continue.
        """
        if not self.kafka.is_running:
            raise BrokerError(f"the Kafka broker has ended. {_end_of(self.kafka.log)}")
        for program in (self.job, self.service):
            if program.has_ended:
                code = program.process.returncode
                reason = f"the {program.name} has ended with exit code {code}"
                raise QueryError(f"{reason}. {_end_of(program.log)}", retryable=False)
        now = figures(self.addresses.service)
        if now is not None and now.query.state == "FAILED":
            failure = now.query.last_failure
            reason = f"the query has FAILED: {failure.message if failure else 'no reason given'}"
            raise QueryError(f"{reason}\n{_end_of(self.job.log)}", retryable=False)
        return now

    def has_read(self, ends: Mapping[tuple[Side, int], int]) -> bool:
        """Whether the job has read each partition up to this offset."""
        return has_read(self.addresses.service, ends)


def start_system(
    running: ExitStack, console: Console, join: DemoJoin, engine: Engine, *, is_endless: bool
) -> System:
    """Start all processes and wait until the query is RUNNING; `running` stops them."""
    folder = running.enter_context(run_folder(RUNS))
    kafka = running.enter_context(_broker(folder / "kafka", console))
    names = [*join.topics.values(), join.output_topic]
    with step(console, f"topics {', '.join(names)}"):
        tables = [] if join.table is None else [join.topics[join.table]]
        streams = [name for name in names if name not in tables]
        config = ENDLESS_TOPIC if is_endless else None
        kafka.create_topics(streams, partitions=PARTITIONS, config=config)
        if tables:
            kafka.create_topics(tables, partitions=PARTITIONS, config=TABLE_TOPIC)
    environment = _environment(kafka.bootstrap_servers, folder)
    job = running.enter_context(
        _program(
            "job",
            ["streamjoin", "run", spec_file(folder, join, engine)],
            folder,
            environment,
            console,
        )
    )
    service, url = _started_service(running, folder, environment, console)
    system = System(kafka, job, service, Addresses(url, kafka.bootstrap_servers, str(folder)))
    with step(console, "job and service, until the query is running"):
        _wait_until(lambda: _is_running(system.figures()), "the query was not running", job.log)
    return system


def engine_note(join: DemoJoin, engine: Engine) -> str:
    """The engine of the run, and the command for the other one."""
    if engine is Engine.MICRO_BATCH:
        return (
            "Engine micro_batch, the default. For results within milliseconds instead of a second: "
            f"{join.command} ENGINE=real_time"
        )
    return (
        "Engine real_time: results within milliseconds (docs/real-time.md). The default engine, "
        f"micro_batch: {join.command}"
    )


def spec_file(folder: Path, join: DemoJoin, engine: Engine) -> Path:
    """The demo's spec, with the changes that the engine needs."""
    if engine is Engine.MICRO_BATCH:
        return join.spec
    text = join.spec.read_text(encoding="utf-8")
    spec = folder / join.spec.name
    settings = "real_time: {checkpoint_interval: 5s}"
    spec.write_text(f"{text.rstrip()}\nengine: {engine}\n{settings}\n", encoding="utf-8")
    return spec


@contextmanager
def run_folder(runs: Path) -> Iterator[Path]:
    """Create a folder for one run, and remove those of ended runs. The folder is kept afterwards
    for its logs.

    A run holds a lock in its folder until it ends, for any reason.
    """
    runs.mkdir(parents=True, exist_ok=True)
    with _one_at_a_time(runs):
        for old in runs.glob("run-*"):
            _remove_if_ended(old)
        folder = Path(tempfile.mkdtemp(prefix="run-", dir=runs))
        lock = (folder / "lock").open("w")
        fcntl.flock(lock, fcntl.LOCK_EX)
    with lock:
        yield Path(os.path.relpath(folder))  # short: the path of a socket has at most 107 bytes


@contextmanager
def _one_at_a_time(runs: Path) -> Iterator[None]:
    """Serialize two runs that start at the same time."""
    with (runs / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove_if_ended(folder: Path) -> None:
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _broker(folder: Path, console: Console) -> Iterator[EmbeddedKafka]:
    kafka = EmbeddedKafka(folder)
    with step(console, "Kafka broker"):
        kafka.start()
    try:
        yield kafka
    finally:
        with step(console, "Kafka broker stopped"):
            kafka.stop()


@contextmanager
def _program(
    name: str,
    command: list[str | Path],
    folder: Path,
    environment: Mapping[str, str],
    console: Console,
) -> Iterator[Program]:
    log = folder / f"{name}.log"
    process = start_child([PROGRAMS / command[0], *command[1:]], log=log, environment=environment)
    try:
        yield Program(name, process, log)
    finally:
        with step(console, f"{name} stopped"):
            stop_child(process, grace_seconds=STOP_SECONDS)


def _environment(bootstrap_servers: str, folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "JAVA_HOME": str(java_home()),
        "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
        "DEMO_CHECKPOINT": str(folder / "checkpoint"),
        "STREAMJOIN_SOCKET": str(folder / "job.sock"),
        "STREAMJOIN_DRIVER_MEMORY": DRIVER_MEMORY,
    }


def _started_service(
    running: ExitStack, folder: Path, environment: Mapping[str, str], console: Console
) -> tuple[Program, str]:
    """Start the service and wait until it listens, so that no other run takes its port. Returns the
    service and its address."""
    with _one_at_a_time(RUNS):
        port = _free_port()
        there = {"STREAMJOIN_HOST": HOST, "STREAMJOIN_PORT": str(port)}
        service = running.enter_context(
            _program("service", ["streamjoin-service"], folder, {**environment, **there}, console)
        )
        _wait_until(
            lambda: service.has_ended or not _is_free(port), "nothing listened", service.log
        )
    return service, f"http://{HOST}:{port}"


def _free_port() -> int:
    for port in SERVICE_PORTS:
        if _is_free(port):
            return port
    raise SetupError(
        f"no port is free for the service between {SERVICE_PORTS.start} and {SERVICE_PORTS.stop}"
    )


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((HOST, port)) != 0


def _is_running(now: Figures | None) -> bool:
    return now is not None and now.query.state == "RUNNING"


def _wait_until(condition: Callable[[], bool], otherwise: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            reason = f"{otherwise} after {START_SECONDS:.0f} s"
            raise QueryError(f"{reason}. {_end_of(log)}", retryable=False)
        time.sleep(POLL_SECONDS)


def _end_of(log: Path) -> str:
    return f"{log} ends with:\n{last_lines(log)}"
