"""Topics in Kafka that do not allow a start or a change."""

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from deploy.local.kafka import EmbeddedKafka
from job.change.known_offsets import check_not_compacted, check_same_topics
from job.delivery.commit_topic import prepare_commit_topic
from job.errors import CheckpointError, RetentionError, TopicError
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.preflight import check_topics
from job.kafka.security import kafka_access
from job.kafka.topic_ids import topics
from job.plan.plan import JoinPlan
from tests.integration.jobs import START_SECONDS
from tests.polling import wait_until
from tests.unit.specs import plan


def joined(kafka: EmbeddedKafka, name: str, **changes: Any) -> tuple[JoinPlan, KafkaAdmin]:
    made = plan(
        name=name,
        kafka__bootstrap_servers=kafka.bootstrap_servers,
        left__topic=f"{name}.left",
        right__topic=f"{name}.right",
        output__delivery="exactly_once",
        **changes,
    )
    return made, KafkaAdmin(kafka_access(kafka.bootstrap_servers, None, None))


def partitions(admin: KafkaAdmin, topic: str) -> int | None:
    found = topics(admin.client, [topic])
    return found[topic].partitions if topic in found else None


def test_compacted_input_topic_is_refused(kafka: EmbeddedKafka) -> None:
    """Kafka may have removed records that the new query needs."""
    join, admin = joined(kafka, "compacted_input")
    kafka.create_topics([join.left.topic], config={"cleanup.policy": "compact,delete"})
    kafka.create_topics([join.right.topic])

    with pytest.raises(RetentionError, match=r"compacted: compacted_input\.left \("):
        check_not_compacted(admin, join)
    one_topic = replace(join, left=replace(join.left, topics=join.right.topics))
    check_not_compacted(admin, one_topic)


def test_commit_topic_gets_the_partitions_of_the_new_query_and_must_be_compacted(
    kafka: EmbeddedKafka,
) -> None:
    join, admin = joined(kafka, "prepared_commits")
    topic = join.output.commit_topic
    for state_partitions in (2, 4, 3):
        prepare_commit_topic(replace(join, state_partitions=state_partitions), admin)
        expected = max(state_partitions, 4) + 1 if state_partitions != 2 else 3
        wait_until(
            lambda number=expected: partitions(admin, topic) == number,
            START_SECONDS,
            "the commit topic has its partitions",
        )
    kafka.create_topics(["not_compacted.commits"])
    with pytest.raises(TopicError, match=r"cleanup\.policy=delete"):
        prepare_commit_topic(joined(kafka, "not_compacted")[0], admin)


@pytest.mark.parametrize(
    ("engine", "limit", "is_refused"),
    [
        ("micro_batch", 16_383, True),
        ("micro_batch", 16_384, False),
        ("real_time", 524_287, True),
        ("real_time", 524_288, False),
    ],
)
def test_commit_topic_accepts_the_largest_marker(
    kafka: EmbeddedKafka, engine: str, limit: int, is_refused: bool
) -> None:
    join, admin = joined(kafka, f"markers_of_{engine}_{limit}", engine=engine)
    settings = {"cleanup.policy": "compact", "max.message.bytes": str(limit)}
    kafka.create_topics([join.output.commit_topic], partitions=3, config=settings)
    refused = pytest.raises(TopicError, match=rf"output\.commit_topic: .*bytes={limit}, and must")
    with refused if is_refused else nullcontext():
        prepare_commit_topic(join, admin)


def test_settings_with_which_the_broker_refuses_records_are_all_named(kafka: EmbeddedKafka) -> None:
    """With these, each start and each change is refused."""
    join, admin = joined(
        *(kafka, "refusing"),
        output__topic="refusing.out",
        output__timestamp="event_time",
        on_bad_record=None,
        dead_letter={"topic": "refusing.dead"},
    )
    kafka.create_topics([join.left.topic, join.right.topic])
    settings = {"cleanup.policy": "compact", "message.timestamp.before.max.ms": "1000"}
    kafka.create_topics(["refusing.out"], config=settings)
    kafka.create_topics(["refusing.dead"], config={"cleanup.policy": "compact"})

    with pytest.raises(TopicError) as refusal:
        check_topics(join, admin)
    fields = [line.partition(":")[0] for line in str(refusal.value).splitlines()]
    assert ["output.key", "output.timestamp", "dead_letter.topic"] == fields


def test_broker_needs_at_most_the_replicas_that_a_partition_has(kafka: EmbeddedKafka) -> None:
    join, admin = joined(kafka, "replicas", output__topic="replicas.out")
    kafka.create_topics([join.left.topic, join.right.topic])
    settings = {"min.insync.replicas": "2"}
    kafka.create_topics(["replicas.out"], config=settings)
    commits = {**settings, "cleanup.policy": "compact"}
    kafka.create_topics([join.output.commit_topic], partitions=3, config=commits)

    check_topics(join, admin)
    prepare_commit_topic(join, admin)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "acks": "all"})
    errors: list[Any] = []
    producer.produce("replicas.out", b"{}", on_delivery=lambda error, _: errors.append(error))
    assert 0 == producer.flush(START_SECONDS)
    assert [None] == errors


def test_commit_topic_that_was_deleted_or_created_again_is_refused(kafka: EmbeddedKafka) -> None:
    """The new query would not find what the old one has delivered."""
    join, admin = joined(kafka, "same_commits")
    topic = join.output.commit_topic
    check_same_topics(admin, join, {})
    with pytest.raises(CheckpointError, match="was deleted:"):
        check_same_topics(admin, join, {topic: "an id"})
    kafka.create_topics([topic], config={"cleanup.policy": "compact"})
    with pytest.raises(CheckpointError, match="was deleted and created again"):
        check_same_topics(admin, join, {topic: "an id"})
    described = topics(admin.client, [topic])
    check_same_topics(admin, join, {topic: str(described[topic].id)})
