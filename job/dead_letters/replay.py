"""Reads the dead-letter topic to its end, and replays letters.

The transaction that replays a letter also marks it as replayed in the dead-letter topic: so no
letter is replayed twice.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Message, Producer

from job.dead_letters.headers import REPLAYED, DeadLetter, dead_letter, replayed_place
from job.errors import BrokerError, DeliveryError, SecurityError, StreamjoinError
from job.kafka.clients import (
    ANY_PARTITION,
    LATEST,
    AdminClient,
    admin,
    headers_of,
    list_offsets,
    placed,
    produce,
    read_to_end,
)
from job.kafka.security import KafkaAccess, librdkafka_settings
from job.waiting import wait_until

_ANSWER_SECONDS = 30.0
_READABLE_SECONDS = 30.0
_POLL_SECONDS = 0.1
_COMMIT_SECONDS = 60.0
_REFUSALS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)


@dataclass(frozen=True)
class Replayed:
    count: int
    hidden_in: tuple[str, ...]
    """Topics whose readers of committed records cannot read all of the records yet."""


class _Ends:
    """Offset after the last record of each partition, from the delivery reports."""

    def __init__(self) -> None:
        self.by_topic = dict[str, dict[int, int]]()

    def add(self, error: KafkaError | None, message: Message) -> None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if error is not None or topic is None or partition is None or offset is None:
            return  # The commit fails.
        ends = self.by_topic.setdefault(topic, {})
        ends[partition] = max(ends.get(partition, 0), offset + 1)


def letters(access: KafkaAccess, topic: str) -> Iterator[DeadLetter]:
    """Letters that were not replayed yet, sorted by their places."""
    replayed = {
        replayed_place(message.key(), message.value(), headers_of(message))
        for message in _messages(access, topic)
    }
    for message in _messages(access, topic):
        place = str(placed(message))
        letter = dead_letter(place, message.key(), message.value(), headers_of(message))
        if letter is not None and place not in replayed:
            yield letter


def replay(access: KafkaAccess, name: str, topic: str, wanted: Iterable[DeadLetter]) -> Replayed:
    """Write the letters to their original topics, in one transaction.

    A concurrent call fences this one: neither replays a letter twice.
    """
    producer = Producer(
        {
            **librdkafka_settings(access),
            "log_level": 0,
            "transactional.id": f"streamjoin-{name}-replay",
            "transaction.timeout.ms": 300_000,
            "message.max.bytes": 100_000_000,  # the broker checks it
            "partitioner": "murmur2_random",  # that of Kafka's Java client
        }
    )
    count, partitions, ends = 0, dict[str, int](), _Ends()
    with _raising_streamjoin_errors(access):
        producer.init_transactions(_ANSWER_SECONDS)
        producer.begin_transaction()
        try:
            for letter in wanted:
                if letter.topic not in partitions:
                    metadata = producer.list_topics(letter.topic, _ANSWER_SECONDS)
                    partitions[letter.topic] = len(metadata.topics[letter.topic].partitions)
                partition = partition_of(letter, partitions[letter.topic])
                _produce(producer, letter, partition, ends)
                _mark_replayed(producer, topic, letter)
                count += 1
            producer.commit_transaction(_COMMIT_SECONDS)
        except BaseException:
            _abort(producer)
            raise
        return Replayed(count, _hidden_in(access, ends))


def _hidden_in(access: KafkaAccess, ends: _Ends) -> tuple[str, ...]:
    """Wait until readers of committed records can read up to `ends`. Returns the topics where they
    cannot.

    The broker answers a commit before the partitions contain the end of the transaction.
    """
    client, hidden = admin(librdkafka_settings(access)), dict(ends.by_topic)

    def nothing_is_hidden() -> bool:
        for topic in [topic for topic in hidden if _can_be_read(client, topic, hidden[topic])]:
            del hidden[topic]
        return not hidden

    wait_until(nothing_is_hidden, _READABLE_SECONDS, _POLL_SECONDS)
    return tuple(sorted(hidden))


def _can_be_read(client: AdminClient, topic: str, ends: Mapping[int, int]) -> bool:
    level = IsolationLevel.READ_COMMITTED
    try:
        readable = list_offsets(client, topic, ends, LATEST, level, _ANSWER_SECONDS)
    except KafkaException:
        return False  # The records are committed: an error would be wrong.
    return all(readable[partition] >= end for partition, end in ends.items())


def partition_of(letter: DeadLetter, partitions: int) -> int:
    """The partition of the original record, or -1 if the topic has fewer `partitions`
    now: then the key chooses the partition."""
    return letter.partition if 0 <= letter.partition < partitions else ANY_PARTITION


def _produce(producer: Producer, letter: DeadLetter, partition: int, ends: _Ends) -> None:
    # The replayed record keeps its Kafka timestamp, because event times are compared with it.
    at = letter.timestamp_ms if letter.timestamp_ms and letter.timestamp_ms > 0 else 0
    produce(
        producer,
        letter.topic,
        letter.value,
        letter.key,
        partition,
        headers=letter.replayed_headers,
        timestamp=at,
        on_delivery=ends.add,
    )


def _mark_replayed(producer: Producer, topic: str, letter: DeadLetter) -> None:
    produce(producer, topic, headers=[(REPLAYED, letter.place)])


def _abort(producer: Producer) -> None:
    try:
        producer.abort_transaction(_ANSWER_SECONDS)
    except KafkaException:
        return  # the broker aborts it at its timeout


def _messages(access: KafkaAccess, topic: str) -> Iterator[Message]:
    with _raising_streamjoin_errors(access):
        settings = librdkafka_settings(access)
        yield from read_to_end(settings, topic, "streamjoin-dead-letters", _ANSWER_SECONDS)


@contextmanager
def _raising_streamjoin_errors(access: KafkaAccess) -> Iterator[None]:
    """Convert the errors of Kafka's client."""
    try:
        yield
    except KafkaException as error:
        raise _failure(error.args[0], access) from error


def _failure(error: KafkaError, access: KafkaAccess) -> StreamjoinError:
    if error.code() in _REFUSALS:
        return SecurityError(
            f"Kafka at {access.bootstrap_servers} refuses access: {error.str()}. Correct "
            "kafka.security, or grant the missing ACLs to its user"
        )
    if error.code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:
        return DeliveryError(
            f"{error.str()}: create the dead_letter topic, or start the job, first", retryable=False
        )
    return BrokerError(
        f"Kafka at {access.bootstrap_servers}: {error.str()}. Run the command again once the cause "
        "is fixed: no dead letter is replayed twice"
    )
