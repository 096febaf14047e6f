"""Transactional producers, and their errors as errors of the commit protocol."""

import math
from collections.abc import Mapping
from types import MappingProxyType

from confluent_kafka import KafkaError, KafkaException, Producer

from job.delivery.commit_protocol import (
    AbortedError,
    NotDeliveredError,
    ProducerFencedError,
    Step,
    UnavailableError,
    UnknownOutcomeError,
)
from job.kafka.clients import connect

INIT_SECONDS = 30.0
# Longer than message.timeout.ms: a record that times out fails the commit with a better message.
COMMIT_SECONDS = 90.0

SETTINGS: Mapping[str, str | int | bool] = MappingProxyType(
    {
        "log_level": 0,  # errors are raised
        "compression.type": "lz4",
        "linger.ms": 10,
        # As Kafka's Java client: librdkafka's default distributes keys by another hash, and results
        # would not be in the partitions of input records with the same keys.
        "partitioner": "murmur2_random",
        # A record that the broker has not accepted after this time fails the transaction.
        "message.timeout.ms": 60_000,
        "delivery.report.only.error": True,
    }
)

# Bounds the memory of a worker, which waits while the queue is full.
_QUEUE_KBYTES = 65_536
_RECORD_BYTES_MIN = 1_000  # librdkafka's minimum of message.max.bytes
_RECORD_BYTES_MAX = 1_000_000_000  # librdkafka's maximum

_FENCED = frozenset(
    {
        KafkaError._FENCED,
        KafkaError.INVALID_PRODUCER_EPOCH,
        90,  # PRODUCER_FENCED, for which confluent_kafka has no name
    }
)
_LASTING = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_TIMESTAMP,
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)

# Producers created ahead of time, not yet initialized: librdkafka initializes each only once. A new
# producer takes 50 to 500 ms to connect, a spare one 5 ms.
_spares: dict[frozenset[tuple[str, str | int | bool]], Producer] = {}
_SPARES_MAX = 16


def size_limits(record_bytes_max: int) -> dict[str, int]:
    """Settings of a producer for a topic that accepts records of `record_bytes_max`. A queue that
    is smaller than a record never has room for the record."""
    record_bytes = min(max(record_bytes_max, _RECORD_BYTES_MIN), _RECORD_BYTES_MAX)
    return {
        "message.max.bytes": record_bytes,
        "queue.buffering.max.kbytes": max(_QUEUE_KBYTES, math.ceil(record_bytes / 1024)),
    }


def init_producer(settings: Mapping[str, str | int | bool], topic: str) -> Producer:
    """Initialize a producer, and fence all others of its transactional id."""
    producer = _spares.pop(frozenset(settings.items()), None) or Producer({**settings})
    # Without a connection librdkafka does not find the coordinator, and retries in 0.5 s.
    connect(producer, INIT_SECONDS, topic)
    producer.init_transactions(INIT_SECONDS)
    return producer


def prepare(settings: Mapping[str, str | int | bool]) -> None:
    """Create a producer for the next transaction, which connects in the background."""
    if len(_spares) >= _SPARES_MAX:
        _spares.clear()
    _spares[frozenset(settings.items())] = Producer({**settings})


def is_lasting(error: KafkaError) -> bool:
    """Whether retries fail until a user has changed something."""
    return error.code() in _LASTING


def failure_of(step: Step, error: KafkaException) -> NotDeliveredError:
    """The error of the protocol for an error in `step`."""
    kafka_error: KafkaError = error.args[0]
    code, message = kafka_error.code(), kafka_error.str()
    if code in _FENCED:
        return ProducerFencedError(message)
    lasting = is_lasting(kafka_error)
    if step is Step.INIT:
        return UnavailableError(message, retryable=not lasting)
    if step is Step.COMMIT and not kafka_error.txn_requires_abort():
        return UnknownOutcomeError(message)
    return AbortedError(message, retryable=not lasting)
