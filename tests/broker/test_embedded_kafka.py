"""The embedded broker is a real one: it reports its failures and does not outlive its owner."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AdminClient,
    ConfigResource,
    TopicMetadata,
)

from deploy.local.kafka import EmbeddedKafka
from job.errors import BrokerError, TopicError
from tests.brokers import BROKER_OPTIONS
from tests.polling import wait_until
from tests.processes import has_ended

TIMEOUT = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a broker that has run before, for tests of later starts."""
    folder = tmp_path_factory.mktemp("formatted")
    with EmbeddedKafka(folder, jvm_options=BROKER_OPTIONS) as kafka:
        kafka.create_topics({"kept": 2})
    return folder


def test_committed_records_are_read_and_aborted_ones_are_not(kafka: EmbeddedKafka) -> None:
    kafka.create_topics(["transactions"])
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": "transactions"}
    )
    producer.init_transactions(TIMEOUT)

    transact(producer, "transactions", ["kept 1", "kept 2"]).commit_transaction(TIMEOUT)
    transact(producer, "transactions", ["aborted"]).abort_transaction(TIMEOUT)
    transact(producer, "transactions", ["kept 3"]).commit_transaction(TIMEOUT)

    assert ["kept 1", "kept 2", "kept 3"] == committed(kafka, "transactions", count=3)


def test_topics_have_the_requested_settings(kafka: EmbeddedKafka) -> None:
    kafka.create_topics(["compacted"], config={"cleanup.policy": "compact"})

    resource = ConfigResource(ConfigResource.Type.TOPIC, "compacted")
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    settings = admin.describe_configs([resource])[resource].result(TIMEOUT)
    assert "compact" == settings["cleanup.policy"].value


def test_topics_have_the_requested_partitions(kafka: EmbeddedKafka) -> None:
    kafka.create_topics({"three": 3, "five": 5})
    kafka.create_topics(["two", "too"], partitions=2)

    assert {"three": 3, "five": 5, "two": 2, "too": 2} == {
        name: len(topic.partitions)
        for name, topic in topics(kafka).items()
        if name in {"three", "five", "two", "too"}
    }


def test_existing_topic_is_an_error_unless_it_is_accepted(
    kafka: EmbeddedKafka,
) -> None:
    kafka.create_topics(["there"])

    with pytest.raises(TopicError, match=r"cannot create topic there: .* already exists"):
        kafka.create_topics(["there"])
    kafka.create_topics(["there", "new"], exist_ok=True)
    assert {"there", "new"} <= topics(kafka).keys()


def test_topic_nobody_created_does_not_appear(kafka: EmbeddedKafka) -> None:
    AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics("misspelt", TIMEOUT)

    assert "misspelt" not in topics(kafka)


def test_broker_started_again_has_its_port_and_its_records_and_its_death_is_noticed(
    folder: Path,
) -> None:
    with EmbeddedKafka(folder, jvm_options=BROKER_OPTIONS) as kafka:
        address = kafka.bootstrap_servers
        produce(kafka, "kept", ["first"])
        for end, value in ((kafka.stop, "after a stop"), (kafka.kill, "after a kill")):
            end()
            assert not kafka.is_running
            kafka.start()

            assert address == kafka.bootstrap_servers
            assert 2 == len(topics(kafka)["kept"].partitions)
            produce(kafka, "kept", [value])
        assert ["after a kill", "after a stop", "first"] == sorted(
            committed(kafka, "kept", count=3)
        )

        os.kill(kafka.pid, signal.SIGKILL)

        wait_until(lambda: not kafka.is_running, TIMEOUT, "the death is noticed")
        with pytest.raises(BrokerError, match="is not running"):
            _ = kafka.pid
        kafka.stop()
        kafka.stop()


def test_broker_that_cannot_start_shows_the_end_of_its_log(
    kafka: EmbeddedKafka, folder: Path
) -> None:
    # The port is taken by a broker that would answer: it must not be mistaken for the new one.
    taken = int(kafka.bootstrap_servers.rpartition(":")[2])
    unlucky = EmbeddedKafka(folder, port=taken, jvm_options=BROKER_OPTIONS)

    with pytest.raises(BrokerError, match=r"(?s)has ended.*Address already in use"):
        unlucky.start()

    assert not unlucky.is_running
    assert kafka.is_running


