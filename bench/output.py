"""The topic that a measured program writes to, observed from outside."""

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AdminClient,
    OffsetSpec,
)

from bench.topics import delete_topics, temporary_topics, topic_names
from deploy.local.kafka import EmbeddedKafka
from job.errors import BrokerError

_ANSWER_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
# Reading and checking 1,000,000 records takes 10 s.
_READ_SECONDS = 600.0
_READ_AT_ONCE, _GATHER_SECONDS = 10_000, 0.2


class Record(NamedTuple):
    appended_ms: int
    value: bytes


class Output:
    def __init__(self, topic: str, partitions: int, bootstrap_servers: str) -> None:
        self.topic = topic
        self._partitions = range(partitions)
        self._bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 3})

    def committed(self) -> int:
        """The position of a read_committed consumer at the end; commit markers count as well."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        while True:
            try:
                return sum(self._ends().values())
            except KafkaException as error:
                # A broker learns of a new topic a moment before it leads its partitions.
                if time.monotonic() > deadline:
                    raise BrokerError(f"no offsets of {self.topic}: {error}") from error
            time.sleep(_PAUSE_SECONDS)

    def _ends(self) -> dict[int, int]:
        latest = {
            TopicPartition(self.topic, partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
            for partition in self._partitions
        }
        answers = self._admin.list_offsets(latest, isolation_level=IsolationLevel.READ_COMMITTED)
        return {
            position.partition: answer.result(_ANSWER_SECONDS).offset
            for position, answer in answers.items()
        }

    def records(self) -> Iterator[Record]:
        """All committed records, partition by partition."""
        with self.consumer(report_end=True) as consumer:
            ends, deadline = 0, time.monotonic() + _READ_SECONDS
            while ends < len(self._partitions):
                if time.monotonic() > deadline:
                    raise BrokerError(f"{self.topic} could not be read within {_READ_SECONDS} s")
                for message in consumer.consume(_READ_AT_ONCE, _GATHER_SECONDS):
                    error = message.error()
                    if error is None:
                        yield Record(message.timestamp()[1], message.value() or b"")
                    elif error.code() == KafkaError._PARTITION_EOF:
                        ends += 1

    @contextmanager
    def consumer(self, *, report_end: bool = False, at_end: bool = False) -> Iterator[Consumer]:
        """A read_committed consumer at the topic's beginning, or at its current end."""
        ends = self._ends() if at_end else {}
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap_servers,
                "group.id": "bench",
                "enable.auto.commit": False,
                "enable.partition.eof": report_end,
                "isolation.level": "read_committed",
                "log_level": 3,
            }
        )
        consumer.assign(
            [
                TopicPartition(self.topic, partition, ends.get(partition, OFFSET_BEGINNING))
                for partition in self._partitions
            ]
        )
        try:
            yield consumer
        finally:
            consumer.close()


@contextmanager
def new_output(kafka: EmbeddedKafka, partitions: int) -> Iterator[Output]:
    topic = f"output-{uuid.uuid4().hex[:8]}"
    with temporary_topics(kafka, topic, partitions=partitions, append_time=True):
        yield Output(topic, partitions, kafka.bootstrap_servers)
        # Topics that a program creates for itself have the output's name as a prefix: Kafka
        # Streams' changelogs.
        delete_topics(kafka, [name for name in topic_names(kafka) if name.startswith(f"{topic}-")])
