"""Compares the topics of a query with the topic ids in its checkpoint.

A topic that was deleted and created again has its old name and another topic id (KIP-516). Spark
stores offsets by name only: in the new topic it skips as many records as it has read from the old
one. The ids are compared at each start, when a paused query is resumed, and by the broker watch.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import structlog
from confluent_kafka import KafkaError, KafkaException, TopicCollection, Uuid

from job.errors import CheckpointError, RetentionError, StreamjoinError
from job.event_time.partitions import Offsets
from job.kafka.clients import ANSWER_SECONDS, AdminClient, answer
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.reset_remedy import reset_remedy
from job.kafka.security import KafkaAccess
from job.plan.plan import JoinPlan
from job.spec.output import Delivery
from job.spec.sides import SIDES, Side

# A topic that cannot be described at present; its absence is reported by other checks.
_NOT_DESCRIBED = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.TOPIC_AUTHORIZATION_FAILED}
)

_ZERO = "A" * 22  # the id that brokers before Kafka 2.8 return, as printed

_log = structlog.get_logger()


@dataclass(frozen=True)
class Topic:
    id: str | None
    """As Kafka's tools print it. None: the broker has no topic ids (before Kafka 2.8)."""
    partitions: int


class TopicIdentity:
    """Used by the query runner's thread and by that of the broker watch."""

    def __init__(self, plan: JoinPlan, read: Callable[[], Offsets | None]) -> None:
        """`read`: next offsets to read; None: no batch has ended."""
        self.failure: StreamjoinError | None = None
        """Why the running query must end. None: its topics are unchanged."""
        self._plan = plan
        """Until the first call of `begin`, without the topics of patterns."""
        self._read = read
        self._lock = threading.Lock()
        self._expected: dict[str, str] = {}
        self._has_warned = False

    def begin(
        self,
        plan: JoinPlan,
        kafka: KafkaAdmin,
        recorded: Mapping[str, str],
        create: Callable[[], None],
    ) -> Mapping[str, str]:
        """Compare the topics with the ids `recorded` in the checkpoint; return the ids to record.

        `plan`: the plan of the run, with all its topics. `create` creates the topics that the job
        creates itself; they are recorded, too. Raises RetentionError (input topic),
        CheckpointError (commit topic) or BrokerError.

        The topics are described again: since the snapshot of the start, the job may have waited for
        the JVM and for executors. A topic that was created again meanwhile must be refused here,
        because the broker watch would detect it only after the query has read some records.
        """
        with self._lock:
            self.failure = None
            self._plan = plan
            used = _used(self._plan)
            self._expected = {topic: recorded[topic] for topic in recorded if topic in used}
            described = _described(kafka, used)
            self._compare(described)
            check_commit_topic(self._plan, self._expected, described)
            create()
            if not used <= described.keys():
                described = {**_described(kafka, used), **described}
            self._expected |= {
                name: topic.id for name, topic in described.items() if topic.id is not None
            }
            self._warn_of_missing_ids(described)
            return dict(self._expected)

    def check(self, client: AdminClient) -> None:
        """Compare the topics of the running query; sets `failure`. Raises KafkaException."""
        with self._lock:
            if self._expected:
                try:
                    self._compare(topics(client, self._expected))
                except StreamjoinError as error:
                    self.failure = error

    def is_unchanged(self, access: KafkaAccess) -> bool:
        """Whether a paused query may be resumed; if not, `failure` is set."""
        with self._lock:
            try:
                self._compare(_described(KafkaAdmin(access), self._expected))
            except StreamjoinError as error:
                self.failure = error
        return self.failure is None

    def _compare(self, described: Mapping[str, Topic]) -> None:
        changed = {
            topic: _ids(expected, described[topic])
            for topic, expected in self._expected.items()
            if topic in described and described[topic].id not in {None, expected}
        }
        inputs = [
            side for side in SIDES if changed.keys() & set(self._plan.side(side).topics.names)
        ]
        if inputs:
            raise _input_topic_error(self._plan, inputs, changed, described, self._read())
        if self._plan.output.commit_topic in changed:
            check_commit_topic(self._plan, self._expected, described)
        for topic in changed:
            # An output or dead-letter topic contains no input of the join, so the query continues.
            _log.warning("topic_recreated", topic=topic, reason=changed[topic])
            self._expected[topic] = str(described[topic].id)

    def _warn_of_missing_ids(self, described: Mapping[str, Topic]) -> None:
        without = [name for name, topic in described.items() if topic.id is None]
        if without and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "topic_ids_unknown",
                topics=without,
                reason="the broker has no topic ids, so a topic that is deleted and created again "
                "is not detected",
            )


