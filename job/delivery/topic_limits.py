"""Which records the topics accept."""

import structlog

from job.dataflow.written import TopicLimits
from job.kafka.preflight import TopicsSnapshot
from job.kafka.topic_settings import bytes_max, is_compacted

_log = structlog.get_logger()


def limits_of(topics: TopicsSnapshot) -> TopicLimits:
    """Kafka's defaults without the ACL to read the settings of a topic."""
    output, dead_letter = topics.output, topics.dead_letter
    for settings in (output, dead_letter):
        if settings is not None and settings.error is not None:
            _log.warning(
                "topic_settings_not_read",
                topic=settings.topic,
                assumed=bytes_max({}),
                reason=settings.error,
            )
    return TopicLimits(
        bytes_max(output.values),
        0 if dead_letter is None else bytes_max(dead_letter.values),
        requires_key=is_compacted(output.values),
    )
