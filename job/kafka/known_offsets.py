"""Offsets in Kafka from which a new query can read the records of an old one again."""

from collections.abc import Mapping

from confluent_kafka import KafkaException

from job.change.start_offsets import KnownOffsets
from job.errors import RetentionError
from job.event_time.partitions import Offsets
from job.join_spec.sides import SIDES, Side
from job.kafka.clients import EARLIEST, admin, at_time, list_offsets_of_topics, no_broker
from job.kafka.security import KafkaAccess, librdkafka_settings
from job.kafka.topic_ids import topics
from job.plan.plan import JoinPlan


def known_offsets(
    plan: JoinPlan, access: KafkaAccess, ends: Offsets, from_ms: Mapping[Side, int]
) -> dict[Side, KnownOffsets]:
    """The offsets of the partitions in `ends`. Raises BrokerError if no broker answers."""
    client = admin(librdkafka_settings(access))
    known = {}
    try:
        for side in SIDES:
            of_side = plan.side(side).topics
            offsets = list_offsets_of_topics(client, of_side, ends[side], at_time(from_ms[side]))
            known[side] = KnownOffsets(
                earliest=list_offsets_of_topics(client, of_side, ends[side], EARLIEST),
                at_time={number: offset for number, offset in offsets.items() if offset >= 0},
            )
    except KafkaException as error:
        raise no_broker(access, error) from error
    return known


def added_partitions(
    plan: JoinPlan, access: KafkaAccess, ends: Offsets, counts: Mapping[Side, tuple[int, ...]]
) -> Offsets:
    """First offset of each partition that the old query has not read."""
    client = admin(librdkafka_settings(access))
    added: dict[Side, Mapping[int, int]] = {}
    for side in SIDES:
        of_side = plan.side(side).topics
        numbers = {
            of_side.number(topic, partition)
            for topic, count in zip(of_side.names, counts[side], strict=True)
            for partition in range(count)
        }
        try:
            added[side] = list_offsets_of_topics(
                client, of_side, numbers - set(ends[side]), EARLIEST
            )
        except KafkaException as error:
            raise no_broker(access, error) from error
    return added


def check_same_topics(plan: JoinPlan, access: KafkaAccess, recorded: Mapping[str, str]) -> None:
    """Raises RetentionError if an input topic was deleted and created again."""
    names = {name for side in SIDES for name in plan.side(side).topics.names}
    try:
        described = topics(admin(librdkafka_settings(access)), names)
    except KafkaException as error:
        raise no_broker(access, error) from error
    other = sorted(
        name
        for name, topic in described.items()
        if topic.id is not None and recorded.get(name, topic.id) != topic.id
    )
    if other:
        raise RetentionError(
            f"input topics were created again: {', '.join(other)} (the topic id differs from the "
            "one in the old checkpoint). The records of the deleted topics cannot be read again: "
            "check kafka.bootstrap_servers, or start with empty state: `streamjoin run SPEC "
            "--new-query`"
        )
