"""Transactional producers, and what their errors mean."""

from collections.abc import Mapping
from types import MappingProxyType

from confluent_kafka import KafkaError, KafkaException, Producer

from job.delivery.commit_protocol import (
    AbortedError,
    FencedError,
    NotDeliveredError,
    Step,
    UnavailableError,
    UnknownOutcomeError,
)

INIT_SECONDS = 30.0
# Longer than a record may wait to be taken: that is the answer then, and a better one.
COMMIT_SECONDS = 90.0

SETTINGS: Mapping[str, str | int | bool] = MappingProxyType(
    {
        "log_level": 0,  # what matters comes as an error
        "compression.type": "lz4",
        "linger.ms": 10,
        # A record that the broker has not taken after this fails the transaction.
        "message.timeout.ms": 60_000,
        # Bounds the memory of a worker; a full queue makes it wait.
        "queue.buffering.max.kbytes": 65_536,
        "delivery.report.only.error": True,
    }
)

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
        KafkaError.INVALID_TRANSACTION_TIMEOUT,
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.POLICY_VIOLATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
    }
)

# Producers made ahead, not yet initialised: librdkafka initialises each but once. A new one takes
# 50 to 500 ms to find its broker, these 5 ms.
_spares: dict[frozenset[tuple[str, str | int | bool]], Producer] = {}
_SPARES_MAX = 16


def initialised(settings: Mapping[str, str | int | bool], topic: str) -> Producer:
    """A producer that may begin, all others of its transactional id being fenced."""
    producer = _spares.pop(frozenset(settings.items()), None) or Producer({**settings})
    # Without a connection librdkafka asks for the coordinator in vain, and again after 0.5 s.
    producer.list_topics(topic, INIT_SECONDS)
    producer.init_transactions(INIT_SECONDS)
    return producer


def prepare(settings: Mapping[str, str | int | bool]) -> None:
    """Begin to connect one for the next transaction."""
    if len(_spares) >= _SPARES_MAX:
        _spares.clear()
    _spares[frozenset(settings.items())] = Producer({**settings})


def is_lasting(error: KafkaError) -> bool:
    """Whether trying again gives the same answer until somebody has changed something."""
    return error.code() in _LASTING


def failure_of(step: Step, error: KafkaException) -> NotDeliveredError:
    """What an error in `step` means to the protocol."""
    kafka_error: KafkaError = error.args[0]
    code, message = kafka_error.code(), kafka_error.str()
    if code in _FENCED:
        return FencedError(message)
    lasting = is_lasting(kafka_error)
    if step is Step.INIT:
        return UnavailableError(message, retryable=not lasting)
    if step is Step.COMMIT and not kafka_error.txn_requires_abort():
        return UnknownOutcomeError(message)
    return AbortedError(message, retryable=not lasting)
