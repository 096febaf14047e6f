"""Reads which records the topics accept."""

import structlog
from confluent_kafka import KafkaException

from job.dataflow.written import TopicLimits
from job.kafka.clients import admin, describe_error
from job.kafka.security import KafkaAccess, librdkafka_settings
from job.kafka.topic_settings import Settings, bytes_max, is_compacted, settings_of
from job.plan.plan import JoinPlan

_log = structlog.get_logger()


def read_limits(plan: JoinPlan, access: KafkaAccess) -> TopicLimits:
    """Kafka's defaults without the ACL to read the settings of a topic. Raises BrokerError."""
    output = _settings(access, plan.output.topic)
    dead_letters = None if plan.dead_letter is None else _settings(access, plan.dead_letter.topic)
    return TopicLimits(
        bytes_max(output),
        0 if dead_letters is None else bytes_max(dead_letters),
        requires_key=is_compacted(output),
    )


def _settings(access: KafkaAccess, topic: str) -> Settings:
    try:
        return settings_of(admin(librdkafka_settings(access)), access, topic)
    except KafkaException as error:
        assumed = bytes_max({})
        _log.warning(
            "topic_settings_not_read", topic=topic, assumed=assumed, reason=describe_error(error)
        )
        return {}
