"""Clients of confluent-kafka: how they are created, how a topic is written and read to its end, and
the wording of their errors."""

import socket
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AclOperation,
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from job.errors import BrokerError
from job.plan.result_id import Place

if TYPE_CHECKING:  # executors import this module without it
    from job.kafka.security import KafkaAccess
    from job.spec.source_topics import SourceTopics

__all__ = [
    "ANSWER_SECONDS",
    "ANY_PARTITION",
    "EARLIEST",
    "LATEST",
    "NOT_READABLE",
    "AclOperation",
    "AdminClient",
    "NewPartitions",
    "NewTopic",
    "admin",
    "answer",
    "at_time",
    "bytes_of",
    "connect",
    "consumer",
    "describe_error",
    "headers_of",
    "list_offsets",
    "list_offsets_of_topics",
    "no_broker",
    "placed",
    "poll",
    "produce",
    "read_to_end",
    "topic_settings",
    "unresolved_hosts",
]

T = TypeVar("T")

ANSWER_SECONDS = 10.0
ANY_PARTITION = -1  # librdkafka then chooses the partition by the key
ROOM_SECONDS = 90.0
"""Longest wait for room in the queue of a producer. Longer than message.timeout.ms of transactional
producers, which fails the transaction with a better message."""
_ROOM_POLL_SECONDS = 0.1
EARLIEST = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST = OffsetSpec.latest()  # type: ignore[no-untyped-call]

NOT_READABLE = frozenset(
    {
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
    }
)
"""Codes of a topic that does not exist, or that the client may not read."""

_connected: WeakSet[AdminClient] = WeakSet()


def at_time(ms: int) -> OffsetSpec:
    """First offset with a timestamp at or after `ms`, milliseconds since 1970."""
    spec: OffsetSpec = OffsetSpec.for_timestamp(max(0, ms))
    return spec


def admin(settings: Mapping[str, Any]) -> AdminClient:
    """`settings`: librdkafka's. Errors are raised, not logged. Raises KafkaException."""
    return AdminClient({**settings, "log_level": 0})


def connect(
    client: AdminClient | Consumer | Producer, seconds: float, topic: str | None = None
) -> None:
    """Wait for a connection of a new client. Raises KafkaException.

    Without a connection, librdkafka repeats the request for the leader of a partition or for the
    coordinator of a transaction only after 0.5 s to 3 s. The first answer may come before the
    connection to the broker that the second request uses: on a busy machine a third of the
    producers repeated their request after one answer, and none of 128 after two.
    """
    for _ in range(2):
        client.list_topics(topic, seconds)


def answer(request: Future[T], seconds: float = ANSWER_SECONDS) -> T:
    """The broker's answer to a request of an AdminClient.

    Raises KafkaException. Its code is _TIMED_OUT if there is no answer within `seconds`, whether
    librdkafka reports it or not: librdkafka's own report of a timeout may come too late.
    """
    try:
        return request.result(seconds)
    except TimeoutError:
        reason = f"no answer within {seconds:.0f} s"
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, reason)) from None


def consumer(settings: Mapping[str, Any], group: str) -> Consumer:
    """A consumer of committed records that reports the end of each partition.

    librdkafka requires a group; nothing is committed to it.
    """
    return Consumer(
        {
            "log_level": 0,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "group.id": group,
            **settings,
        }
    )


def produce(
    producer: Producer,
    topic: str,
    value: str | bytes | None = None,
    key: str | bytes | None = None,
    partition: int = ANY_PARTITION,
    *,
    timestamp: int = 0,
    headers: Sequence[tuple[str, str | bytes | None]] = (),
    on_delivery: Callable[[KafkaError | None, Message], None] | None = None,
    room_seconds: float = ROOM_SECONDS,
) -> None:
    """Put a record into the queue of the producer. Waits while the queue is full.

    The queue is full when it contains queue.buffering.max.messages records or
    queue.buffering.max.kbytes. Raises KafkaException, with the code _QUEUE_FULL if there is no room
    within `room_seconds`. `timestamp` 0: the current time.
    """
    deadline: float | None = None
    while True:
        try:
            producer.produce(
                *(topic, value, key, partition, on_delivery),
                timestamp=timestamp,
                headers=list(headers),
            )
        except BufferError:
            deadline = deadline or time.monotonic() + room_seconds
            if time.monotonic() >= deadline:
                reason = (
                    f"the producer's queue had no room for {room_seconds:g} s: the brokers are "
                    f"slow, or do not accept the records of topic {topic}"
                )
                raise KafkaException(KafkaError(KafkaError._QUEUE_FULL, reason)) from None
            producer.poll(_ROOM_POLL_SECONDS)
        else:
            return


def poll(client: Consumer, seconds: float) -> Message | None:
    """The next record, or the event _PARTITION_EOF.

    None: neither arrived within `seconds`, or librdkafka retries after an error. Other errors are
    raised as KafkaException. A missing ACL for the group is not an error: the group is not used.
    """
    message = client.poll(seconds)
    error = None if message is None else message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:
        return message
    if error.retriable() or error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
        return None
    raise KafkaException(error)


