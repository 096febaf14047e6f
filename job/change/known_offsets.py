"""Whether and from which offsets a new query can read the records of an old one again."""

from collections.abc import Mapping

import structlog
from confluent_kafka import KafkaError, KafkaException

from job.change.start_offsets import KnownOffsets
from job.errors import RetentionError
from job.event_time.partitions import Offsets
from job.kafka.clients import (
    EARLIEST,
    at_time,
    describe_error,
    list_offsets_of_topics,
    no_broker,
    topic_settings,
)
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.preflight import TopicsSnapshot
from job.kafka.topic_ids import check_commit_topic, topics
from job.kafka.topic_settings import is_compacted
from job.plan.plan import JoinPlan
from job.spec.sides import SIDES, Side

_log = structlog.get_logger()


def read_known_offsets(
    kafka: KafkaAdmin, plan: JoinPlan, ends: Offsets, from_ms: Mapping[Side, int]
) -> dict[Side, KnownOffsets]:
    """The offsets of the partitions in `ends`. Raises BrokerError if no broker answers.

    `from_ms`: of the sides whose offsets at a time are needed.
    """
    known = {}
    with kafka.raising_broker_error() as client:
        for side in SIDES:
            of_side = plan.side(side).topics
            offsets: Mapping[int, int] = {}
            if side in from_ms:
                time = at_time(from_ms[side])
                offsets = list_offsets_of_topics(client, of_side, ends[side], time)
            known[side] = KnownOffsets(
                earliest=list_offsets_of_topics(client, of_side, ends[side], EARLIEST),
                at_time={number: offset for number, offset in offsets.items() if offset >= 0},
            )
    return known


def read_added_partitions(topics: TopicsSnapshot, plan: JoinPlan, ends: Offsets) -> Offsets:
    """First offset of each partition that the old query has not read."""
    added: dict[Side, Mapping[int, int]] = {}
    whole = topics.plan_with_partitions(plan)
    with topics.kafka.raising_broker_error() as client:
        for side in SIDES:
            numbers = set(whole.side(side).partition_numbers) - set(ends[side])
            added[side] = list_offsets_of_topics(client, plan.side(side).topics, numbers, EARLIEST)
    return added


def check_not_compacted(kafka: KafkaAdmin, plan: JoinPlan) -> None:
    """Raises RetentionError if the topic of a stream is compacted. Without the right to read its
    settings, a topic is not checked, and the log has a warning."""
    compacted = []
    for name in sorted(name for side in plan.streams for name in plan.side(side).topics.names):
        try:
            if is_compacted(topic_settings(kafka.client, name)):
                compacted.append(name)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise no_broker(kafka.access, error) from error
            _log.warning("compaction_not_checked", topic=name, reason=describe_error(error))
    if compacted:
        raise RetentionError(
            f"input topics are compacted: {', '.join(compacted)} (cleanup.policy contains "
            "`compact`). Kafka may have removed records that the new query needs to build its "
            "state, and results would be missing or repeated silently. Start with empty state: "
            "`streamjoin run SPEC --new-query`"
        )


def check_same_topics(kafka: KafkaAdmin, plan: JoinPlan, recorded: Mapping[str, str]) -> None:
    """Raises RetentionError if an input topic was deleted and created again, CheckpointError if the
    commit topic of the old query was deleted or created again.

    `recorded`: ids of the topics in the old checkpoint.
    """
    inputs = plan.input_topics
    with kafka.raising_broker_error() as client:
        described = topics(client, inputs | ({plan.output.commit_topic} & recorded.keys()))
    check_commit_topic(plan, recorded, described)
    other = sorted(
        name
        for name, topic in described.items()
        if name in inputs and topic.id is not None and recorded.get(name, topic.id) != topic.id
    )
    if other:
        raise RetentionError(
            f"input topics were created again: {', '.join(other)} (the topic id differs from the "
            "one in the old checkpoint). The records of the deleted topics cannot be read again: "
            "check kafka.bootstrap_servers, or start with empty state: `streamjoin run SPEC "
            "--new-query`"
        )