def test_broker_that_is_not_ready_in_time_is_given_up_and_ended(folder: Path) -> None:
    slow = EmbeddedKafka(folder, jvm_options=["-Xint"])

    with pytest.raises(BrokerError, match="was not ready in time \\(broker\\)"):
        slow.start(timeout_seconds=0.5)

    assert not slow.is_running


def test_first_start_that_was_cut_off_leaves_nothing_in_the_way_of_the_next(
    tmp_path: Path,
) -> None:
    kafka = EmbeddedKafka(tmp_path, jvm_options=BROKER_OPTIONS)
    with pytest.raises(BrokerError, match="cannot format"):
        kafka.start(timeout_seconds=0.05)

    with kafka:
        assert {"server.properties", "broker.log", "log"} == {
            path.name for path in tmp_path.iterdir()
        }


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_broker_dies_with_a_killed_parent(folder: Path) -> None:
    program = f"""
import pathlib
from deploy.local.kafka import EmbeddedKafka
with EmbeddedKafka(pathlib.Path({str(folder)!r})) as kafka:
    print(kafka.pid, flush=True)
    kafka.wait()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        broker = psutil.Process(int(parent.stdout.readline()))
        assert "java" == broker.name()

        parent.kill()

    wait_until(lambda: has_ended(broker), TIMEOUT, "the broker has ended")


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
def test_broker_in_the_foreground_prints_its_address_and_ends_on_a_signal(
    folder: Path, end: signal.Signals
) -> None:
    address = EmbeddedKafka(folder).bootstrap_servers
    port = address.rpartition(":")[2]
    # As `… &` in a script: the shell starts the program so that it ignores SIGINT.
    in_background = ("sh", "-c", "trap '' INT; exec \"$@\"", "sh")
    command = (sys.executable, "-m", "deploy.local.kafka", "--folder", str(folder), "--port", port)
    with subprocess.Popen(
        [*in_background, *command],
        env={**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"},
        stdout=subprocess.PIPE,
        text=True,
    ) as program:
        assert program.stdout
        assert f"Kafka answers at {address}; Ctrl-C ends it.\n" == program.stdout.readline()

        program.send_signal(end)

        assert 0 == program.wait(TIMEOUT)


def test_records_of_the_console_producer_are_read_by_the_console_consumer(
    kafka: EmbeddedKafka,
) -> None:
    kafka.create_topics(["of_tools"])
    server = ("--bootstrap-server", kafka.bootstrap_servers, "--topic", "of_tools")

    run_tool("console-producer", *server, values="one\ntwo\n")
    options = ("--from-beginning", "--isolation-level", "read_committed", "--max-messages", "2")

    assert "one\ntwo\n" == run_tool("console-consumer", *server, *options)


def run_tool(*words: str, values: str = "") -> str:
    done = subprocess.run(
        [sys.executable, "-m", "deploy.local.kafka_tools", *words],
        input=values,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def transact(producer: Producer, topic: str, values: Iterable[str]) -> Producer:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    # Flushed, so that aborted records really are in the log.
    producer.flush(TIMEOUT)
    return producer


def produce(kafka: EmbeddedKafka, topic: str, values: Iterable[str]) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
    for value in values:
        producer.produce(topic, value)
    assert 0 == producer.flush(TIMEOUT)


def committed(kafka: EmbeddedKafka, topic: str, count: int) -> list[str]:
    """The first `count` values of a topic's records outside of aborted transactions."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": f"reads-{topic}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    values: list[str] = []

    def are_read() -> bool:
        values.extend((message.value() or b"").decode() for message in consumer.consume(timeout=1))
        return len(values) >= count

    wait_until(are_read, TIMEOUT, f"{count} records are read")
    consumer.close()
    return values


def topics(kafka: EmbeddedKafka) -> dict[str, TopicMetadata]:
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    return admin.list_topics(timeout=TIMEOUT).topics