def placed(message: Message) -> Place:
    """Where a record is. An event without a record has no offset."""
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return Place(topic, partition, offset)


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    return [(name, bytes_of(content)) for name, content in _pairs(message.headers())]


def bytes_of(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _pairs(headers: object) -> Iterable[tuple[str, str | bytes | None]]:
    if isinstance(headers, Mapping):
        return list(headers.items())
    return list(headers) if isinstance(headers, list) else []


def read_to_end(
    settings: Mapping[str, Any],
    topic: str,
    group: str,
    seconds: float,
    starts: Mapping[int, int] | None = None,
    ends: Mapping[int, int] | None = None,
) -> Iterator[Message]:
    """The committed records of a topic up to its present end, one partition after another.

    `starts`: first offset of partitions; -1: their ends. The others are read from the beginning.
    `ends`: offsets before which the reading ends. Raises KafkaException, or BrokerError if no
    record arrives for `seconds`.
    """
    with closing(consumer(settings, group)) as client:
        metadata = client.list_topics(topic, seconds).topics[topic]
        if metadata.error is not None:
            raise KafkaException(metadata.error)
        for partition in sorted(metadata.partitions):
            start = TopicPartition(topic, partition, (starts or {}).get(partition, 0))
            yield from _read_partition(client, start, seconds, (ends or {}).get(partition))


def _read_partition(
    client: Consumer, start: TopicPartition, seconds: float, end: int | None
) -> Iterator[Message]:
    if end is None:
        _, end = client.get_watermark_offsets(start, seconds)
    if start.offset >= end:
        return
    client.assign([start])
    while True:
        message = poll(client, seconds)
        if message is None:
            raise BrokerError(
                f"{start.topic}, partition {start.partition}, was not read to its end: no record "
                f"arrived within {seconds:.0f} s"
            )
        offset = message.offset()
        assert offset is not None
        if message.error() is not None or offset >= end:
            return
        yield message


def list_offsets(
    client: AdminClient,
    topic: str,
    partitions: Iterable[int],
    which: OffsetSpec,
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    seconds: float = ANSWER_SECONDS,
) -> dict[int, int]:
    """Offset of each partition: `which` is EARLIEST, LATEST or `at_time`. Raises KafkaException.

    -1: the partition has no record at that time or later.
    """
    if client not in _connected:
        connect(client, seconds)
        _connected.add(client)
    futures = client.list_offsets(
        {TopicPartition(topic, number): which for number in partitions},
        isolation_level=isolation_level,
        request_timeout=seconds,
    )
    return {place.partition: answer(future, seconds).offset for place, future in futures.items()}


def list_offsets_of_topics(
    client: AdminClient,
    topics: "SourceTopics",
    numbers: Iterable[int],
    which: OffsetSpec,
    isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[int, int]:
    """As `list_offsets`, for partitions of several topics by their numbers."""
    by_topic = topics.by_topic(dict.fromkeys(numbers, 0))
    return {
        topics.number(name, partition): offset
        for name, partitions in by_topic.items()
        if partitions
        for partition, offset in list_offsets(
            client, name, partitions, which, isolation_level
        ).items()
    }


def topic_settings(client: AdminClient, topic: str) -> dict[str, str]:
    """Those that the broker reports. Raises KafkaException, also without the right to read the
    settings of the topic."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    configs = client.describe_configs([resource], request_timeout=ANSWER_SECONDS)
    return {name: str(entry.value) for name, entry in answer(configs[resource]).items()}


def describe_error(error: KafkaException) -> str:
    return str(error.args[0].str())


def no_broker(access: "KafkaAccess", error: KafkaException | str) -> BrokerError:
    servers = access.bootstrap_servers
    if hosts := unresolved_hosts(servers):
        return BrokerError(
            f"no broker answers at {servers}: this machine finds no address of {', '.join(hosts)}: "
            "correct the host in kafka.bootstrap_servers, or add it to DNS or to /etc/hosts"
        )
    reason = error if isinstance(error, str) else describe_error(error)
    if not isinstance(error, str) and _has_answered(error):
        return BrokerError(
            f"Kafka at {servers} refuses a request ({reason}): check that all its brokers are "
            "running, and that the topics of the spec exist and were not created again"
        )
    tls = "" if access.security else ". If it requires TLS or a login, set kafka.security"
    return BrokerError(
        f"no broker answers at {servers} ({reason}): check that it is running and "
        f"that kafka.bootstrap_servers is correct as seen from this machine{tls}"
    )


def _has_answered(error: KafkaException) -> bool:
    """Whether the error is of a broker's response: the codes of librdkafka itself are negative."""
    code: int = error.args[0].code()
    return code > 0 or code in {*NOT_READABLE, KafkaError._UNKNOWN_PARTITION}


def unresolved_hosts(servers: str) -> list[str]:
    """The hosts of bootstrap servers, if none of them has an address. Empty: one has."""
    hosts = [server.strip().rpartition(":")[0].strip("[]") for server in servers.split(",")]
    for host in hosts:
        try:
            socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            continue
        return []
    return hosts
