"""The topics that match the `topic_pattern` of a side, at the start of the query."""

from collections.abc import Mapping

import structlog

from job.errors import TopicError
from job.kafka.clients import ANSWER_SECONDS, AdminClient
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.reset_remedy import reset_remedy
from job.kafka.security import KafkaAccess
from job.plan.fingerprint import recorded_topics
from job.plan.plan import JoinPlan
from job.spec.sides import SIDES, Side

# Prefix of Kafka's internal topics, and by convention of topics of tools.
_INTERNAL = "__"

_log = structlog.get_logger()


def with_matching_topics(
    plan: JoinPlan, frozen: Mapping[str, str] | None, kafka: KafkaAdmin
) -> JoinPlan:
    """The plan with the topics of its patterns: first the topics of the checkpoint, in their order.

    `frozen`: settings of the checkpoint. None: there is no checkpoint. Raises TopicError if no
    topic matches, if too many topics match, or if a topic of the checkpoint is missing;
    BrokerError.
    """
    with kafka.raising_broker_error() as client:
        matching = matching_topics(client, plan)
    topics, access = recorded_topics(plan, frozen), kafka.access
    for side, names in matching.items():
        known = topics[side]
        topics[side] = known.with_added(names)
        if missing := set(known.names) - names:
            raise TopicError(_missing(side, sorted(missing), access))
        if not names:
            raise TopicError(
                f"{side}.topic_pattern: no topic on {access.bootstrap_servers} matches "
                f"{known.pattern}: create one, or correct the pattern. The pattern must match the "
                "whole name, and the job needs the right to describe the topic"
            )
        if added := topics[side].names[len(known.names) :]:
            _log.info("topics_added", side=side, topics=added, reason=f"they match {known.pattern}")
    return plan.with_topics(topics)


def matching_topics(client: AdminClient, plan: JoinPlan) -> dict[Side, set[str]]:
    """The topics that match, for each side with a pattern. Raises KafkaException."""
    written = {plan.output.topic, plan.output.commit_topic}
    if plan.dead_letter is not None:
        written.add(plan.dead_letter.topic)
    names = {
        name
        for name in client.list_topics(timeout=ANSWER_SECONDS).topics
        if name not in written and not name.startswith(_INTERNAL)
    }
    return {
        side: {name for name in names if plan.side(side).topics.matches(name)}
        for side in SIDES
        if plan.side(side).topics.pattern is not None
    }


def _missing(side: Side, topics: list[str], access: KafkaAccess) -> str:
    return (
        f"{side}.topic_pattern: the query has read {', '.join(topics)}, and "
        f"{access.bootstrap_servers} has no such topic, or the job may not describe it: grant "
        "Describe on it. If the topic was deleted, its unread records are lost; to continue with "
        f"the other topics: {reset_remedy()}"
    )
