"""Topics that were deleted and created again, by their topic ids."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
import structlog
from confluent_kafka import KafkaError, KafkaException, Uuid

from job.errors import BrokerError, CheckpointError, RetentionError
from job.kafka import kafka_admin, topic_ids
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.security import KafkaAccess
from job.kafka.topic_ids import Topic, TopicIdentity
from tests.unit.specs import plan

ACCESS = KafkaAccess("localhost:9092")
CLIENT: Any = None
NAMES = ("impressions", "clicks", "attributed", "dead", "tested.commits")
PLAN = plan(output__delivery="exactly_once", on_bad_record=None, dead_letter={"topic": "dead"})


@dataclass
class Broker:
    topics: dict[str, Topic] = field(
        default_factory=lambda: {name: Topic(f"{name}-1", 2) for name in NAMES}
    )
    is_away: bool = False

    def recreate(self, name: str, partitions: int = 2) -> None:
        self.topics[name] = Topic(f"{name}-2", partitions)

    def answer(self, client: Any, names: Iterable[str]) -> dict[str, Topic]:
        del client
        if self.is_away:
            raise KafkaException(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        return {name: self.topics[name] for name in names if name in self.topics}

    @property
    def ids(self) -> dict[str, str]:
        return {name: str(topic.id) for name, topic in self.topics.items()}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    made = Broker()
    monkeypatch.setattr(topic_ids, "topics", made.answer)
    monkeypatch.setattr(kafka_admin, "admin", lambda _: CLIENT)
    return made


@pytest.fixture
def identity() -> TopicIdentity:
    return TopicIdentity(PLAN, read=lambda: {"left": {0: 5, 1: 7}, "right": {0: 1, 1: 1}})


def nothing() -> None:
    """The commit topic is there."""


def test_ids_are_recorded_at_the_first_start_with_that_of_the_topic_the_job_creates(
    broker: Broker, identity: TopicIdentity
) -> None:
    commits = broker.topics.pop("tested.commits")
    found = identity.begin(
        PLAN, KafkaAdmin(ACCESS), {}, lambda: broker.topics.update({"tested.commits": commits})
    )

    assert broker.ids == found
    assert found == identity.begin(PLAN, KafkaAdmin(ACCESS), found, nothing)


def test_topic_that_is_no_longer_used_is_removed(broker: Broker, identity: TopicIdentity) -> None:
    assert broker.ids == identity.begin(
        PLAN, KafkaAdmin(ACCESS), {"old.dead": "x", "dead": "dead-1"}, nothing
    )


def test_input_that_was_created_again_is_refused_with_the_command_that_helps(
    broker: Broker, identity: TopicIdentity
) -> None:
    recorded = broker.ids
    broker.recreate("clicks")
    with pytest.raises(RetentionError) as refusal:
        identity.begin(PLAN, KafkaAdmin(ACCESS), recorded, nothing)
    for text in (
        "right.topic clicks (topic id clicks-1 in the checkpoint, clicks-2 on the broker)",
        "then `streamjoin reset SPEC --right 0=0,1=0`, then `streamjoin resume SPEC`",
    ):
        assert text in str(refusal.value)

    broker.recreate("clicks", partitions=1)
    with pytest.raises(RetentionError, match="streamjoin reset SPEC --start earliest"):
        identity.begin(PLAN, KafkaAdmin(ACCESS), recorded, nothing)


@pytest.mark.parametrize("is_there", [True, False], ids=["created again", "deleted"])
def test_commit_topic_that_was_deleted_is_refused_before_another_is_created(
    broker: Broker, identity: TopicIdentity, *, is_there: bool
) -> None:
    recorded = broker.ids
    if is_there:
        broker.recreate("tested.commits")
    else:
        del broker.topics["tested.commits"]

    def create() -> None:
        raise AssertionError("the commit topic must not be created")

    with pytest.raises(CheckpointError, match=r"tested\.commits was deleted.*at_least_once"):
        identity.begin(PLAN, KafkaAdmin(ACCESS), recorded, create)


@pytest.mark.parametrize("topic", ["dead", "attributed"])
def test_recreated_topic_that_is_only_written_is_logged_once_and_recorded(
    broker: Broker, identity: TopicIdentity, topic: str
) -> None:
    recorded = identity.begin(PLAN, KafkaAdmin(ACCESS), broker.ids, nothing)
    broker.recreate(topic)
    with structlog.testing.capture_logs() as logs:
        identity.check(CLIENT)
        identity.check(CLIENT)
        assert broker.ids == identity.begin(PLAN, KafkaAdmin(ACCESS), recorded, nothing)

    assert identity.failure is None
    assert [("topic_recreated", topic)] * 2 == [(log["event"], log["topic"]) for log in logs]


def test_topic_that_is_created_again_while_the_query_runs_or_rests_is_a_failure(
    broker: Broker, identity: TopicIdentity
) -> None:
    identity.check(CLIENT)  # before the first start there is nothing to compare with
    identity.begin(PLAN, KafkaAdmin(ACCESS), {}, nothing)
    identity.check(CLIENT)
    assert identity.failure is None
    assert identity.is_unchanged(ACCESS)

    broker.recreate("impressions")
    identity.check(CLIENT)
    assert isinstance(identity.failure, RetentionError)

    identity.begin(PLAN, KafkaAdmin(ACCESS), {}, nothing)  # after a reset
    assert identity.failure is None
    broker.recreate("impressions", partitions=3)
    broker.topics["impressions"] = Topic("impressions-3", 3)
    assert not identity.is_unchanged(ACCESS)
    assert isinstance(identity.failure, RetentionError)


def test_paused_query_is_not_resumed_while_no_broker_answers(
    broker: Broker, identity: TopicIdentity
) -> None:
    identity.begin(PLAN, KafkaAdmin(ACCESS), {}, nothing)
    broker.is_away = True

    assert not identity.is_unchanged(ACCESS)
    assert isinstance(identity.failure, BrokerError)


def test_broker_without_topic_ids_is_logged_once_and_its_topics_are_taken(
    broker: Broker, identity: TopicIdentity
) -> None:
    recorded = broker.ids
    broker.topics = {name: Topic(None, 2) for name in NAMES}
    with structlog.testing.capture_logs() as logs:
        assert {} == identity.begin(PLAN, KafkaAdmin(ACCESS), {}, nothing)
        assert recorded == identity.begin(PLAN, KafkaAdmin(ACCESS), recorded, nothing)
        identity.check(CLIENT)

    assert identity.failure is None
    assert ["topic_ids_unknown"] == [log["event"] for log in logs]


def test_id_is_printed_as_kafka_prints_it() -> None:
    assert "AAAAAAdbzRX_________-w" == topic_ids._text(Uuid(123456789, -5))
    assert topic_ids._text(Uuid(0, 0)) is None


def test_recreated_topic_of_several_is_named_with_a_command_that_the_job_accepts(
    broker: Broker,
) -> None:
    made = plan(left__topic=None, left__topics=["impressions", "clicks"], right__topic="dead")
    identity = TopicIdentity(made, read=lambda: {"left": {0: 5, 1024: 7}, "right": {0: 1}})
    identity.begin(made, KafkaAdmin(ACCESS), broker.ids, nothing)
    broker.recreate("clicks")
    del broker.topics["impressions"]
    identity.check(CLIENT)
    assert isinstance(identity.failure, RetentionError)
    assert "left.topic clicks (topic id clicks-1" in str(identity.failure)
    assert "streamjoin reset SPEC --start earliest" in str(identity.failure)
