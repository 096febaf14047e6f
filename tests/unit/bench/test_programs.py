"""The measured programs have the same guarantees. Each run checks their results."""

from dataclasses import replace
from pathlib import Path

import pytest

from bench.__main__ import main
from bench.load import WORKLOADS, events
from bench.peers import flink, kafka_streams
from bench.programs import PROGRAMS
from bench.running import Task
from bench.streamjoin import join_spec
from job.plan.tuning import SINK_OPTIONS
from job.spec.engine import Engine
from job.spec.join_conditions import JoinType
from job.spec.output import Delivery
from job.spec.spec import spec_from_yaml

INNER = WORKLOADS["inner"]
TASK = Task(INNER, "127.0.0.1:9092", "shown", "clicked", "out")
TABLE_TASK = replace(TASK, workload=WORKLOADS["table"])


# Streamjoin


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


@pytest.mark.parametrize("engine", Engine)
def test_spec_of_a_table_has_the_table_on_the_left(engine: Engine) -> None:
    text = join_spec(TABLE_TASK, Path("/checkpoint"), Delivery.EXACTLY_ONCE, engine)
    spec = spec_from_yaml(text, {})

    assert spec.left.table is not None
    assert (None, JoinType.INNER) == (spec.right.table, spec.join.type)


# Kafka Streams


def test_kafka_streams_joins_a_table_where_streamjoin_does() -> None:
    for task, is_table in ((TASK, "false"), (TABLE_TASK, "true")):
        settings = kafka_streams.settings(task, Path("/state"), Delivery.EXACTLY_ONCE)

        assert is_table == settings["join.table"]


@pytest.mark.parametrize(
    ("delivery", "guarantee"),
    [(Delivery.EXACTLY_ONCE, "exactly_once_v2"), (Delivery.AT_LEAST_ONCE, "at_least_once")],
)
def test_kafka_streams_promises_what_streamjoin_does(delivery: Delivery, guarantee: str) -> None:
    settings = kafka_streams.settings(TASK, Path("/state"), delivery)

    assert guarantee == settings["processing.guarantee"]


# Flink


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


# All programs


def test_program_without_tables_does_not_run_a_workload_with_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("bench.__main__.exit_code", lambda *_: 0)  # the broker does not start
    monkeypatch.setattr("sys.argv", ["bench", "--workload", "table", "--program", "bare-spark"])

    with pytest.raises(SystemExit):
        main()

    assert "bare-spark does not run the workload table" in capsys.readouterr().err


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
