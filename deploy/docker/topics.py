"""Makes the topics that a spec names where they are not there yet, as a start would have them.

    python -m deploy.docker.topics SPEC

Partitions and replicas are the broker's defaults. It waits for a broker that is still starting.
What is there stays as it is. For the demo and for trying: where topics are somebody's care, they
are made with care.
"""

import os
import sys
import time
from concurrent.futures import Future
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its own re-exports
    AdminClient,
    NewTopic,
)

from job.errors import StreamjoinError, TopicError
from job.formats.pinning import reader_schemas
from job.join_spec.model import spec_from_yaml
from job.kafka.security import kafka_access, librdkafka_settings
from job.plan.model import JoinPlan
from job.plan.planner import join_plan

# A broker takes seconds to start, on a busy machine many.
BROKER_SECONDS = 120.0
ANSWER_SECONDS = 2.0
PAUSE_SECONDS = 0.2


def make_topics(plan: JoinPlan) -> list[str]:
    """The names of those that were made."""
    access = kafka_access(plan.bootstrap_servers, plan.security)
    admin = AdminClient({**librdkafka_settings(access), "log_level": 0})
    there = topics_there(admin)
    missing = [name for name in topics_of(plan) if name not in there]
    if missing:
        wanted = [NewTopic(name, num_partitions=-1, replication_factor=-1) for name in missing]
        _settle(admin.create_topics(wanted, request_timeout=BROKER_SECONDS))
    return missing


def topics_of(plan: JoinPlan) -> list[str]:
    names = [plan.left.topic, plan.right.topic, plan.output.topic]
    if plan.dead_letter:
        names.append(plan.dead_letter.topic)
    return list(dict.fromkeys(names))


def topics_there(admin: AdminClient) -> set[str]:
    """Waits for the broker."""
    deadline = time.monotonic() + BROKER_SECONDS
    while True:
        try:
            return set(admin.list_topics(timeout=ANSWER_SECONDS).topics)
        except KafkaException as error:
            if time.monotonic() > deadline:
                raise TopicError(f"Kafka does not answer: {error.args[0].str()}") from error
        time.sleep(PAUSE_SECONDS)


def _settle(made: dict[str, Future[None]]) -> None:
    for name, future in made.items():
        try:
            future.result()
        except KafkaException as error:
            # Somebody else has made it just now.
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise TopicError(f"cannot make topic {name}: {error.args[0].str()}") from error


def main() -> int:
    path = Path(sys.argv[1])
    try:
        spec = spec_from_yaml(path.read_text(), os.environ)
        readers = reader_schemas(spec, only_missing=True)
        made = make_topics(join_plan(spec, state_partitions=1, readers=readers))
    except (OSError, StreamjoinError) as error:
        print(f"{path}: {error}", file=sys.stderr)  # noqa: T201  # for a person
        return 1
    print(f"made: {', '.join(made) or 'none, all are there'}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
