"""The commit topic before the first batch: made where it is missing, checked where it is there."""

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AdminClient,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from job.errors import BrokerError, StreamjoinError, TopicError
from job.join_spec.spec import Delivery
from job.kafka.security import KafkaAccess, librdkafka_settings
from job.plan.plan import JoinPlan

_ANSWER_SECONDS = 10.0
_CREATE_SECONDS = 30.0

# Only closed segments are compacted. Two records a batch and partition: a day or so of them.
_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(16 * 2**20)}

_log = structlog.get_logger()


def create_commit_topic_if_used(plan: JoinPlan, access: KafkaAccess) -> None:
    """Does nothing for at-least-once delivery, which has no commit topic.

    Raises TopicError with the command that helps if the topic cannot be created or does not fit.
    """
    if plan.output.delivery is not Delivery.EXACTLY_ONCE:
        return
    client = AdminClient({**librdkafka_settings(access), "log_level": 0})
    topic = plan.output.commit_topic
    try:
        partitions = _partitions(client, topic)
        if partitions is None:
            _create(client, plan)
            return
        _check_partitions(partitions, plan)
        _check_compaction(client, plan)
    except KafkaException as error:
        raise _refusal(error.args[0], plan) from error


def _partitions(client: AdminClient, topic: str) -> int | None:
    answer = client.describe_topics(TopicCollection([topic]), request_timeout=_ANSWER_SECONDS)
    try:
        return len(answer[topic].result().partitions)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None
        raise


def _create(client: AdminClient, plan: JoinPlan) -> None:
    topic = plan.output.commit_topic
    new = NewTopic(topic, _partitions_made(plan), config=_SETTINGS)
    asked = client.create_topics([new], operation_timeout=_CREATE_SECONDS)
    try:
        asked[topic].result(_CREATE_SECONDS)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    _log.info("commit_topic_created", topic=topic, partitions=_partitions_made(plan))


def dead_letter_partition(plan: JoinPlan) -> int:
    """Behind those of the state partitions."""
    return plan.state_partitions


def _partitions_made(plan: JoinPlan) -> int:
    """With one for the dead letters, which may be wanted later."""
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


def _check_compaction(client: AdminClient, plan: JoinPlan) -> None:
    """A topic that is not compacted forgets markers, or keeps them all."""
    topic = plan.output.commit_topic
    resource = ConfigResource(ResourceType.TOPIC, topic)
    asked = client.describe_configs([resource], request_timeout=_ANSWER_SECONDS)
    try:
        policy = asked[resource].result()["cleanup.policy"].value
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise
        _log.warning("commit_topic_not_checked", topic=topic, reason=error.args[0].str())
        return
    if policy != "compact":
        raise TopicError(
            f"output.commit_topic {topic} has cleanup.policy={policy} and would forget what has "
            f"been delivered: kafka-configs.sh --bootstrap-server {plan.bootstrap_servers} --alter "
            f"--topic {topic} --add-config cleanup.policy=compact"
        )


def _refusal(error: KafkaError, plan: JoinPlan) -> StreamjoinError:
    if error.code() in {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.POLICY_VIOLATION,
        KafkaError.INVALID_REPLICATION_FACTOR,
    }:
        return TopicError(
            f"output.commit_topic {plan.output.commit_topic} cannot be made ({error.str()}); "
            f"whoever may, can say\n  kafka-topics.sh --bootstrap-server {plan.bootstrap_servers} "
            f"--create --topic {plan.output.commit_topic} --partitions {_partitions_made(plan)} "
            "--config cleanup.policy=compact"
        )
    return BrokerError(
        f"no broker answers at {plan.bootstrap_servers} ({error.str()}): is it up, and is "
        "kafka.bootstrap_servers right as seen from here?"
    )
