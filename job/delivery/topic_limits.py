"""How large a record a topic takes."""

import structlog
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AdminClient,
    ConfigResource,
    ResourceType,
)

from job.errors import BrokerError
from job.kafka.security import KafkaAccess, librdkafka_settings

_ANSWER_SECONDS = 10.0
_DEFAULT_BYTES = 1_048_588  # Kafka's own

_AWAY = frozenset({KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TRANSPORT})

_log = structlog.get_logger()


def record_bytes_max(access: KafkaAccess, topic: str) -> int:
    """max.message.bytes of the topic; Kafka's default where we may not ask."""
    client = AdminClient({**librdkafka_settings(access), "log_level": 0})
    resource = ConfigResource(ResourceType.TOPIC, topic)
    asked = client.describe_configs([resource], request_timeout=_ANSWER_SECONDS)
    try:
        return int(asked[resource].result()["max.message.bytes"].value)
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() in _AWAY or reason.retriable():
            raise BrokerError(
                f"no broker answers at {access.bootstrap_servers} ({reason.str()})"
            ) from error
        _log.warning(
            "record_size_not_checked", topic=topic, taken_as=_DEFAULT_BYTES, reason=reason.str()
        )
        return _DEFAULT_BYTES
