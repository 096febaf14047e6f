"""Produces and consumes records with Kafka's own client."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec

from deploy.local.kafka import EmbeddedKafka
from job.dead_letters.headers import DeadLetter, dead_letter

READ_SECONDS = 30.0


@dataclass(frozen=True)
class Sent:
    """One record to produce."""

    value: Any
    """Text and bytes are sent unchanged, None is a tombstone, anything else is sent as JSON."""
    key: str | bytes | None = None
    headers: Mapping[str, str | bytes] | None = None

    @property
    def payload(self) -> bytes | None:
        if self.value is None or isinstance(self.value, bytes):
            return self.value
        text = self.value if isinstance(self.value, str) else json.dumps(self.value)
        return text.encode()


@dataclass(frozen=True)
class Received:
    key: Any
    """Text, or the decoded key."""
    value: dict[str, Any]
    headers: Mapping[str, str | None]
    timestamp_ms: int
    partition: int

    @property
    def result_id(self) -> str:
        identity = self.headers["streamjoin-id"]
        assert identity is not None
        return identity


def add_partitions(bootstrap_servers: str, *topics: str, total: int) -> None:
    """Each of the topics then has so many."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    new = [NewPartitions(topic, total) for topic in topics]
    for added in client.create_partitions(new).values():
        added.result(READ_SECONDS)


def produce(bootstrap_servers: str, topic: str, records: Iterable[Any]) -> None:
    """Write `records` (Sent, or plain JSON values) and wait until the broker has stored all of
    them."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "log_level": 0,
            "max.in.flight.requests.per.connection": 1,  # keeps the order if a request is repeated
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    failed: list[Any] = []
    for record in records:
        sent = record if isinstance(record, Sent) else Sent(record)
        producer.produce(
            topic,
            sent.payload,
            key=sent.key,
            headers=dict(sent.headers or {}),
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert 0 == producer.flush(READ_SECONDS)
    assert [] == failed


def consume_all(
    bootstrap_servers: str,
    topic: str,
    decoded: Callable[[bytes], Any] = json.loads,
    decoded_key: Callable[[bytes], Any] = bytes.decode,
) -> list[Received]:
    """Every committed record of `topic`, from the beginning to the current end."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reads-all",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        partitions = consumer.list_topics(topic, READ_SECONDS).topics[topic].partitions
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        received, ended = [], 0
        while ended < len(partitions):
            message = consumer.poll(READ_SECONDS)
            assert message is not None, f"no end of {topic} within {READ_SECONDS} s"
            if message.error():
                ended += 1
            else:
                received.append(_received(message, decoded, decoded_key))
    finally:
        consumer.close()
    return received


def dead_letters(kafka: EmbeddedKafka, topic: str) -> list[DeadLetter]:
    """Every committed record of a topic with one partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "group.id": "reads-dead",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    letters = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        while True:
            message = consumer.poll(READ_SECONDS)
            assert message is not None
            if message.error():
                return letters
            letter = dead_letter(
                f"{topic}/0/{message.offset()}",
                message.key(),
                message.value(),
                message.headers() or [],
            )
            if letter is not None:  # otherwise the marker of a replay
                letters.append(letter)
    finally:
        consumer.close()


def count_all(bootstrap_servers: str, topic: str) -> int:
    """The number of records in `topic`, without reading them."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    partitions = admin.list_topics(topic, READ_SECONDS).topics[topic].partitions
    ends = admin.list_offsets(
        {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
    )
    return sum(end.result(READ_SECONDS).offset for end in ends.values())


def _received(
    message: Message, decoded: Callable[[bytes], Any], decoded_key: Callable[[bytes], Any]
) -> Received:
    key, value = message.key(), message.value()
    headers = {
        name: None if content is None else content.decode()
        for name, content in message.headers() or ()
    }
    return Received(
        key=decoded_key(key) if key is not None else None,
        value=decoded(value),
        headers=headers,
        timestamp_ms=message.timestamp()[1],
        partition=message.partition(),
    )
