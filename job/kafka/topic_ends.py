"""Reads the ends of the input topics, again and again."""

from collections.abc import Mapping

from confluent_kafka import IsolationLevel, KafkaException

from job.event_time.partitions import Offsets
from job.kafka.clients import ANSWER_SECONDS, LATEST, AdminClient, admin, list_offsets_of_topics
from job.spec.sides import Side
from job.spec.source_topics import SourceTopics


class TopicEnds:
    """Used by one thread."""

    def __init__(self, settings: Mapping[str, str], topics: Mapping[Side, SourceTopics]) -> None:
        """`settings`: librdkafka's."""
        self._settings = settings
        self._topics = topics
        self._client: AdminClient | None = None

    def read(self) -> Offsets:
        """The offset after the last committed record of each partition, also of partitions that
        were added lately. Raises KafkaException."""
        if self._client is None:
            self._client = admin(dict(self._settings))
        try:
            return {side: _ends(self._client, of_side) for side, of_side in self._topics.items()}
        except KafkaException:
            self._client = None
            raise


def partition_numbers(client: AdminClient, topics: SourceTopics) -> list[int]:
    """Numbers of all partitions that the topics have now. Raises KafkaException."""
    return [
        topics.number(name, partition)
        for name in topics.names
        for partition in client.list_topics(name, timeout=ANSWER_SECONDS).topics[name].partitions
    ]


def _ends(client: AdminClient, topics: SourceTopics) -> dict[int, int]:
    partitions, committed = partition_numbers(client, topics), IsolationLevel.READ_COMMITTED
    return list_offsets_of_topics(client, topics, partitions, LATEST, committed)
