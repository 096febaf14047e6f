"""Creates the topics that a spec names: `streamjoin topics create`.

Partitions and replicas are the broker's defaults. Existing topics stay as they are. Meant for the
demo and for trials: in production, create topics with partitions and replicas of your choice.
"""

import time
from concurrent.futures import Future

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AdminClient,
    NewTopic,
)

from job.errors import BrokerError, TopicError
from job.kafka.security import kafka_access, librdkafka_settings
from job.plan.plan import JoinPlan

# A broker takes seconds to start, on a busy machine many.
BROKER_SECONDS = 120.0
ANSWER_SECONDS = 2.0
PAUSE_SECONDS = 0.2


def create_missing_topics(plan: JoinPlan) -> list[str]:
    """Create the plan's topics that do not exist; the names of the created ones.

    Waits up to BROKER_SECONDS for a broker that is still starting, then raises BrokerError.
    Raises TopicError where the broker refuses a topic.
    """
    access = kafka_access(plan.bootstrap_servers, plan.security)
    admin = AdminClient({**librdkafka_settings(access), "log_level": 0})
    existing = _existing_topics(admin, plan.bootstrap_servers)
    missing = [name for name in _topics_of(plan) if name not in existing]
    if missing:
        wanted = [NewTopic(name, num_partitions=-1, replication_factor=-1) for name in missing]
        _await_creation(admin.create_topics(wanted, request_timeout=BROKER_SECONDS))
    return missing


def _topics_of(plan: JoinPlan) -> list[str]:
    names = [plan.left.topic, plan.right.topic, plan.output.topic]
    if plan.dead_letter:
        names.append(plan.dead_letter.topic)
    return list(dict.fromkeys(names))


def _existing_topics(admin: AdminClient, bootstrap_servers: str) -> set[str]:
    deadline = time.monotonic() + BROKER_SECONDS
    while True:
        try:
            return set(admin.list_topics(timeout=ANSWER_SECONDS).topics)
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"no broker answers at {bootstrap_servers} ({error.args[0].str()})"
                ) from error
        time.sleep(PAUSE_SECONDS)


def _await_creation(created: dict[str, Future[None]]) -> None:
    for name, future in created.items():
        try:
            future.result()
        except KafkaException as error:
            # Another client created it in the meantime.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicError(f"cannot create topic {name}: {error.args[0].str()}") from error
