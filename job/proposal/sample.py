"""The newest records of a topic."""

import time
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from job.errors import BrokerError, TopicError
from job.kafka.clients import (
    ANSWER_SECONDS,
    admin,
    consumer,
    headers_of,
    no_broker,
    poll,
)
from job.kafka.security import KafkaAccess, librdkafka_settings
from job.kafka.topic_settings import is_known_to_be_compacted
from job.semantics.input_records import InputRecord, header_texts
from job.semantics.rows import MICROS_PER_MS

RECORDS_MAX = 1_000
"""Records of a sample. Each partition has the same share."""

_RATE_RECORDS_MIN = 20
_RATE_SECONDS_MIN = 10
"""Shorter samples do not show the rate of a topic."""
_MICROS = 1_000_000
_WRITTEN_BY_JOINS = (".commits", ".dead")
"""Ends of the names of commit topics and, as `init` proposes them, of dead-letter topics."""
_READ_SECONDS = 30.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Sample:
    topic: str
    records: list[InputRecord]
    """In the order of the offsets, one partition after another."""
    keys: list[bytes | None]
    """The key of each record."""
    is_compacted: bool = False
    """Whether the topic is compacted, as far as the user may read its settings."""

    @property
    def rate(self) -> float | None:
        """Records per second, by the timestamps. None: the sample is too short for one."""
        by_partition: dict[int, list[int]] = {}
        for record in self.records:
            by_partition.setdefault(record.partition, []).append(record.timestamp_us or 0)
        found = [
            (len(times) - 1) / (max(times) - min(times)) * _MICROS
            for times in by_partition.values()
            if max(times) - min(times) >= _RATE_SECONDS_MIN * _MICROS
        ]
        is_long = len(self.records) >= _RATE_RECORDS_MIN and len(found) == len(by_partition)
        return sum(found) if is_long else None


def topic_names(access: KafkaAccess) -> tuple[list[str], list[str]]:
    """The topics that this user sees, without Kafka's internal ones, sorted; and those whose names
    are those of topics that a join writes besides its results. Raises BrokerError."""
    client = admin(librdkafka_settings(access))
    try:
        topics = client.list_topics(timeout=ANSWER_SECONDS).topics
    except KafkaException as error:
        raise no_broker(access, error) from error
    names = sorted(name for name in topics if not name.startswith("__"))
    written = [name for name in names if name.endswith(_WRITTEN_BY_JOINS)]
    return [name for name in names if name not in written], written


def sample_of(topic: str, access: KafkaAccess, records_max: int = RECORDS_MAX) -> Sample:
    """The newest committed records of `topic`, at most `records_max`, and one of each partition.

    Raises TopicError if the topic is missing or empty, BrokerError if no broker answers.
    """
    settings = librdkafka_settings(access)
    try:
        with closing(consumer(settings, "streamjoin-init")) as client:
            metadata = client.list_topics(topic, ANSWER_SECONDS).topics[topic]
            if metadata.error is not None:
                raise TopicError(f"topic {topic} cannot be read: {metadata.error.str()}")
            numbers = sorted(metadata.partitions)
            share = max(1, records_max // len(numbers))
            read = [each for number in numbers for each in _newest(client, topic, number, share)]
    except KafkaException as error:
        raise no_broker(access, error) from error
    if not read:
        raise TopicError(
            f"topic {topic} has no records, and columns are proposed from records: write some, or "
            "write the spec by hand (`streamjoin schema` describes its fields)"
        )
    records, keys = [record for record, _ in read], [key for _, key in read]
    return Sample(topic, records, keys, is_known_to_be_compacted(admin(settings), topic))


def _newest(
    client: Consumer, topic: str, partition: int, count: int
) -> list[tuple[InputRecord, bytes | None]]:
    """Up to `count` records before the present end of the partition, each with its key."""
    place = TopicPartition(topic, partition)
    first, end = client.get_watermark_offsets(place, ANSWER_SECONDS)
    client.assign([TopicPartition(topic, partition, max(first, end - count))])
    records: list[tuple[InputRecord, bytes | None]] = []
    deadline = time.monotonic() + _READ_SECONDS
    while len(records) < count:
        message = poll(client, _POLL_SECONDS)
        if message is None:
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"topic {topic}, partition {partition}, was not read to its end within "
                    f"{_READ_SECONDS:.0f} s: a transaction is open there, or the broker is slow"
                )
            continue
        offset = message.offset()
        assert offset is not None
        if message.error() is not None or offset >= end:
            break
        _, at_ms = message.timestamp()
        value, key = message.value(), message.key()
        assert value is None or isinstance(value, bytes)
        assert key is None or isinstance(key, bytes)
        record = InputRecord(
            value,
            offset,
            partition,
            key=None if key is None else key.decode(errors="surrogateescape"),
            timestamp_us=at_ms * MICROS_PER_MS,
            headers=header_texts(headers_of(message)),
        )
        records.append((record, key))
    return records
