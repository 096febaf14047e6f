"""Creates the commit topic before the first batch, or checks the existing one."""

from typing import Any

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from job.errors import StreamjoinError, TopicError
from job.kafka.clients import (
    ANSWER_SECONDS,
    AdminClient,
    NewPartitions,
    NewTopic,
    answer,
    describe_error,
    no_broker,
    topic_settings,
)
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.security import KafkaAccess
from job.kafka.topic_settings import (
    TopicSettings,
    alteration,
    bytes_max,
    replica_refusals,
    too_small,
)
from job.plan.plan import JoinPlan
from job.spec.output import Delivery

_CREATE_SECONDS = 30.0

# Kafka compacts closed segments only. A batch writes two records per partition: a segment contains
# those of about a day. An interval also writes the ids of its results: a segment contains some
# million.
_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 2**20)}

# A marker has some hundred bytes, and names of up to 249 characters.
_MARKER_BYTES_MAX = 16_384
# An interval also writes the ids of its results, in parts of up to 250,000 characters without those
# that separate them (writer/TransactionSlot.java).
_PART_BYTES_MAX = 524_288

_log = structlog.get_logger()


def create_commit_topic_if_used(plan: JoinPlan, kafka: KafkaAdmin) -> None:
    """Does nothing for at-least-once delivery, which has no commit topic.

    Raises TopicError with the command that helps if the topic cannot be created or does not fit.
    The topic is described again, after the check of its id: it may have been deleted or created
    since the snapshot of the start.
    """
    if plan.output.delivery is not Delivery.EXACTLY_ONCE:
        return
    client, topic = kafka.client, plan.output.commit_topic
    try:
        found = _partitions(client, topic)
        if found is None:
            _create(client, plan)
            return
        _check_partitions(len(found), plan)
        _check_settings(client, plan, found)
    except KafkaException as error:
        raise _refusal(error, plan, kafka.access) from error


def prepare_commit_topic(plan: JoinPlan, kafka: KafkaAdmin) -> None:
    """As `create_commit_topic_if_used`. Adds the partitions that an existing topic lacks.

    Existing markers stay valid, because the number of a slot is the number of its partition.
    """
    if plan.output.delivery is not Delivery.EXACTLY_ONCE:
        return
    client, topic = kafka.client, plan.output.commit_topic
    needed = _partitions_to_create(plan)
    try:
        found = _partitions(client, topic)
        if found is None:
            _create(client, plan)
            return
        _check_settings(client, plan, found)
        if len(found) < needed:
            added = client.create_partitions([NewPartitions(topic, needed)])
            answer(added[topic], _CREATE_SECONDS)
            _log.info("commit_topic_extended", topic=topic, partitions=needed)
    except KafkaException as error:
        raise _refusal(error, plan, kafka.access) from error


def check_commit_topic_settings(plan: JoinPlan, kafka: KafkaAdmin) -> None:
    """Raises TopicError if `prepare_commit_topic` would refuse the existing topic. Changes
    nothing."""
    if plan.output.delivery is not Delivery.EXACTLY_ONCE:
        return
    try:
        if (found := _partitions(kafka.client, plan.output.commit_topic)) is not None:
            _check_settings(kafka.client, plan, found)
    except KafkaException as error:
        raise _refusal(error, plan, kafka.access) from error


def check_commit_topic(plan: JoinPlan, kafka: KafkaAdmin) -> None:
    """Raises TopicError if a start would refuse the commit topic, or cannot create it. Changes
    nothing."""
    if plan.output.delivery is not Delivery.EXACTLY_ONCE:
        return
    client = kafka.client
    try:
        found = _partitions(client, plan.output.commit_topic)
        if found is None:
            created = client.create_topics([_new_topic(plan)], validate_only=True)
            answer(created[plan.output.commit_topic])
            return
        _check_partitions(len(found), plan)
        _check_settings(client, plan, found)
    except KafkaException as error:
        raise _refusal(error, plan, kafka.access) from error


def _partitions(client: AdminClient, topic: str) -> list[Any] | None:
    """None: the topic does not exist."""
    topics = client.describe_topics(TopicCollection([topic]), request_timeout=ANSWER_SECONDS)
    try:
        return list(answer(topics[topic]).partitions)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def new_commit_topic(plan: JoinPlan) -> NewTopic | None:
    """None: at-least-once delivery has no commit topic."""
    if plan.output.delivery is not Delivery.EXACTLY_ONCE:
        return None
    return _new_topic(plan)


def _new_topic(plan: JoinPlan) -> NewTopic:
    return NewTopic(plan.output.commit_topic, _partitions_to_create(plan), config=_SETTINGS)


def _create(client: AdminClient, plan: JoinPlan) -> None:
    topic = plan.output.commit_topic
    new = _new_topic(plan)
    created = client.create_topics([new], operation_timeout=_CREATE_SECONDS)
    try:
        answer(created[topic], _CREATE_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    _log.info("commit_topic_created", topic=topic, partitions=_partitions_to_create(plan))


def dead_letter_partition(plan: JoinPlan) -> int:
    """The partition after those of the state partitions."""
    return plan.state_partitions


def _partitions_to_create(plan: JoinPlan) -> int:
    """Includes the partition for dead letters, which the spec may add later."""
    return dead_letter_partition(plan) + 1


def _check_partitions(partitions: int, plan: JoinPlan) -> None:
    topic, needed = plan.output.commit_topic, plan.state_partitions
    others = ""
    if plan.dead_letter is not None:
        needed, others = dead_letter_partition(plan) + 1, " and one for dead letters"
    if partitions < needed:
        raise TopicError(
            f"output.commit_topic {topic} has {partitions} partitions and must have one for each "
            f"of the {plan.state_partitions} state partitions{others}: kafka-topics.sh "
            f"--bootstrap-server {plan.bootstrap_servers} --alter --topic {topic} "
            f"--partitions {needed}"
        )


def _check_settings(client: AdminClient, plan: JoinPlan, partitions: list[Any]) -> None:
    """A topic that is not compacted loses markers, or keeps them all."""
    topic = plan.output.commit_topic
    try:
        settings = topic_settings(client, topic)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        _log.warning("commit_topic_not_checked", topic=topic, reason=describe_error(error))
        return
    policy = settings.get("cleanup.policy", "compact")
    if policy != "compact":
        raise TopicError(
            f"output.commit_topic {topic} has cleanup.policy={policy} and would lose its markers: "
            f"{alteration(plan, topic, 'cleanup.policy=compact')}"
        )
    needed = _MARKER_BYTES_MAX if plan.real_time is None else _PART_BYTES_MAX
    if bytes_max(settings) < needed:
        raise TopicError(too_small(plan, "output.commit_topic", topic, settings, needed))
    replicas = min(len(partition.replicas) for partition in partitions)
    found = TopicSettings(topic, settings)
    for refusal in replica_refusals(plan, "output.commit_topic", found, replicas):
        raise TopicError(refusal)


def _refusal(error: KafkaException, plan: JoinPlan, access: KafkaAccess) -> StreamjoinError:
    if error.args[0].code() in {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_REPLICATION_FACTOR,
    }:
        return TopicError(
            f"output.commit_topic {plan.output.commit_topic} cannot be created "
            f"({describe_error(error)}). A user with the right to create topics can run\n"
            f"  kafka-topics.sh --bootstrap-server {plan.bootstrap_servers} --create --topic "
            f"{plan.output.commit_topic} --partitions {_partitions_to_create(plan)} "
            "--config cleanup.policy=compact"
        )
    return no_broker(access, error)
