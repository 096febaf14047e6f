"""Checks before the query starts that the topics exist and that the job may use them.

The checks read the topics once. The rest of the start uses this snapshot, and the same admin client
for what must be read later.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from confluent_kafka import KafkaError, KafkaException

from job.errors import BrokerError, SecurityError, TopicError
from job.kafka import acls
from job.kafka.acls import Grant
from job.kafka.clients import AclOperation, answer, no_broker
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.security import KafkaAccess
from job.kafka.topic_settings import TopicSettings, check_settings, read_settings
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.spec.output import Delivery
from job.spec.sides import SIDES
from job.spec.source_topics import PARTITIONS_MAX

_OPERATIONS = {"Read": AclOperation.READ, "Write": AclOperation.WRITE}


@dataclass(frozen=True)
class TopicUse:
    """A topic, and the operations of the join on it."""

    field: str
    """Field of the spec."""
    topic: str
    operations: tuple[Literal["Read", "Write"], ...]
    is_created: bool = False
    """Whether the job creates the topic if it does not exist."""
    is_in_transactions: bool = False

    @property
    def grant(self) -> Grant:
        return Grant(self.operations, f"--topic {self.topic}")


@dataclass(frozen=True)
class TopicSizes:
    """Of the topics of a plan that exist."""

    partitions: Mapping[str, int]
    """Number of partitions of each topic."""
    replicas: Mapping[str, int]
    """Of each topic, the number of replicas of the partition with the fewest."""


@dataclass(frozen=True)
class TopicsSnapshot:
    """The topics of a plan, which `check_topics` has accepted."""

    kafka: KafkaAdmin
    """The client that has read the topics."""
    partitions: Mapping[str, int]
    """Number of partitions of each topic. A commit topic that does not exist is missing."""
    output: TopicSettings
    dead_letter: TopicSettings | None
    """None: the plan has no dead-letter topic."""

    def plan_with_partitions(self, plan: JoinPlan) -> JoinPlan:
        """The plan with the numbers of partitions of its input topics and its output topic."""
        output = replace(plan.output, partitions=self.partitions[plan.output.topic])
        return replace(plan, output=output).reading(
            {
                side: tuple(self.partitions[name] for name in plan.side(side).topics.names)
                for side in SIDES
            }
        )


def check_topics(plan: JoinPlan, kafka: KafkaAdmin) -> TopicsSnapshot:
    """Read and check all topics of the plan.

    Raises BrokerError if no broker answers or a partition has no leader, SecurityError if the
    broker refuses the login or denies access to a topic, TopicError if a topic does not exist, has
    too many partitions, or has settings with which the broker would refuse records.
    """
    sizes, error = find_topics(plan, kafka)
    if error is not None:
        raise error
    return check_found_topics(plan, kafka, sizes)


def check_found_topics(plan: JoinPlan, kafka: KafkaAdmin, sizes: TopicSizes) -> TopicsSnapshot:
    """As `check_topics`. `sizes`: of `find_topics`, which has found no error."""
    _check_partition_counts(plan, sizes.partitions)
    output = read_settings(kafka, plan.output.topic)
    letters = plan.dead_letter
    dead_letter = None if letters is None else read_settings(kafka, letters.topic)
    check_settings(plan, output, dead_letter, sizes.replicas)
    return TopicsSnapshot(kafka, sizes.partitions, output, dead_letter)


def _check_partition_counts(plan: JoinPlan, partitions: Mapping[str, int]) -> None:
    """With several topics on a side, the number of a partition has 10 bits."""
    for side in SIDES:
        topics = plan.side(side).topics
        for name in topics.names if topics.are_several else ():
            if partitions[name] > PARTITIONS_MAX:
                raise TopicError(
                    f"{side}.topics: topic {name} has {partitions[name]} partitions, and a side "
                    f"with several topics reads at most {PARTITIONS_MAX} of each: use a topic "
                    "with fewer partitions, or one topic on the side"
                )


def _topic_uses(plan: JoinPlan) -> list[TopicUse]:
    uses = [*_sources(plan.left), *_sources(plan.right)]
    written = partial(TopicUse, is_in_transactions=plan.output.delivery is Delivery.EXACTLY_ONCE)
    uses.append(written("output.topic", plan.output.topic, ("Write",)))
    if plan.dead_letter is not None:
        uses.append(written("dead_letter.topic", plan.dead_letter.topic, ("Write",)))
    if plan.output.delivery is Delivery.EXACTLY_ONCE:
        commits = plan.output.commit_topic
        uses.append(written("output.commit_topic", commits, ("Read", "Write"), is_created=True))
    return uses


def _sources(side: SidePlan) -> Iterator[TopicUse]:
    for index, name in enumerate(side.topics.names):
        field = f"topics[{index}]" if side.topics.are_several else "topic"
        if side.topics.pattern is not None:
            field = "topic_pattern"
        yield TopicUse(f"{side.side}.{field}", name, ("Read",))


def find_topics(
    plan: JoinPlan, kafka: KafkaAdmin
) -> tuple[TopicSizes, SecurityError | TopicError | None]:
    """Sizes of the topics that exist, and an error with all topics that the job cannot use; a
    SecurityError also has the other rights that are missing.

    Raises BrokerError if no broker answers, or if a partition of a transaction has no leader: the
    start would end older transactions, and Kafka 4.3.1 would leave the partition out.
    """
    uses = _topic_uses(plan)
    answers, access = kafka.described({use.topic for use in uses}), kafka.access
    missing, denied, without_leader = [], [], []
    partitions, replicas = {}, {}
    for use in uses:
        try:
            description = answer(answers[use.topic])
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                missing += [] if use.is_created else [use]
            elif code == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                denied.append(use)
            else:
                raise no_broker(access, error) from error
        else:
            partitions[use.topic] = len(description.partitions)
            replicas[use.topic] = min(len(part.replicas) for part in description.partitions)
            allowed = description.authorized_operations
            # Brokers before 2.3 do not return operations.
            if allowed and not {_OPERATIONS[name] for name in use.operations} <= set(allowed):
                denied.append(use)
            if use.is_in_transactions:
                without_leader += [
                    f"{use.topic}/{partition.id}"
                    for partition in description.partitions
                    if partition.leader is None
                ]
    if without_leader:
        raise BrokerError(
            f"partitions have no leader, so the brokers that store them are down: "
            f"{', '.join(without_leader)}. Start these brokers"
        )
    texts = []
    if denied:
        texts.append(
            acls.denied([(f"{use.field} {use.topic}", use.grant) for use in denied], plan, access)
        )
    if missing:
        texts.append(
            f"topics do not exist on {access.bootstrap_servers}; create them with "
            f"`streamjoin topics create SPEC{_inputs_option(missing)}`, or with\n"
            + "\n".join(_creations(missing, access))
        )
    sizes = TopicSizes(partitions, replicas)
    if not texts:
        return sizes, None
    return sizes, (SecurityError if denied else TopicError)("\n".join(texts))


def _inputs_option(missing: list[TopicUse]) -> str:
    """The command creates input topics only with this option."""
    return " --inputs" * any("Read" in use.operations and not use.is_created for use in missing)


def _creations(missing: list[TopicUse], access: KafkaAccess) -> Iterator[str]:
    for use in missing:
        yield (
            f"  {use.field} {use.topic}: kafka-topics.sh --bootstrap-server "
            f"{access.bootstrap_servers} --create --topic {use.topic}"
        )
