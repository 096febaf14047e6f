"""The dataflow of the job, on Spark without a broker."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.dataflow.dataflow import kafka_dataflow
from job.dataflow.written import TopicLimits
from job.join.join import SparkJoin
from job.kafka.security import KafkaAccess
from job.plan.planner import join_plan
from job.plan.tuning import FROZEN_CONF
from job.protocol.reasons import REASONS
from job.spec.spec import spec_from_yaml
from tests.semantics.streams import T0, Stream, record, spec_text
from tests.sql_worker import SQL

StartStream = Callable[..., Stream]


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[StartStream]:
    """Starts a stream of the spec with the given changes, and stops it after the test."""
    started: list[Stream] = []

    def start(**changes: str) -> Stream:
        started.append(Stream(spark, tmp_path, spec_text(**changes)))
        return started[-1]

    yield start
    for each in started:
        each.stop()


def left(k: str | None, at: float, a: int = 1) -> dict[str, Any]:
    return {"k": k, "t": T0 + round(at * 1000), "a": a}


def right(k: str | None, at: float, b: int = 1) -> dict[str, Any]:
    return {"k": k, "t": T0 + round(at * 1000), "b": b}


# Some have a time far ahead.
UNREADABLE = {
    "tombstone": [None],
    "malformed_json": [
        "garbage", "", " ", "null", "5", "[]", '[{"k":"x","t":1700000000000}]', '{"k":"x"',
        "{'k':'x'}", '{k:"x"}', '{"k":"x","t":1900000000000} and more',
        '{"k":"x","t":1700000000000}{"k":"y"}', '{"k":"x","t":1700000000000}\n{"k":"y"}',
        '{"k":"x","t":1700000000000,"a":NaN}',
    ],
    "schema_mismatch": [
        '{"k":"x","t":1900000000000,"a":"one"}', '{"k":"x","t":1700000000000,"a":1.5}',
        '{"k":"x","t":1700000000000,"a":9223372036854775808}',
        '{"k":"x","t":1700000000000,"other":"yesterday"}',
    ],
    "missing_event_time": ['{"k":"x"}', '{"k":"x","t":null}', "{}"],
    "unparsable_event_time": [
        '{"t":"yesterday"}', '{"t":"12:00"}', '{"t":"now"}', '{"t":"2023-13-45"}', '{"t":1.5}',
        '{"t":{"at":1}}', '{"t":true}', '{"t":""}',
    ],
    "absurd_event_time": [
        '{"t":-1}', '{"t":315532799999}', '{"t":253402300800000}', '{"t":9223372036854775807}',
        '{"t":"1969-12-31T23:59:59Z"}', '{"t":"+10000-01-01T00:00:00Z"}',
        '{"t":"10000-01-01T00:00:00Z"}', '{"t":"-0044-03-15T00:00:00Z"}',
    ],
}  # fmt: skip


def test_unreadable_records_are_counted_by_reason_and_advance_no_watermark(
    stream: StartStream,
) -> None:
    with_other = "k STRING, t TIMESTAMP, a BIGINT, other TIMESTAMP"
    running = stream(left_schema=with_other)
    bad = [value for values in UNREADABLE.values() for value in values]

    assert [{"k": "x", "a": 1, "b": 2}] == running.feed([*bad, left("x", 20)], [right("x", 21, 2)])

    counted = running.progress()[0].left
    expected = {reason: len(values) for reason, values in UNREADABLE.items()}
    assert {**dict.fromkeys(REASONS, 0), **expected} == counted.bad_records
    assert len(bad) + 1 == counted.records
    assert T0 + 20_000 == counted.event_time_max_ms
    assert T0 + 10_000 == running.progress()[-1].watermark_ms


def test_two_documents_differ_from_braces_in_a_string(stream: StartStream) -> None:
    running = stream(left_schema="k STRING, t TIMESTAMP, note STRING", columns="note: left.note")
    noted = {"k": "x", "t": T0, "note": '}{ and } {"'}

    assert [{"note": '}{ and } {"'}] == running.feed([noted], [right("x", 0)])
    assert 0 == running.progress()[0].left.bad_records["malformed_json"]


def test_event_time_too_far_ahead_of_its_record_is_bad_and_drops_no_later_row(
    stream: StartStream,
) -> None:
    running = stream(max_ahead="1 minute")
    years_ahead = left("ahead", 40_000_000)
    on_the_edge, beyond = left("edge", 60), left("beyond", 60.001)

    first = running.feed([years_ahead, left("x", 20), on_the_edge, beyond], [right("x", 21, 2)])
    later = running.feed([left("y", 22)], [right("y", 23, 3)])

    assert [{"k": "x", "a": 1, "b": 2}, {"k": "y", "a": 1, "b": 3}] == [*first, *later]
    counted = running.progress()[0].left
    assert 2 == counted.bad_records["future_event_time"] == sum(counted.bad_records.values())
    assert T0 + 60_000 == counted.event_time_max_ms
    assert 0 == sum(batch.late_rows for batch in running.progress())


def test_kafkas_own_timestamp_as_event_time_is_never_ahead_of_itself(stream: StartStream) -> None:
    running = stream(
        left_schema="k STRING, a BIGINT", left_event_time="record_timestamp", max_ahead="1 second"
    )

    running.feed([record({"k": "x", "a": 1}, timestamp=T0 + 10**9)])

    assert 0 == sum(running.progress()[0].left.bad_records.values())
    assert T0 + 10**9 == running.progress()[0].left.event_time_max_ms


def test_match_window_of_weeks_means_weeks(stream: StartStream) -> None:
    running = stream(join_type="inner", join="match_window: {before: 0 seconds, after: 5 weeks}")
    week = 7 * 24 * 3600

    out = running.feed([left("x", 0)], [right("x", 5 * week, 1), right("x", 5 * week + 1, 2)])

    assert [1] == [row["b"] for row in out]


def test_record_key_headers_and_position_can_be_used_as_columns(stream: StartStream) -> None:
    running = stream(
        left_schema="a BIGINT",
        left_key="[record_key]",
        left_event_time="record_timestamp",
        left_more="filter: record_headers['kind'] = 'good'",
        columns="key: left.record_key, p: left.record_partition, o: left.record_offset, "
        "b: right.b, trace: \"left.record_headers['trace']\"",
    )
    headers = [{"key": "kind", "value": "bad"}, {"key": "kind", "value": "good"},
               {"key": "trace", "value": "t-1"}]  # fmt: skip
    good = record({"a": 1}, key="x", partition=2, offset=17, timestamp=T0, headers=headers)
    bad = record({"a": 2}, key="x", headers=headers[:1])

    assert [{"key": "x", "p": 2, "o": 17, "b": 5, "trace": "t-1"}] == running.feed(
        [good, bad], [right("x", 1, 5)]
    )


def test_result_has_its_key_and_the_positions_of_its_records(stream: StartStream) -> None:
    running = stream(join_type="full_outer", output_more="key: coalesce(left.k, right.k)")
    at = {"partition": 3, "offset": 2**40 + 5}
    running.feed(
        [record(left("x", 10), **at), left("y", 10)],
        [record(right("x", 11), partition=1, offset=7), right("z", 10)],
    )
    assert [("x", "lefts/3/1099511627781|rights/1/7")] == running.keys_and_ids()

    running.feed([left("?", 100)], [right("!", 100)])

    assert [("y", "lefts/0/2|"), ("z", "|rights/0/4")] == sorted(running.keys_and_ids())


def test_topic_is_read_by_no_more_tasks_than_run_at_once(spark: SparkSession) -> None:
    plan = join_plan(spec_from_yaml(spec_text(), {}), SQL, state_partitions=3)
    session = spark.newSession()
    for name, value in FROZEN_CONF.items():
        session.conf.set(name, value)
    limits = TopicLimits(1_000_000, 0)
    frame = kafka_dataflow(session, plan, KafkaAccess("nowhere:9092"), limits, SparkJoin())
    assert frame._jdf.queryExecution().logical().toString().count("Repartition 3, false") == 2


# Text in the JSON, which a double would change.
WRITTEN = [
    "1.50", "1234567890123.25", "12345678901234567890.10", "1e3", "-0.0", "1E-7", "1e400", "-1e400",
    "7", "12345678901234567890", "-5", "0.1",
]  # fmt: skip


@pytest.mark.parametrize("white", ["", "\n "])
def test_number_in_a_string_field_keeps_its_text(white: str, stream: StartStream) -> None:
    running = stream(
        left_schema="'k STRING, t TIMESTAMP, a STRING, x DOUBLE, deep STRUCT<s: STRING, d: DOUBLE, "
        "l: ARRAY<STRUCT<s: STRING>>>, m MAP<STRING, STRING>, its STRING'",
        columns="a: left.a, x: left.x, deep: left.deep, m: left.m, its: left.its",
    )
    strings = ['"1.50"', '"1.5"', '"a: 1.50, \\"2.50"', '"v1.2"', '"10.0.0.1"', "null", "true"]
    records = [
        f'{{"k":"x","t":{T0},"note":[":1.5,\\\\",1.5,{{"n":-2.50}}],"a":{white}{text},"x":2.50,"deep":'
        f'{{"s":{white}{text},"d":1.50,"l":[{{"s":{text}}},{{"s":"1.5"}}]}},"m":{{"n":{text}}}}}'
        for text in [*WRITTEN, *strings]
    ]

    found = running.feed(records, [right("x", 0)])

    read = [*WRITTEN, *(None if text == "null" else json.loads(text) for text in strings[:-1])]
    expected = [*read, "true"]
    assert sorted(map(str, expected)) == sorted(str(row["a"]) for row in found)
    for row in found:
        inner = {"s": row["a"], "d": 1.5, "l": [{"s": row["a"]}, {"s": "1.5"}]}
        assert (2.5, inner, {"n": row["a"]}, None) == (row["x"], row["deep"], row["m"], row["its"])


def test_number_in_a_string_key_matches_its_text(stream: StartStream) -> None:
    running = stream()
    numbers = [f'{{"k":{text},"t":{T0},"a":1}}' for text in WRITTEN]

    found = running.feed(numbers, [right(text, 0) for text in WRITTEN])

    assert sorted(WRITTEN) == sorted(row["k"] for row in found if row["b"] == 1)
