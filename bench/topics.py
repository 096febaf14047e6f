"""Topics that a measurement creates and deletes."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from confluent_kafka.admin import AdminClient

from deploy.local.kafka import EmbeddedKafka

_ANSWER_SECONDS = 30.0


@contextmanager
def temporary_topics(
    kafka: EmbeddedKafka, *names: str, partitions: int, append_time: bool = False
) -> Iterator[None]:
    """With `append_time`, records carry the time when the broker appended them."""
    config = {"message.timestamp.type": "LogAppendTime"} if append_time else None
    kafka.create_topics(names, partitions=partitions, config=config)
    try:
        yield
    finally:
        delete_topics(kafka, names)


def delete_topics(kafka: EmbeddedKafka, names: Sequence[str]) -> None:
    admin = _admin(kafka)  # keep the client: its futures end with it
    deleted = admin.delete_topics(list(names)) if names else {}
    for future in deleted.values():
        future.result(_ANSWER_SECONDS)


def topic_names(kafka: EmbeddedKafka) -> list[str]:
    """All topics but Kafka's own."""
    present = _admin(kafka).list_topics(timeout=_ANSWER_SECONDS).topics
    return [name for name in present if not name.startswith("__")]


def _admin(kafka: EmbeddedKafka) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 3})
