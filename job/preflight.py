"""What must be true of Kafka before the query starts, asked of the broker itself."""

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from job.errors import BrokerError, TopicError
from job.plan import JoinPlan

# The first answer of a broker under load on a small machine; long enough not to cry wolf.
ANSWER_SECONDS = 10.0


def check_topics(plan: JoinPlan) -> None:
    """All topics exist: BrokerError where no broker answers, TopicError naming what is missing."""
    present = _topics(plan.bootstrap_servers)
    roles = {
        plan.left.topic: "left.topic",
        plan.right.topic: "right.topic",
        plan.output.topic: "output.topic",
    }
    missing = {topic: role for topic, role in roles.items() if topic not in present}
    if missing:
        lines = [
            f"  {role} {topic}: kafka-topics.sh --bootstrap-server {plan.bootstrap_servers} "
            f"--create --topic {topic} --partitions 4"
            for topic, role in missing.items()
        ]
        raise TopicError(
            f"no such topic on {plan.bootstrap_servers}; make it with\n" + "\n".join(lines)
        )


def _topics(bootstrap_servers: str) -> set[str]:
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    try:
        found = client.list_topics(timeout=ANSWER_SECONDS).topics
    except KafkaException as error:
        raise BrokerError(
            f"no broker answers at {bootstrap_servers} ({error.args[0].str()}): is it up, and is "
            "kafka.bootstrap_servers right as seen from here?"
        ) from error
    return {name for name, topic in found.items() if topic.error is None}
