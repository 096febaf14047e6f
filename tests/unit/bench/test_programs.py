"""The measured programs get the workload's own join."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from bench.__main__ import in_turn
from bench.load import WORKLOADS, events
from bench.peers import flink, kafka_streams
from bench.programs import PROGRAMS
from bench.running import Task
from bench.streamjoin import join_spec
from job.join_spec.join_conditions import JoinType
from job.join_spec.output import Delivery
from job.join_spec.spec import spec_from_yaml
from job.plan.tuning import SINK_OPTIONS

INNER, LEFT_OUTER = WORKLOADS["inner"], WORKLOADS["left_outer"]
TASK = Task(INNER, "127.0.0.1:9092", "shown", "clicked", "out")
OUTER_TASK = Task(LEFT_OUTER, "127.0.0.1:9092", "shown", "clicked", "out")


def test_programs_take_turns() -> None:
    programs = [PROGRAMS["streamjoin"], PROGRAMS["kafka-streams"]]

    assert [(1, "streamjoin"), (1, "kafka-streams"), (2, "streamjoin"), (2, "kafka-streams")] == [
        (number, program.name) for number, program in in_turn(programs, 2)
    ]


# Streamjoin


def test_spec_has_the_expectations_of_the_workload() -> None:
    spec = spec_from_yaml(join_spec(TASK, Path("/checkpoint"), Delivery.EXACTLY_ONCE), {})

    assert ("shown", "clicked", "out") == (spec.left.topic, spec.right.topic, spec.output.topic)
    assert Delivery.EXACTLY_ONCE is spec.output.delivery
    assert JoinType.INNER is spec.join.type
    assert spec.join.match_window is not None
    assert timedelta(0) == spec.join.match_window.before
    assert timedelta(milliseconds=INNER.match_window_ms) == spec.join.match_window.after
    delay = timedelta(milliseconds=INNER.watermark_delay_ms)
    assert (delay, delay) == (spec.left.watermark_delay, spec.right.watermark_delay)


def test_spec_deduplicates_both_sides_by_ids_that_occur_once() -> None:
    checkpoint, delivery = Path("/checkpoint"), Delivery.EXACTLY_ONCE
    plain = spec_from_yaml(join_spec(TASK, checkpoint, delivery), {})
    spec = spec_from_yaml(join_spec(TASK, checkpoint, delivery, deduplicates=True), {})

    assert spec.left.deduplicate is not None
    assert ["ad_id"] == spec.left.deduplicate.by
    assert spec.left.deduplicate == spec.right.deduplicate
    assert plain.left == spec.left.model_copy(update={"deduplicate": None})
    for side in events(INNER, 1_000):
        ids = [event.ad_id for event in side]
        assert len(ids) == len(set(ids))


def test_spec_follows_the_workload_s_join_type() -> None:
    spec = spec_from_yaml(join_spec(OUTER_TASK, Path("/checkpoint"), Delivery.EXACTLY_ONCE), {})

    assert JoinType.LEFT_OUTER is spec.join.type


# Kafka Streams


def test_kafka_streams_gets_the_settings_of_the_workload() -> None:
    settings = kafka_streams.settings(OUTER_TASK, Path("/state"), Delivery.EXACTLY_ONCE)

    assert {
        "join.left": "shown",
        "join.right": "clicked",
        "join.output": "out",
        "join.type": "left_outer",
        "join.match_window_ms": LEFT_OUTER.match_window_ms,
        "join.watermark_delay_ms": LEFT_OUTER.watermark_delay_ms,
    } == {name: value for name, value in settings.items() if name.startswith("join.")}


@pytest.mark.parametrize(
    ("delivery", "guarantee"),
    [(Delivery.EXACTLY_ONCE, "exactly_once_v2"), (Delivery.AT_LEAST_ONCE, "at_least_once")],
)
def test_kafka_streams_promises_what_streamjoin_does(delivery: Delivery, guarantee: str) -> None:
    settings = kafka_streams.settings(TASK, Path("/state"), delivery)

    assert guarantee == settings["processing.guarantee"]


def test_changelogs_of_kafka_streams_go_by_the_output_s_name() -> None:
    settings = kafka_streams.settings(TASK, Path("/state"), Delivery.EXACTLY_ONCE)

    assert TASK.output_topic == settings["application.id"]


# Flink


def test_flink_gets_the_settings_of_the_workload() -> None:
    impressions, clicks, joined, insert = statements(TASK, Delivery.EXACTLY_ONCE)

    assert ("'topic' = 'shown'", "'topic' = 'clicked'") == (topic(impressions), topic(clicks))
    assert "'topic' = 'out'" == topic(joined)
    assert "WATERMARK FOR shown AS shown - INTERVAL '10.000' SECOND" in impressions
    assert "WATERMARK FOR clicked AS clicked - INTERVAL '10.000' SECOND" in clicks
    assert "FROM impressions i\nJOIN clicks c" in insert
    assert "BETWEEN i.shown AND i.shown + INTERVAL '10.000' SECOND" in insert


def test_flink_joins_as_the_workload_does() -> None:
    insert = statements(OUTER_TASK, Delivery.EXACTLY_ONCE)[-1]

    assert "FROM impressions i\nLEFT JOIN clicks c" in insert


@pytest.mark.parametrize(
    ("delivery", "guarantee"),
    [(Delivery.EXACTLY_ONCE, "exactly-once"), (Delivery.AT_LEAST_ONCE, "at-least-once")],
)
def test_flink_promises_what_streamjoin_does(delivery: Delivery, guarantee: str) -> None:
    joined = statements(TASK, delivery)[2]

    assert f"'sink.delivery-guarantee' = '{guarantee}'" in joined


def test_flink_keeps_its_state_in_the_store_of_its_name() -> None:
    settings = flink.settings(Path("/run"), "hashmap")

    assert "hashmap" == settings["state.backend.type"]
    assert "file:///run/checkpoints" == settings["execution.checkpointing.dir"]


def statements(task: Task, delivery: Delivery) -> list[str]:
    return [text.strip() for text in flink.join_sql(task, delivery).split(";") if text.strip()]


def topic(statement: str) -> str:
    [topic] = re.findall(r"'topic' = '\w+'", statement)
    return str(topic)


# All programs


def test_only_other_systems_may_lose_rows() -> None:
    ours = {name for name, program in PROGRAMS.items() if not program.is_peer}

    assert {name for name in PROGRAMS if name.startswith("streamjoin")} == ours


def test_peers_write_to_kafka_with_streamjoin_s_settings() -> None:
    streams = kafka_streams.settings(TASK, Path("/state"), Delivery.EXACTLY_ONCE)
    joined = statements(TASK, Delivery.EXACTLY_ONCE)[2]

    for option, value in SINK_OPTIONS.items():
        name = option.removeprefix("kafka.")
        assert value == streams[f"producer.{name}"]
        assert f"'properties.{name}' = '{value}'" in joined
