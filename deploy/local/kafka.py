"""A real single-node Kafka broker as a child process: for `make run`, the tests and the benchmark.
Independent of the join.

In the foreground, until Ctrl-C:

    python -m deploy.local.kafka --port 9092

Its folder contains broker.log, server.properties and, in log/, the data.
"""

import argparse
import base64
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AdminClient,
    ClusterMetadata,
    NewTopic,
)

from deploy.local.ports import HOST, free_ports
from deploy.local.processes import last_lines, start_child, stop_child
from job.errors import BrokerError, StreamjoinError, TopicError
from job.installation.jars import jar_folder
from job.installation.java import java_home

DATA_FOLDER = Path(__file__).parents[2] / "data" / "kafka"
LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
# Below the ephemeral ports of Linux (32768 and up): from there, a client that retries a stopped
# broker can take the broker's port, or connect to itself.
PORTS = range(20_000, 25_000)
CONTROLLER_PORTS = range(25_000, 30_000)

# Enough for tests and the demo next to Spark on a small machine. A benchmark sets its own.
JVM_OPTIONS = ("-Xms256m", "-Xmx512m", "-XX:+UseSerialGC")

# The start takes 1.5 s (2 s the first time) on 2 idle cores; shared continuous-integration machines
# are several times slower.
START_SECONDS = 60.0
# A clean stop takes 0.3 s. Kafka recovers from an unclean one, so waiting longer gains little.
STOP_SECONDS = 20.0
TOPIC_SECONDS = 30.0
# Timeout of one request to a broker that may not be up yet.
ANSWER_SECONDS = 0.5
PAUSE_SECONDS = 0.05


