"""Several topics on a side: the fields of the spec, and the number of each partition."""

import pytest

from job.errors import SpecError, TopicError
from job.plan.fingerprint import fingerprint, incompatible_changes
from job.plan.position import partition_and_offset
from job.semantics.input_records import InputLineError, records_of_jsonl
from job.spec.source_topics import PARTITIONS_MAX, TOPICS_MAX, SourceTopics
from tests.sql_worker import ROWS
from tests.unit.specs import plan

ONE = SourceTopics(("eu",))
TWO = SourceTopics(("eu", "us"))


def test_partition_of_the_only_topic_has_its_own_number() -> None:
    assert (5_000, ("eu", 5_000), "5000") == (
        ONE.number("eu", 5_000),
        ONE.place(5_000),
        ONE.label(5_000),
    )
    assert ("partition", "'eu'") == (ONE.number_sql("topic", "partition"), ONE.topic_sql("n"))


def test_number_names_topic_and_partition() -> None:
    for topic in TWO.names:
        for partition in (0, 3, PARTITIONS_MAX - 1):
            assert (topic, partition) == TWO.place(TWO.number(topic, partition))
    assert "us/3" == TWO.label(TWO.number("us", 3))


def test_numbers_of_the_first_topic_are_those_of_a_single_topic() -> None:
    assert ONE.number("eu", 7) == TWO.number("eu", 7)


def test_largest_number_fits_into_a_position() -> None:
    topics = SourceTopics(tuple(f"t{index}" for index in range(TOPICS_MAX)))
    number = topics.number(topics.names[-1], PARTITIONS_MAX - 1)
    position = (number << 48) + 2**48 - 1
    assert position < 2**63
    assert (number, 2**48 - 1) == partition_and_offset(position)


def test_partition_whose_number_is_that_of_another_topic_is_refused() -> None:
    with pytest.raises(TopicError, match="more than 1024 partitions"):
        TWO.number("eu", PARTITIONS_MAX)


def test_offsets_of_spark_are_read_and_written_by_topic() -> None:
    offsets = {"eu": {"0": 1, "1": 2}, "us": {"0": 3}}
    assert {0: 1, 1: 2, 1024: 3} == TWO.numbered(offsets)
    assert {"eu": {0: 1, 1: 2}, "us": {0: 3}} == TWO.by_topic(TWO.numbered(offsets))


def test_topics_are_read_by_one_source() -> None:
    made = plan(left__topic=None, left__topics=["eu", "us"])
    assert "eu,us" == made.left.source_options["subscribe"]
    assert TWO == made.left.topics


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left__topic": None}, "has no topic"),
        ({"left__topics": ["eu"]}, "has topic and topics"),
        ({"left__topic_pattern": "eu.*"}, "has topic and topic_pattern"),
        ({"left__topic": None, "left__topic_pattern": "eu("}, "is not a regular expression"),
        (
            {
                "left__topic": None,
                "left__topic_pattern": "eu.*",
                "left__format": "avro",
                "schema_registry": {"url": "http://localhost:8081"},
            },
            "no `subject`",
        ),
        ({"left__topic": None, "left__topics": ["eu", "eu"]}, "same topic twice"),
        ({"left__topic": None, "left__topics": ["eu", "attributed"]}, "is also a topic of left"),
        ({"left__topic": None, "left__topics": []}, "left.topics"),
        (
            {
                "left__topic": None,
                "left__topics": ["eu", "us"],
                "left__format": "avro",
                "schema_registry": {"url": "http://localhost:8081"},
            },
            "no `subject`",
        ),
    ],
)
def test_unclear_topics_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        plan(**changes)


def test_checkpoint_freezes_the_topics_and_their_order() -> None:
    frozen = fingerprint(plan(left__topic=None, left__topics=["eu", "us"]))
    assert "eu, us" == frozen["left.topic"]
    assert TWO == SourceTopics.parsed(frozen["left.topic"])
    for topics in (["us", "eu"], ["eu"], ["eu", "us", "asia"]):
        changed = incompatible_changes(plan(left__topic=None, left__topics=topics), frozen)
        assert ["left.topic"] == [change.field for change in changed]


def test_record_of_a_simulation_names_its_topic() -> None:
    side = plan(left__topic=None, left__topics=["eu", "us"]).left
    lines = ['{"ad_id": 1}', '{"value": {"ad_id": 2}, "topic": "us", "partition": 1}']
    first, second = records_of_jsonl(lines, ROWS, side)
    assert ("eu", 0) == (first.topic, first.partition_of_side)
    assert ("us", 1, 1025) == (second.topic, second.partition, second.partition_of_side)


def test_record_of_an_unknown_topic_is_refused() -> None:
    side = plan(left__topic=None, left__topics=["eu", "us"]).left
    with pytest.raises(InputLineError, match="must be one of eu, us"):
        records_of_jsonl(['{"value": {"ad_id": 2}, "topic": "asia"}'], ROWS, side)
