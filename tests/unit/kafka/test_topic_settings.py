"""Settings of topics with which the broker would refuse records."""

from collections.abc import Mapping
from typing import Any

import pytest

from job.kafka.topic_settings import (
    TopicSettings,
    dead_letter_refusals,
    output_refusals,
    replica_refusals,
)
from tests.unit.specs import plan

# What Kafka 4.3 reports for a new topic.
DEFAULTS = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": "3600000",
}
KEYED = {"output__key": "left.ad_id"}
EVENT_TIME = {"output__timestamp": "event_time", "output__delivery": "exactly_once"}
AHEAD = {**EVENT_TIME, "right__max_event_time_ahead": "2 hours"}


@pytest.mark.parametrize(
    ("spec", "settings"),
    [
        ({}, {}),
        (EVENT_TIME, {}),
        (KEYED, {"cleanup.policy": "compact,delete"}),
        ({}, {"message.timestamp.type": "LogAppendTime"}),
        ({}, {"message.timestamp.before.max.ms": "1000"}),
        ({}, {"message.timestamp.after.max.ms": "0"}),
        ({**AHEAD, "join__type": "left_anti", "output__columns": {"a": "left.ad_id"}}, {}),
        ({}, {"max.message.bytes": "1000"}),
        ({}, {"max.message.bytes": "1001"}),
    ],
)
def test_topic_that_accepts_all_results_is_not_refused(
    spec: Mapping[str, Any], settings: Mapping[str, str]
) -> None:
    assert [] == output_refusals(plan(**spec), {**DEFAULTS, **settings})


@pytest.mark.parametrize(
    ("spec", "settings", "field", "change"),
    [
        ({}, {"cleanup.policy": "compact"}, "output.key", "cleanup.policy=delete"),
        ({}, {"cleanup.policy": "compact,delete"}, "output.key", "cleanup.policy=delete"),
        ({}, {"max.message.bytes": "999"}, "output.topic", "max.message.bytes=1048588"),
        (
            EVENT_TIME,
            {"message.timestamp.type": "LogAppendTime"},
            "output.timestamp",
            "message.timestamp.type=CreateTime",
        ),
        (
            EVENT_TIME,
            {"message.timestamp.before.max.ms": "86400000"},
            "output.timestamp",
            "message.timestamp.before.max.ms=9223372036854775807",
        ),
        (
            EVENT_TIME,
            {"message.timestamp.difference.max.ms": "86400000"},
            "output.timestamp",
            "message.timestamp.difference.max.ms=9223372036854775807",
        ),
        (AHEAD, {}, "output.timestamp", "message.timestamp.after.max.ms=7200000"),
    ],
)
def test_refusal_names_the_field_the_setting_and_the_change(
    spec: Mapping[str, Any], settings: Mapping[str, str], field: str, change: str
) -> None:
    (refusal,) = output_refusals(plan(**spec), {**DEFAULTS, **settings})

    command = "kafka-configs.sh --bootstrap-server localhost:9092 --alter --topic attributed"
    assert refusal.startswith(f"{field}: ")
    assert "topic attributed" in refusal or "topic: attributed" in refusal
    assert refusal.endswith(f"un {command} --add-config {change}")


def test_dead_letter_topic_keeps_letters_without_a_key_and_accepts_the_largest_headers() -> None:
    made = plan(on_bad_record=None, dead_letter={"topic": "dead"})
    settings = {**DEFAULTS, "cleanup.policy": "compact,delete", "max.message.bytes": "16000"}

    assert [] == dead_letter_refusals(made, DEFAULTS)
    compacted, small = dead_letter_refusals(made, settings)
    assert "dead has cleanup.policy=compact,delete" in compacted
    assert "max.message.bytes=16000, and must accept 16384 bytes" in small


@pytest.mark.parametrize(("limit", "refused"), [(16_383, 1), (16_384, 0), (16_385, 0)])
def test_dead_letter_topic_accepts_exactly_the_largest_headers(limit: int, refused: int) -> None:
    made = plan(on_bad_record=None, dead_letter={"topic": "dead"})
    settings = {**DEFAULTS, "max.message.bytes": str(limit)}

    assert refused == len(dead_letter_refusals(made, settings))


def test_settings_that_cannot_be_read_are_not_refused() -> None:
    made = plan(**EVENT_TIME, on_bad_record=None, dead_letter={"topic": "dead"})

    assert [] == [*output_refusals(made, {}), *dead_letter_refusals(made, {})]


@pytest.mark.parametrize(("needed", "replicas", "is_refused"), [(2, 1, True), (2, 2, False)])
def test_topic_of_an_older_broker_has_the_replicas_that_each_write_needs(
    needed: int, replicas: int, is_refused: bool
) -> None:
    older = {name: value for name, value in DEFAULTS.items() if ".before." not in name}
    settings = TopicSettings("attributed", {**older, "min.insync.replicas": str(needed)})
    refusals = replica_refusals(plan(), "output.topic", settings, replicas)

    assert is_refused == bool(refusals)
    for refusal in refusals:
        assert refusal.startswith("output.topic: attributed has min.insync.replicas=2 and")
        assert refusal.endswith("--topic attributed --add-config min.insync.replicas=1")


def test_newer_broker_needs_at_most_the_replicas_that_a_partition_has() -> None:
    settings = TopicSettings("attributed", {**DEFAULTS, "min.insync.replicas": "2"})

    assert [] == replica_refusals(plan(), "output.topic", settings, 1)
