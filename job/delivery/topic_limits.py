"""Reads the largest record that a topic accepts."""

import structlog
from confluent_kafka import KafkaError, KafkaException

from job.kafka.clients import admin, no_broker, topic_setting
from job.kafka.security import KafkaAccess, librdkafka_settings

_DEFAULT_BYTES = 1_048_588  # Kafka's default

_UNREACHABLE = frozenset(
    {KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TRANSPORT}
)

_log = structlog.get_logger()


def record_bytes_max(access: KafkaAccess, topic: str) -> int:
    """max.message.bytes of the topic; Kafka's default without the ACL to read it."""
    client = admin(librdkafka_settings(access))
    try:
        return int(topic_setting(client, topic, "max.message.bytes") or _DEFAULT_BYTES)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() in _UNREACHABLE or reason.retriable():
            raise no_broker(access, error) from error
        _log.warning(
            "record_size_not_checked", topic=topic, assumed=_DEFAULT_BYTES, reason=reason.str()
        )
        return _DEFAULT_BYTES
