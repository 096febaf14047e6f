"""The dead-letter topic read from its beginning to its present end, and letters put back.

What was put back is noted in the topic, in the transaction that put it back: so it is not put back
twice, whoever asks and however often.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from job.dead_letters.headers import REPLAYED, DeadLetter, Headers, dead_letter, replayed_place
from job.errors import BrokerError, DeliveryError, SecurityError, StreamjoinError
from job.kafka.security import KafkaAccess, librdkafka_settings

_ANSWER_SECONDS = 30.0
_COMMIT_SECONDS = 60.0
_REFUSALS = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError._AUTHENTICATION,
    }
)


def letters(access: KafkaAccess, topic: str) -> Iterator[DeadLetter]:
    """Letters that were not replayed yet, in the order of their places."""
    replayed = {
        replayed_place(message.key(), message.value(), _headers(message))
        for message in _messages(access, topic)
    }
    for message in _messages(access, topic):
        place = f"{topic}/{message.partition()}/{message.offset()}"
        letter = dead_letter(place, message.key(), message.value(), _headers(message))
        if letter is not None and place not in replayed:
            yield letter


def replayed(access: KafkaAccess, name: str, topic: str, wanted: Iterable[DeadLetter]) -> int:
    """Put the letters back where they came from, in one transaction; how many they were.

    A second call at the same time fences this one: neither puts anything back twice.
    """
    producer = Producer(
        {
            **librdkafka_settings(access),
            "log_level": 0,
            "transactional.id": f"streamjoin-{name}-replay",
            "transaction.timeout.ms": 300_000,
            "message.max.bytes": 100_000_000,  # the topic took it before, and says so if not now
        }
    )
    count = 0
    with _told(access):
        producer.init_transactions(_ANSWER_SECONDS)
        producer.begin_transaction()
        try:
            for letter in wanted:
                _produce(producer, letter.topic, letter, letter.replayed_headers)
                _note(producer, topic, letter)
                count += 1
            producer.commit_transaction(_COMMIT_SECONDS)
        except BaseException:
            _abort(producer)
            raise
    return count


def _produce(producer: Producer, topic: str, letter: DeadLetter, headers: Headers) -> None:
    # Kafka's own timestamp is part of the record: event times are held against it.
    at = letter.timestamp_ms if letter.timestamp_ms and letter.timestamp_ms > 0 else 0
    _when_there_is_room(
        producer,
        lambda: producer.produce(
            topic, letter.value, letter.key, headers=list(headers), timestamp=at
        ),
    )


def _note(producer: Producer, topic: str, letter: DeadLetter) -> None:
    headers: list[tuple[str, str | bytes | None]] = [(REPLAYED, letter.place)]
    _when_there_is_room(producer, lambda: producer.produce(topic, headers=headers))


def _when_there_is_room(producer: Producer, produce: Callable[[], None]) -> None:
    deadline = time.monotonic() + _COMMIT_SECONDS
    while True:
        try:
            produce()
        except BufferError:
            if time.monotonic() > deadline:
                raise
            producer.poll(1.0)
        else:
            return


def _abort(producer: Producer) -> None:
    try:
        producer.abort_transaction(_ANSWER_SECONDS)
    except KafkaException:
        return  # the broker does so when its time is over


def _messages(access: KafkaAccess, topic: str) -> Iterator[Message]:
    """Every committed record, partition by partition, up to the present ends."""
    consumer = Consumer(
        {
            **librdkafka_settings(access),
            "log_level": 0,
            "group.id": "streamjoin-dead-letters",  # asked for by the client, and not used
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    with _told(access), closing(consumer):
        found = consumer.list_topics(topic, _ANSWER_SECONDS).topics[topic]
        if found.error is not None:
            raise KafkaException(found.error)
        for partition in sorted(found.partitions):
            yield from _partition(consumer, topic, partition)


def _partition(consumer: Consumer, topic: str, partition: int) -> Iterator[Message]:
    _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), _ANSWER_SECONDS)
    consumer.assign([TopicPartition(topic, partition, 0)])
    while True:
        message = consumer.poll(_ANSWER_SECONDS)
        if message is None:
            raise BrokerError(f"{topic}, partition {partition}, was not read to its end in time")
        error = message.error()
        if error is None:
            offset = message.offset()
            assert offset is not None
            if offset >= end:
                return
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            return
        elif not error.retriable() and error.code() != KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise KafkaException(error)


def _headers(message: Message) -> Headers:
    return [
        (name, content.encode() if isinstance(content, str) else content)
        for name, content in _pairs(message.headers())
    ]


def _pairs(headers: object) -> Iterable[tuple[str, str | bytes | None]]:
    if isinstance(headers, Mapping):
        return list(headers.items())
    return list(headers) if isinstance(headers, list) else []


@contextmanager
def _told(access: KafkaAccess) -> Iterator[None]:
    """What Kafka's client raises, as errors a user can read."""
    try:
        yield
    except KafkaException as error:
        raise _failure(error.args[0], access) from error


def _failure(error: KafkaError, access: KafkaAccess) -> StreamjoinError:
    if error.code() in _REFUSALS:
        return SecurityError(f"Kafka at {access.bootstrap_servers} refuses: {error.str()}")
    if error.code() in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:
        return DeliveryError(
            f"{error.str()}: make the dead_letter topic, or start the job, first", retryable=False
        )
    return BrokerError(f"Kafka at {access.bootstrap_servers}: {error.str()}")
