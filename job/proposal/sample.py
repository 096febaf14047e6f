"""The newest records of a topic."""

import time
from contextlib import closing
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicPartition

from job.errors import BrokerError, TopicError
from job.kafka.clients import ANSWER_SECONDS, admin, consumer, no_broker, poll
from job.kafka.security import KafkaAccess, librdkafka_settings
from job.semantics.input_records import InputRecord
from job.semantics.rows import MICROS_PER_MS

RECORDS_MAX = 1_000
"""Records of a sample. Each partition has the same share."""

_READ_SECONDS = 30.0
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Sample:
    topic: str
    records: list[InputRecord]
    """In the order of the offsets, one partition after another."""


def topic_names(access: KafkaAccess) -> list[str]:
    """The topics that this user sees, without Kafka's internal ones, sorted. Raises BrokerError."""
    client = admin(librdkafka_settings(access))
    try:
        topics = client.list_topics(timeout=ANSWER_SECONDS).topics
    except KafkaException as error:
        raise no_broker(access, error) from error
    return sorted(name for name in topics if not name.startswith("__"))


def sample_of(topic: str, access: KafkaAccess) -> Sample:
    """The newest committed records of `topic`, at most RECORDS_MAX.

    Raises TopicError if the topic is missing or empty, BrokerError if no broker answers.
    """
    settings = librdkafka_settings(access)
    try:
        with closing(consumer(settings, "streamjoin-init")) as client:
            metadata = client.list_topics(topic, ANSWER_SECONDS).topics[topic]
            if metadata.error is not None:
                raise TopicError(f"topic {topic} cannot be read: {metadata.error.str()}")
            numbers = sorted(metadata.partitions)
            share = max(1, RECORDS_MAX // len(numbers))
            records = [
                record for number in numbers for record in _newest(client, topic, number, share)
            ]
    except KafkaException as error:
        raise no_broker(access, error) from error
    if not records:
        raise TopicError(
            f"topic {topic} has no records, and columns are proposed from records: write some, or "
            "write the spec by hand (docs/tutorial.md)"
        )
    return Sample(topic, records)


def _newest(client: Consumer, topic: str, partition: int, count: int) -> list[InputRecord]:
    """Up to `count` records before the present end of the partition."""
    place = TopicPartition(topic, partition)
    first, end = client.get_watermark_offsets(place, ANSWER_SECONDS)
    client.assign([TopicPartition(topic, partition, max(first, end - count))])
    records: list[InputRecord] = []
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
        value = message.value()
        assert value is None or isinstance(value, bytes)
        records.append(InputRecord(value, offset, partition, timestamp_us=at_ms * MICROS_PER_MS))
    return records