class EmbeddedKafka:
    """The broker. `with EmbeddedKafka(folder) as kafka:` starts and stops it.

    It keeps its data in the folder and its port in this object: after a stop or a kill it can start
    again, and clients find it with the same topics at the same address.
    """

    def __init__(
        self,
        folder: Path = DATA_FOLDER,
        *,
        port: int | None = None,
        jvm_options: Sequence[str] = JVM_OPTIONS,
        listeners: Mapping[str, str] | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        """`listeners`: protocol of each further listener, by name; `settings`: of the broker."""
        self._folder = folder.resolve()
        self._listeners = dict(listeners or {})
        free, *others = free_ports(PORTS, 1 + len(self._listeners))
        self._ports = dict(zip(self._listeners, others, strict=True))
        self._more_settings = dict(settings or {})
        self._port = port or free
        [self._controller_port] = free_ports(CONTROLLER_PORTS, 1)
        self._jvm_options = tuple(jvm_options)
        self._child: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self, timeout_seconds: float = START_SECONDS) -> None:
        """Start the broker and return once it answers clients; does nothing if it runs."""
        if self.is_running:
            return
        deadline = time.monotonic() + timeout_seconds
        self._prepare_folder(deadline)
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        self._child = start_child(self._java("kafka.Kafka", self._settings), log=self.log)
        try:
            self._wait_until_ready(deadline)
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Let the broker close its logs and end. Harmless if it has ended already."""
        if self._child:
            stop_child(self._child, grace_seconds=STOP_SECONDS)

    def kill(self) -> None:
        """End the broker as a crash would: SIGKILL."""
        if self._child:
            self._child.kill()
            self._child.wait()

    def wait(self) -> int:
        """Block until the broker ends; returns its exit code."""
        return self._running_child().wait()

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self._port}"

    def servers_of(self, listener: str) -> str:
        """The bootstrap servers of a further listener."""
        return f"{HOST}:{self._ports[listener]}"

    @property
    def is_running(self) -> bool:
        return self._child is not None and self._child.poll() is None

    @property
    def pid(self) -> int:
        return self._running_child().pid

    @property
    def log(self) -> Path:
        return self._folder / "broker.log"

    def create_topics(
        self,
        topics: Mapping[str, int] | Iterable[str],
        *,
        partitions: int = 1,
        config: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> None:
        """Create topics and return once clients can use them: {name: partitions}, or names."""
        wanted = dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, partitions)
        deadline = time.monotonic() + TOPIC_SECONDS
        new = [
            NewTopic(name, count, replication_factor=1, config=dict(config or {}))
            for name, count in wanted.items()
        ]
        admin = _admin(self.bootstrap_servers)
        for name, created in admin.create_topics(new, request_timeout=TOPIC_SECONDS).items():
            try:
                created.result(TOPIC_SECONDS)
            except KafkaException as error:
                if exist_ok and error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                    continue
                raise TopicError(f"cannot create topic {name}: {error.args[0].str()}") from error
        # The controller has created them; the broker applies that a moment later.
        self._query_until(lambda cluster: _has_leaders(cluster, wanted), deadline, what="topics")

    def _running_child(self) -> subprocess.Popen[bytes]:
        if self._child is None or self._child.poll() is not None:
            raise BrokerError(f"the Kafka broker in {self._folder} is not running")
        return self._child

    # Starting

    @property
    def _settings(self) -> Path:
        return self._folder / "server.properties"

    @property
    def _data(self) -> Path:
        return self._folder / "log"

    def _prepare_folder(self, deadline: float) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if not self._data.exists():
            # Created under another name and renamed: an interrupted start leaves no incomplete
            # data.
            with TemporaryDirectory(dir=self._folder, prefix="new-") as unfinished:
                self._format(Path(unfinished), deadline).rename(self._data)
        self._write_settings(self._settings, data=self._data)

    def _format(self, folder: Path, deadline: float) -> Path:
        """Format the data folder with Kafka's own tool, which enables the features of its release.
        Without them the broker starts too, but with an old version of transactions. It takes 0.6 s,
        once."""
        data, settings = folder / "log", folder / "server.properties"
        self._write_settings(settings, data=data)
        try:
            subprocess.run(
                self._java("kafka.tools.StorageTool", "format", "-t", _new_id(), "-c", settings),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=deadline - time.monotonic(),
                check=True,
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            output = (error.stdout or b"").decode(errors="replace")
            raise BrokerError(f"cannot format {self._data} for Kafka: {error}\n{output}") from error
        return data

    def _java(self, main_class: str, *arguments: str | Path) -> list[str | Path]:
        return [
            java_home() / "bin" / "java",
            *self._jvm_options,
            f"-Dlog4j2.configurationFile={LOG_SETTINGS}",
            "-cp",
            jar_folder("kafka") / "*",
            main_class,
            *arguments,
        ]

    def _write_settings(self, file: Path, *, data: Path) -> None:
        settings = _broker_settings(data, self._port, self._controller_port)
        for name, protocol in self._listeners.items():
            for setting in ("listeners", "advertised.listeners"):
                settings[setting] = f"{settings[setting]},{name}://{self.servers_of(name)}"
            settings["listener.security.protocol.map"] = (
                f"{settings['listener.security.protocol.map']},{name}:{protocol}"
            )
        settings |= self._more_settings
        lines = [f"{name}={_escaped(value)}\n" for name, value in settings.items()]
        # Escapes of a Java properties file.
        file.write_text("".join(lines), encoding="latin-1", errors="backslashreplace")

    # Requests

    def _wait_until_ready(self, deadline: float) -> None:
        # Another broker may hold the port, and would answer while ours is about to fail.
        ours = _cluster_id(self._data)
        self._query_until(
            lambda cluster: cluster.cluster_id == ours and len(cluster.brokers) == 1,
            deadline,
            what="broker",
        )

    def _query_until(
        self, condition: Callable[[ClusterMetadata], bool], deadline: float, *, what: str
    ) -> None:
        """Poll the broker's metadata until `condition` is true.

        Raises BrokerError if the broker ends, or at the deadline.
        """
        admin = _admin(self.bootstrap_servers)
        while time.monotonic() < deadline:
            if not self.is_running:
                raise BrokerError(self._report("has ended"))
            try:
                if condition(admin.list_topics(timeout=ANSWER_SECONDS)):
                    return
            except KafkaException:
                pass  # not up yet
            time.sleep(PAUSE_SECONDS)
        raise BrokerError(
            self._report(f"was not ready in time ({what}); retry if the machine is busy")
        )

    def _report(self, trouble: str) -> str:
        end = last_lines(self.log, start=self._log_start)
        return (
            f"the Kafka broker at {self.bootstrap_servers} {trouble}. {self.log} ends with:\n{end}"
        )


def _broker_settings(data: Path, port: int, controller_port: int) -> dict[str, object]:
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "listeners": f"CLIENTS://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"CLIENTS://{HOST}:{port}",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENTS",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": data,
        # A misspelt topic is an error here, as in production.
        "auto.create.topics.enable": "false",
        # The defaults need three brokers and 50 partitions: one broker would never create them, and
        # transactions and groups would wait indefinitely.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 4,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "transaction.state.log.num.partitions": 4,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "share.coordinator.state.topic.num.partitions": 1,
        # After a crash the controller waits until the old broker's session ends before it admits
        # the new one: 10 s with the defaults of 9 s and 2 s.
        "broker.session.timeout.ms": 3_000,
        "broker.heartbeat.interval.ms": 500,
        # No other member joins a group.
        "group.initial.rebalance.delay.ms": 0,
        # Sample records carry their event time, which may be long ago: retention by age would
        # delete them.
        "log.retention.ms": -1,
        # The default takes 128 MB, half of the heap.
        "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
    }


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\")


def _admin(bootstrap_servers: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": bootstrap_servers,
            # The client connects while the broker starts: refused connections are expected and soon
            # over.
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "log_level": 0,
        }
    )


def _has_leaders(cluster: ClusterMetadata, wanted: Mapping[str, int]) -> bool:
    """Whether a broker leads each partition of each topic."""
    led = {
        name: sum(partition.leader >= 0 for partition in topic.partitions.values())
        for name, topic in cluster.topics.items()
    }
    return all(led.get(name, 0) >= count for name, count in wanted.items())


def _cluster_id(data: Path) -> str:
    lines = (data / "meta.properties").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)["cluster.id"]


def _new_id() -> str:
    """An id in Kafka's format: 16 bytes in 22 characters."""
    # Kafka's tools parse an id that begins with - as an option; one that begins with T is safe.
    return base64.urlsafe_b64encode(b"M" + uuid.uuid4().bytes[1:]).decode().rstrip("=")


def main() -> int:
    parser = argparse.ArgumentParser(description="Run a single-node Kafka broker until Ctrl-C.")
    parser.add_argument("--port", type=int, default=9092, help="default: 9092")
    parser.add_argument("--folder", type=Path, default=DATA_FOLDER, help="default: data/kafka")
    arguments = parser.parse_args()
    # SIGTERM ends the same way as Ctrl-C. A shell without job control starts a program with `&` so
    # that it ignores SIGINT.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.default_int_handler)
    try:
        with EmbeddedKafka(arguments.folder, port=arguments.port) as kafka:
            print(f"Kafka answers at {kafka.bootstrap_servers}; Ctrl-C ends it.", flush=True)
            exit_code = kafka.wait()
    except KeyboardInterrupt:
        return 0
    except StreamjoinError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"Kafka ended by itself with {exit_code}: see {kafka.log}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
