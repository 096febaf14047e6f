"""Creates the topics that a spec names: `streamjoin topics create`.

Partitions and replicas are the broker's defaults, except for the commit topic. Existing topics stay
as they are. Meant for the demo and for trials: in production, create topics with partitions and
replicas of your choice.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from job.errors import StreamjoinError, TopicError
from job.kafka.clients import NewTopic, answer, describe_error, no_broker, unresolved_hosts
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.security import kafka_access
from job.plan.plan import JoinPlan
from job.spec.sides import SIDES
from job.waiting import wait_until

# A broker takes seconds to start, on a busy machine a minute or more.
BROKER_SECONDS = 120.0
RESOLVE_SECONDS = 10.0
ANSWER_SECONDS = 2.0
PAUSE_SECONDS = 0.2


@dataclass(frozen=True)
class UsedTopic:
    role: str
    """What the topic is for the join, e.g. `left input`."""
    name: str
    is_new: bool


def create_missing_topics(
    plan: JoinPlan,
    commits: NewTopic | None,
    report: Callable[[str], None],
    *,
    with_inputs: bool,
) -> list[UsedTopic]:
    """Create the plan's topics that do not exist. Returns all topics of the plan.

    `commits`: the commit topic, with its settings. None: the plan has none. `report` is called with
    what the call waits for. `with_inputs`: also create the inputs. Otherwise TopicError if one does
    not exist: its name may be misspelled, and the join would wait for its records indefinitely.

    Waits up to BROKER_SECONDS for a broker that is still starting, then raises BrokerError; for
    a host without an address only RESOLVE_SECONDS. Raises TopicError where the broker refuses a
    topic.
    """
    kafka = KafkaAdmin(kafka_access(plan.bootstrap_servers, plan.security))
    existing = _existing_topics(kafka, report)
    if not with_inputs:
        _check_inputs(plan, existing)
    used = _topics_of(plan, commits)
    missing = [new for name, (_, new) in used.items() if name not in existing]
    if missing:
        _await_creation(kafka.client.create_topics(missing, request_timeout=BROKER_SECONDS))
    return [UsedTopic(role, name, name not in existing) for name, (role, _) in used.items()]


def _check_inputs(plan: JoinPlan, existing: set[str]) -> None:
    missing = [
        f"{side}: topic {name}"
        for side in SIDES
        for name in plan.side(side).topics.names
        if name not in existing
    ]
    if missing:
        raise TopicError(
            f"these inputs do not exist at {plan.bootstrap_servers}: {', '.join(missing)}. No "
            "topic was created. Correct the names in the spec, or create inputs, too, with --inputs"
        )


def _topics_of(plan: JoinPlan, commits: NewTopic | None) -> dict[str, tuple[str, NewTopic]]:
    """Role of each topic, and what it is created as, by name."""
    roles: dict[str, list[str]] = {}
    for side in SIDES:
        for name in plan.side(side).topics.names:
            roles.setdefault(name, []).append(side)
    used = {name: f"{' and '.join(sides)} input" for name, sides in roles.items()}
    used[plan.output.topic] = "output"
    if plan.dead_letter:
        used[plan.dead_letter.topic] = "dead letters"
    topics = {
        name: (role, NewTopic(name, num_partitions=-1, replication_factor=-1))
        for name, role in used.items()
    }
    if commits is not None:
        topics[commits.topic] = ("commit topic", commits)
    return topics


def _existing_topics(kafka: KafkaAdmin, report: Callable[[str], None]) -> set[str]:
    existing: set[str] = set()
    failures: list[StreamjoinError] = []
    began = time.monotonic()

    def has_answered() -> bool:
        try:
            existing.update(kafka.client.list_topics(timeout=ANSWER_SECONDS).topics)
        except KafkaException as error:
            kafka.raise_refusal()
            failures.append(no_broker(kafka.access, error))
            if len(failures) == 1:
                report(f"{failures[0]}. Waiting up to {BROKER_SECONDS:.0f} s for a broker")
            # The name of a container that is not started yet has no address.
            if time.monotonic() - began > RESOLVE_SECONDS:
                return bool(unresolved_hosts(kafka.access.bootstrap_servers))
            return False
        failures.clear()
        return True

    has_ended = wait_until(has_answered, BROKER_SECONDS, PAUSE_SECONDS)
    if failures or not has_ended:
        raise failures[-1]
    return existing


def _await_creation(created: dict[str, Future[None]]) -> None:
    for name, future in created.items():
        try:
            answer(future, BROKER_SECONDS)
        except KafkaException as error:
            # Another client created it in the meantime.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicError(f"cannot create topic {name}: {describe_error(error)}") from error
