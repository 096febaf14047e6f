"""Checks before the query starts that no setting of a topic lets the broker refuse its records."""

from collections.abc import Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, KafkaException

from job.errors import TopicError
from job.kafka.clients import AdminClient, describe_error, no_broker, topic_settings
from job.kafka.kafka_admin import KafkaAdmin
from job.plan.plan import JoinPlan
from job.plan.tuning import DEAD_LETTER_BYTES_MIN, RESULT_BYTES_MIN
from job.spec.durations import duration_text, milliseconds

Settings = Mapping[str, str]

_DEFAULT_BYTES = 1_048_588  # Kafka's default
_UNLIMITED = 2**63 - 1

_UNREACHABLE = frozenset(
    {KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT, KafkaError._TRANSPORT}
)


@dataclass(frozen=True)
class TopicSettings:
    """Settings of a topic, as far as the user may read them."""

    topic: str
    values: Settings
    """Empty: the user may not read them."""
    error: str | None = None
    """Why the user may not read them."""


def read_settings(kafka: KafkaAdmin, topic: str) -> TopicSettings:
    """Raises BrokerError."""
    try:
        return TopicSettings(topic, topic_settings(kafka.client, topic))
    except KafkaException as error:
        reason: KafkaError = error.args[0]
        if reason.code() in _UNREACHABLE or reason.retriable():
            raise no_broker(kafka.access, error) from error
        return TopicSettings(topic, {}, describe_error(error))


def check_settings(
    plan: JoinPlan,
    output: TopicSettings,
    dead_letter: TopicSettings | None,
    replicas: Mapping[str, int],
) -> None:
    """Check the settings of output and dead-letter topic. Raises TopicError.

    `replicas`: of each topic, those of the partition with the fewest.
    """
    refusals = output_refusals(plan, output.values)
    refusals += replica_refusals(plan, "output.topic", output, replicas[output.topic])
    if dead_letter is not None:
        refusals += dead_letter_refusals(plan, dead_letter.values)
        fewest = replicas[dead_letter.topic]
        refusals += replica_refusals(plan, "dead_letter.topic", dead_letter, fewest)
    if refusals:
        raise TopicError("\n".join(refusals))


def bytes_max(settings: Settings) -> int:
    """The largest record that the topic accepts."""
    return int(settings.get("max.message.bytes", _DEFAULT_BYTES))


def is_compacted(settings: Settings) -> bool:
    """Whether the broker refuses records without a key."""
    return "compact" in settings.get("cleanup.policy", "")


def is_known_to_be_compacted(client: AdminClient, topic: str) -> bool:
    """False also without the right to read the settings."""
    try:
        return is_compacted(topic_settings(client, topic))
    except KafkaException:
        return False


def output_refusals(plan: JoinPlan, settings: Settings) -> list[str]:
    """Settings of the output topic with which the broker refuses or changes results."""
    topic, refusals = plan.output.topic, []
    if is_compacted(settings) and plan.output.key is None:
        refusals.append(
            f"output.key: is required, because output.topic {topic} is compacted and the broker "
            "refuses records without a key. Set it, or "
            f"run {alteration(plan, topic, 'cleanup.policy=delete')}"
        )
    if bytes_max(settings) < RESULT_BYTES_MIN:
        refusals.append(too_small(plan, "output.topic", topic, settings, RESULT_BYTES_MIN))
    if plan.output.has_event_time:
        refusals += _timestamp_refusals(plan, settings)
    return refusals


def _timestamp_refusals(plan: JoinPlan, settings: Settings) -> list[str]:
    """For results with their event time as timestamp."""
    if settings.get("message.timestamp.type") == "LogAppendTime":
        why = "the broker replaces the timestamp of each result"
        return [_timestamp_refusal(plan, settings, "message.timestamp.type", why, "CreateTime")]
    refusals = []
    # The second name is that of brokers before 4.0, which have one limit in both directions.
    for name in ("message.timestamp.before.max.ms", "message.timestamp.difference.max.ms"):
        if int(settings.get(name, _UNLIMITED)) < _UNLIMITED:
            why = "the broker refuses results with an older event time, such as those of a backlog"
            refusals.append(_timestamp_refusal(plan, settings, name, why, _UNLIMITED))
    name, shown = "message.timestamp.after.max.ms", plan.join_type.shown_sides
    ahead = max(plan.side(side).max_event_time_ahead for side in shown)
    if int(settings.get(name, _UNLIMITED)) < milliseconds(ahead):
        why = (
            "the broker refuses results with a later event time, which max_event_time_ahead "
            f"({duration_text(ahead)}) allows"
        )
        refusals.append(_timestamp_refusal(plan, settings, name, why, milliseconds(ahead)))
    return refusals


def _timestamp_refusal(
    plan: JoinPlan, settings: Settings, name: str, why: str, needed: str | int
) -> str:
    topic = plan.output.topic
    return (
        f"output.timestamp: is event_time, and output.topic {topic} has {name}={settings[name]}: "
        f"{why}. Set it to processing_time, or run {alteration(plan, topic, f'{name}={needed}')}"
    )


def dead_letter_refusals(plan: JoinPlan, settings: Settings) -> list[str]:
    """Settings of the dead-letter topic with which the broker refuses or removes dead letters."""
    assert plan.dead_letter is not None
    topic, refusals = plan.dead_letter.topic, []
    if is_compacted(settings):
        refusals.append(
            f"dead_letter.topic: {topic} has cleanup.policy={settings['cleanup.policy']}, and the "
            "broker refuses dead letters without a key and removes others. Run "
            f"{alteration(plan, topic, 'cleanup.policy=delete')}"
        )
    if bytes_max(settings) < DEAD_LETTER_BYTES_MIN:
        smallest = DEAD_LETTER_BYTES_MIN
        refusals.append(too_small(plan, "dead_letter.topic", topic, settings, smallest))
    return refusals


def replica_refusals(
    plan: JoinPlan, field: str, settings: TopicSettings, replicas: int
) -> list[str]:
    """Refusal of a topic that never has the in-sync replicas that each write needs.

    Brokers from 3.7 on need at most the replicas that a partition has (KAFKA-15583). Brokers before
    3.6 are known by the setting that they lack. No setting distinguishes 3.6 from 3.7.
    """
    topic, values = settings.topic, settings.values
    needed = int(values.get("min.insync.replicas", 1))
    if needed <= replicas or "message.timestamp.before.max.ms" in values:
        return []
    change = alteration(plan, topic, f"min.insync.replicas={replicas}")
    return [
        (
            f"{field}: {topic} has min.insync.replicas={needed} and a partition with only "
            f"{replicas} replicas, so the broker refuses each record (NOT_ENOUGH_REPLICAS). Add "
            f"replicas with kafka-reassign-partitions.sh, or run {change}"
        )
    ]


def too_small(plan: JoinPlan, field: str, topic: str, settings: Settings, needed: int) -> str:
    """The refusal of a topic that does not accept the smallest writes of the job."""
    return (
        f"{field}: {topic} has max.message.bytes={bytes_max(settings)}, and must accept {needed} "
        f"bytes at once. Run {alteration(plan, topic, f'max.message.bytes={_DEFAULT_BYTES}')}"
    )


def alteration(plan: JoinPlan, topic: str, setting: str) -> str:
    """The command that changes a setting of a topic."""
    return (
        f"kafka-configs.sh --bootstrap-server {plan.bootstrap_servers} --alter --topic {topic} "
        f"--add-config {setting}"
    )
