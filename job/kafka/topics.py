"""Creates the topics that a spec names: `streamjoin topics create`.

Partitions and replicas are the broker's defaults. Existing topics stay as they are. Meant for the
demo and for trials: in production, create topics with partitions and replicas of your choice.
"""

from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException

from job.errors import TopicError
from job.kafka.clients import AdminClient, NewTopic, admin, answer, describe_error, no_broker
from job.kafka.security import KafkaAccess, kafka_access, librdkafka_settings
from job.plan.plan import JoinPlan
from job.spec.sides import SIDES
from job.waiting import wait_until

# A broker takes seconds to start, on a busy machine a minute or more.
BROKER_SECONDS = 120.0
ANSWER_SECONDS = 2.0
PAUSE_SECONDS = 0.2


def create_missing_topics(plan: JoinPlan, *, with_inputs: bool) -> list[str]:
    """Create the plan's topics that do not exist. Returns the names of the created topics.

    `with_inputs`: also the inputs. Otherwise TopicError if one does not exist: its name may be
    misspelled, and the join would wait for its records indefinitely.

    Waits up to BROKER_SECONDS for a broker that is still starting, then raises BrokerError.
    Raises TopicError where the broker refuses a topic.
    """
    access = kafka_access(plan.bootstrap_servers, plan.security)
    client = admin(librdkafka_settings(access))
    existing = _existing_topics(client, access)
    if not with_inputs:
        _check_inputs(plan, existing)
    missing = [name for name in _topics_of(plan) if name not in existing]
    if missing:
        wanted = [NewTopic(name, num_partitions=-1, replication_factor=-1) for name in missing]
        _await_creation(client.create_topics(wanted, request_timeout=BROKER_SECONDS))
    return missing


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


def _topics_of(plan: JoinPlan) -> list[str]:
    names = [*plan.left.topics.names, *plan.right.topics.names, plan.output.topic]
    if plan.dead_letter:
        names.append(plan.dead_letter.topic)
    return list(dict.fromkeys(names))


def _existing_topics(client: AdminClient, access: KafkaAccess) -> set[str]:
    existing: set[str] = set()
    failures: list[KafkaException] = []

    def has_answered() -> bool:
        try:
            existing.update(client.list_topics(timeout=ANSWER_SECONDS).topics)
        except KafkaException as error:
            failures.append(error)
            return False
        return True

    if not wait_until(has_answered, BROKER_SECONDS, PAUSE_SECONDS):
        raise no_broker(access, failures[-1])
    return existing


def _await_creation(created: dict[str, Future[None]]) -> None:
    for name, future in created.items():
        try:
            answer(future, BROKER_SECONDS)
        except KafkaException as error:
            # Another client created it in the meantime.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicError(f"cannot create topic {name}: {describe_error(error)}") from error
