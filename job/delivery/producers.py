"""Transactional producers of the driver, and errors of producers as errors for users."""

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
from job.errors import DeliveryError
from job.kafka.clients import connect, describe_error

INIT_SECONDS = 30.0
# Longer than message.timeout.ms: a record that times out fails the commit with a better message.
COMMIT_SECONDS = 90.0

SETTINGS: Mapping[str, str | int | bool] = MappingProxyType(
    {
        "log_level": 0,  # errors are raised
        # A record that the broker has not accepted after this time fails the transaction.
        "message.timeout.ms": 60_000,
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
_ACCESS = "Correct kafka.security, or grant the missing ACLs to its user"
_DELETED = "The topic was deleted or renamed: create it again"
# Errors that a retry does not fix, by code: librdkafka and Kafka have the same.
_REMEDIES: Mapping[int, str] = MappingProxyType(
    {
        KafkaError._AUTHENTICATION: _ACCESS,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED: _ACCESS,
        KafkaError.SASL_AUTHENTICATION_FAILED: _ACCESS,
        KafkaError.TOPIC_AUTHORIZATION_FAILED: _ACCESS,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: _ACCESS,
        KafkaError._UNKNOWN_TOPIC: _DELETED,
        KafkaError.UNKNOWN_TOPIC_OR_PART: _DELETED,
        KafkaError.TOPIC_EXCEPTION: _DELETED,
        KafkaError.INVALID_CONFIG: "Correct the settings of the topic",
        KafkaError.INVALID_RECORD: (
            "A topic with cleanup.policy=compact accepts no record without a key: set output.key "
            "(without nulls), or change the policy of the topic"
        ),
        KafkaError.INVALID_TIMESTAMP: (
            "Increase message.timestamp.before.max.ms and message.timestamp.after.max.ms of the "
            "topic, or set `output.timestamp: processing_time`"
        ),
        KafkaError.INVALID_TRANSACTION_TIMEOUT: (
            "Increase transaction.max.timeout.ms of the brokers to its default of 15 minutes"
        ),
        KafkaError.MSG_SIZE_TOO_LARGE: (
            "max.message.bytes of the topic was decreased after the start of the query. Increase "
            "it, or start the query again: larger results then follow on_bad_record and dead_letter"
        ),
        KafkaError.POLICY_VIOLATION: (
            "A policy of the brokers refuses the records: change it, or the settings of the topic"
        ),
    }
)


def init_producer(settings: Mapping[str, str | int | bool], topic: str) -> Producer:
    """Initialize a producer, and fence all others of its transactional id."""
    producer = Producer({**settings})
    # Without a connection librdkafka does not find the coordinator, and retries in 0.5 s.
    connect(producer, INIT_SECONDS, topic)
    producer.init_transactions(INIT_SECONDS)
    return producer


def is_lasting(code: int) -> bool:
    """Whether retries fail until a user has changed something."""
    return code in _REMEDIES


def with_remedy(message: str, code: int) -> str:
    """`message` and what to do about the error."""
    return f"{message}. {_REMEDIES[code]}" if is_lasting(code) else message


def describe_failure(error: KafkaException) -> str:
    """The message of the error, and what to do about it."""
    return with_remedy(describe_error(error), error.args[0].code())


def delivery_error(what: str, error: KafkaException) -> DeliveryError:
    """The error for users of a call on the driver."""
    retryable = not is_lasting(error.args[0].code())
    return DeliveryError(
        f"{what}: {describe_failure(error)}{again(retryable)}", retryable=retryable
    )


def again(retryable: bool, action: str = "starts the query") -> str:
    """The sentence after the message of a failed delivery: who repeats `action`."""
    if retryable:
        return f". The job {action} again, and nothing is lost: check the brokers"
    return f". Then `restart` {action} again, and nothing is lost"


def failure_of(step: Step, error: KafkaException) -> NotDeliveredError:
    """The error of the protocol for an error in `step`."""
    kafka_error: KafkaError = error.args[0]
    code, message = kafka_error.code(), describe_failure(error)
    if code in _FENCED:
        return ProducerFencedError(message)
    lasting = is_lasting(code)
    if step is Step.INIT:
        return UnavailableError(message, retryable=not lasting)
    if step is Step.COMMIT and not kafka_error.txn_requires_abort():
        return UnknownOutcomeError(message)
    return AbortedError(message, retryable=not lasting)