def topics(client: AdminClient, names: Iterable[str]) -> dict[str, Topic]:
    """Each topic that exists and may be described. Raises KafkaException."""
    requests = client.describe_topics(
        TopicCollection(sorted(names)), request_timeout=ANSWER_SECONDS
    )
    described = {}
    for name, request in requests.items():
        try:
            description = answer(request)
        except KafkaException as error:
            if error.args[0].code() not in _NOT_DESCRIBED:
                raise
        else:
            described[name] = Topic(_text(description.topic_id), len(description.partitions))
    return described


def _text(topic_id: Uuid) -> str | None:
    # confluent_kafka prints Base64 with + and /, Kafka's tools print it with - and _.
    text = str(topic_id).replace("+", "-").replace("/", "_")
    return None if text == _ZERO else text


def _used(plan: JoinPlan) -> set[str]:
    used = {*plan.input_topics, plan.output.topic}
    if plan.dead_letter is not None:
        used.add(plan.dead_letter.topic)
    if plan.output.delivery is Delivery.EXACTLY_ONCE:
        used.add(plan.output.commit_topic)
    return used


def _described(kafka: KafkaAdmin, names: Iterable[str]) -> dict[str, Topic]:
    with kafka.raising_broker_error() as client:
        return topics(client, names)


def _input_topic_error(
    plan: JoinPlan,
    sides: list[Side],
    changed: Mapping[str, str],
    described: Mapping[str, Topic],
    read: Offsets | None,
) -> RetentionError:
    lines = "\n".join(
        f"  {side}.topic {name} {changed[name]}"
        for side in sides
        for name in plan.side(side).topics.names
        if name in changed
    )
    if any(plan.side(side).topics.are_several for side in SIDES):
        read = None  # the offsets of a reset have no topic
    counts = {} if read is None else {s: described[plan.side(s).topic].partitions for s in sides}
    offsets = None  # those of partitions that no longer exist cannot be kept
    if read is not None and all(max(read[side], default=0) < counts[side] for side in sides):
        offsets = {side: dict.fromkeys(range(counts[side]), 0) for side in sides}
    return RetentionError(
        f"input topics were deleted and created again:\n{lines}\n"
        "The offsets in the checkpoint belong to the deleted topics, so records of the new ones "
        f"would be skipped. To read the new ones from the beginning: {reset_remedy(offsets)}"
    )


def check_commit_topic(
    plan: JoinPlan, recorded: Mapping[str, str], described: Mapping[str, Topic]
) -> None:
    """Raises CheckpointError if the commit topic was deleted or created again.

    `recorded`: ids of the topics in the checkpoint. A commit topic without an id is not checked.
    """
    topic = plan.output.commit_topic
    if (expected := recorded.get(topic)) is None:
        return
    if topic not in described:
        raise _commit_topic_error(plan, "was deleted")
    if described[topic].id not in {None, expected}:
        ids = _ids(expected, described[topic])
        raise _commit_topic_error(plan, f"was deleted and created again {ids}")


def _ids(expected: str, topic: Topic) -> str:
    return f"(topic id {expected} in the checkpoint, {topic.id} on the broker)"


def _commit_topic_error(plan: JoinPlan, what: str) -> CheckpointError:
    return CheckpointError(
        f"output.commit_topic {plan.output.commit_topic} {what}: the markers of delivered "
        "results are lost, so results could be delivered twice. To continue, run with `delivery: "
        "at_least_once` until a batch has ended (its results may be delivered twice), then with "
        f"exactly_once again; or reset the query: {reset_remedy()}"
    )
