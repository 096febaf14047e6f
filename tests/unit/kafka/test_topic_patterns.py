"""Topics of a `topic_pattern`: the topics that a start reads, their order, and refusals."""

from types import SimpleNamespace

import pytest

from job.errors import TopicError
from job.kafka import kafka_admin
from job.kafka.kafka_admin import KafkaAdmin
from job.kafka.security import KafkaAccess
from job.kafka.topic_patterns import with_matching_topics
from job.plan.fingerprint import changes, fingerprint, incompatible_changes, with_added_topics
from job.plan.plan import JoinPlan
from job.spec.source_topics import TOPICS_MAX, SourceTopics
from tests.unit.specs import plan

ACCESS = KafkaAccess("localhost:9092")


def of_pattern(pattern: str, **others: object) -> JoinPlan:
    return plan(left__topic=None, left__topic_pattern=pattern, **others)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of the topics that exist."""
    names = {"clicks", "attributed", "dead", "tested.commits", "__consumer_offsets"}
    client = SimpleNamespace(list_topics=lambda **_: SimpleNamespace(topics=names))
    monkeypatch.setattr(kafka_admin, "admin", lambda _: client)
    return names


def found(made: JoinPlan, frozen: JoinPlan | None = None) -> tuple[str, ...]:
    settings = None if frozen is None else fingerprint(frozen)
    return with_matching_topics(made, settings, KafkaAdmin(ACCESS)).left.topics.names


@pytest.mark.usefixtures("broker")
def test_topics_that_the_join_writes_and_internal_topics_are_ignored() -> None:
    made = of_pattern(".*", dead_letter={"topic": "dead"}, on_bad_record=None)
    assert ("clicks",) == found(made)


def test_pattern_matches_the_whole_name(broker: set[str]) -> None:
    broker |= {"orders", "orders_eu", "old_orders"}
    assert ("orders", "orders_eu") == found(of_pattern("orders.*"))
    assert ("orders",) == found(of_pattern("orders"))


def test_topics_are_read_by_one_source(broker: set[str]) -> None:
    broker |= {"eu", "us"}
    made = with_matching_topics(of_pattern("eu|us"), None, KafkaAdmin(ACCESS))
    assert "eu,us" == made.left.source_options["subscribe"]
    assert "clicks" == made.right.source_options["subscribe"]


def test_added_topics_follow_those_of_the_checkpoint(broker: set[str]) -> None:
    broker |= {"us", "asia", "eu"}
    before = plan(left__topic=None, left__topics=["us", "eu"])
    assert ("us", "eu", "asia") == found(of_pattern("us|eu|asia"), before)


def test_checkpoint_accepts_added_topics_and_no_others(broker: set[str]) -> None:
    broker |= {"us", "asia", "eu"}
    frozen = fingerprint(plan(left__topic=None, left__topics=["us", "eu"]))
    for pattern, wanted in (("us|eu|asia", []), ("us|asia", ["left.topic"])):
        made = with_matching_topics(of_pattern(pattern), frozen, KafkaAdmin(ACCESS))
        refused = changes(with_added_topics(frozen, made), fingerprint(made))
        assert wanted == [change.field for change in refused]
    listed = plan(left__topic=None, left__topics=["us", "eu", "asia"])
    refused = changes(with_added_topics(frozen, listed), fingerprint(listed))
    assert ["left.topic"] == [change.field for change in refused]


def test_pattern_is_compared_with_the_checkpoint_without_a_broker() -> None:
    frozen = fingerprint(plan(left__topic=None, left__topics=["us", "eu"]))
    assert [] == incompatible_changes(of_pattern("us|eu|asia"), frozen)
    refused = incompatible_changes(of_pattern("us|asia"), frozen)
    assert [("us, eu", "us")] == [(change.frozen, change.wanted) for change in refused]


def test_missing_topic_of_the_checkpoint_is_an_error(broker: set[str]) -> None:
    broker |= {"us"}
    before = plan(left__topic=None, left__topics=["us", "eu"])
    with pytest.raises(TopicError, match="the query has read eu, and"):
        found(of_pattern("us|eu"), before)


@pytest.mark.usefixtures("broker")
def test_pattern_without_a_topic_is_an_error() -> None:
    with pytest.raises(TopicError, match=r"left\.topic_pattern: no topic .* matches orders"):
        found(of_pattern("orders.*"))


def test_more_topics_than_a_position_can_hold_are_an_error(broker: set[str]) -> None:
    broker |= {f"t{number}" for number in range(TOPICS_MAX + 1)}
    with pytest.raises(TopicError, match=f"{TOPICS_MAX + 1} topics match topic_pattern t"):
        found(of_pattern("t.*"))


def test_partition_of_a_pattern_names_its_topic_also_if_it_is_the_only_one() -> None:
    topics = SourceTopics(("eu",), "eu.*")
    assert ("eu/3", 3) == (topics.label(3), topics.number("eu", 3))
    with pytest.raises(TopicError, match="more than 1024 partitions"):
        topics.number("eu", 1024)
