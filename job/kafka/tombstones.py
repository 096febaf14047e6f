"""Whether Kafka may have removed tombstones of a table before the query has read them.

Kafka keeps a tombstone of a compacted topic for `delete.retention.ms` at least. If nothing was read
for longer, tombstones written meanwhile may be gone, and the keys stay in the table.
"""

from collections.abc import Mapping

import structlog

from job.kafka.clients import LATEST, list_offsets_of_topics
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.topic_settings import is_compacted, read_settings
from job.spec.source_topics import SourceTopics

_DELETE_RETENTION_MS = 86_400_000  # Kafka's default
_log = structlog.get_logger()


def topics_with_lost_tombstones(
    kafka: KafkaAdmin, topics: SourceTopics, read: Mapping[int, int], unread_ms: int
) -> list[str]:
    """The topics of a table that may have lost unread tombstones. Raises BrokerError.

    `read`: next offset to read of each partition. `unread_ms`: time since the table was read.
    """
    with kafka.raising_broker_error() as client:
        ends = list_offsets_of_topics(client, topics, read, LATEST)
    unread = {topics.place(number)[0] for number, offset in read.items() if offset < ends[number]}
    return [name for name in topics.names if name in unread and _removed(kafka, name, unread_ms)]


def _removed(kafka: KafkaAdmin, topic: str, unread_ms: int) -> bool:
    """Without the right to read the settings, a topic is not checked, and the log has a warning."""
    settings = read_settings(kafka, topic)
    if settings.error is not None:
        _log.warning("tombstones_not_checked", topic=topic, reason=settings.error)
    kept_ms = int(settings.values.get("delete.retention.ms", _DELETE_RETENTION_MS))
    return is_compacted(settings.values) and kept_ms < unread_ms
