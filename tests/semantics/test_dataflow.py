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


def test_event_time_is_compared_with_its_record_however_late_that_is_read(
    stream: StartStream,
) -> None:
    running = stream(max_ahead="1 minute")
    hour = 3600

    # Both were written long before they are read; one is ahead of its Kafka timestamp.
    running.feed(
        [
            record(left("in time", hour + 30), timestamp=T0 + hour * 1000),
            record(left("ahead", 2 * hour), timestamp=T0 + hour * 1000),
        ],
        [right("x", 0)],
    )

    assert 1 == running.progress()[0].left.bad_records["future_event_time"]
    assert T0 + (hour + 30) * 1000 == running.progress()[0].left.event_time_max_ms


def test_kafkas_own_timestamp_as_event_time_is_never_ahead_of_itself(stream: StartStream) -> None:
    running = stream(
        left_schema="k STRING, a BIGINT", left_event_time="record_timestamp", max_ahead="1 second"
    )

    running.feed([record({"k": "x", "a": 1}, timestamp=T0 + 10**9)])

    assert 0 == sum(running.progress()[0].left.bad_records.values())
    assert T0 + 10**9 == running.progress()[0].left.event_time_max_ms


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
        ("1700000000123", "2023-11-14T22:13:20.123Z"),
        ("2023-11-14T22:13:20.123Z", "2023-11-14T22:13:20.123Z"),
        ("2023-11-15T00:13:20.123+02:00", "2023-11-14T22:13:20.123Z"),
        ("2023-11-14 22:13:20", "2023-11-14T22:13:20.000Z"),
        ("2023-11-14", "2023-11-14T00:00:00.000Z"),
        (315_532_800_000, "1980-01-01T00:00:00.000Z"),
        ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
    ],
)
def test_timestamp_is_iso_8601_or_epoch_milliseconds(
    written: Any, read: str, stream: StartStream
) -> None:
    running = stream(columns="at: left.t")

    assert [{"at": read}] == running.feed(
        [{"k": "x", "t": written}], [{"k": "x", "t": written, "b": 1}]
    )


@pytest.mark.parametrize(
    "filters",
    [
        {"left_more": "filter: a > 1000"},
        {"join_type": "right_outer", "join": "match_window: {before: 5 seconds, after: 0 seconds}, "
         "condition: left.a > 1000"},
        {"join_type": "right_outer", "output_more": "filter: b > 0 and coalesce(a, 1001) > 1000"},
        {"join_type": "inner", "output_more": "filter: a > 1000"},
        {"join_type": "inner", "join": "match_window: {before: 5 seconds, after: 0 seconds}, "
         "condition: left.a + right.b > 1000"},
        {"join": "window: 10 seconds", "left_more": "filter: a > 1000"},
        {"left_key": "[\"if(a > 1000, k, null)\"]", "more": "on_null_key: drop"},
    ],
    ids=["side filter", "one-sided ON condition", "output filter", "pushed output filter",
         "ON condition", "side filter of a window", "null key"],
)  # fmt: skip
def test_watermark_follows_every_record_whatever_filter_it_fails(
    filters: dict[str, str], stream: StartStream
) -> None:
    running = stream(**filters)
    running.feed([left("x", 10)], [right("y", 10)])
    # No row of the left side passes the filter, but these rows advance its event time.
    running.feed([left("x", 60)], [right("z", 60)])

    assert T0 + 50_000 == running.progress()[-1].watermark_ms


def test_unmatched_row_is_emitted_though_a_filter_drops_all_of_the_other_side(
    stream: StartStream,
) -> None:
    running = stream(join_type="right_outer", left_more="filter: a > 1000", columns="rk: right.k")
    running.feed([left("x", 10)], [right("y", 10)])

    assert [{"rk": "y"}] == running.feed([left("x", 60)], [right("z", 60)])


def test_null_key_matches_nothing_and_is_emitted_unmatched_on_an_outer_side(
    stream: StartStream,
) -> None:
    running = stream(join_type="full_outer")

    out = running.feed([left(None, 10, 1)], [right(None, 10, 2)])

    assert [{"k": None, "a": None, "b": 2}, {"k": None, "a": 1, "b": None}] == sorted(
        out, key=lambda row: row["a"] or 0
    )
    assert (1, 1) == (running.progress()[0].left.null_keys, running.progress()[0].right.null_keys)


def test_null_safe_keys_match_each_other(stream: StartStream) -> None:
    running = stream(
        left_key="[k, a]",
        right_key="[k, b]",
        join="null_safe: true, match_window: {before: 1 second, after: 1 second}",
    )

    assert [{"k": None, "a": 7, "b": 7}] == running.feed(
        [left(None, 10, 7), left(None, 10, 8)], [right(None, 10, 7)]
    )


def test_null_keys_can_be_dropped(stream: StartStream) -> None:
    running = stream(more="on_null_key: drop")
    running.feed([left(None, 10)], [right("x", 10)])

    assert [] == running.feed([left("x", 100)], [right("x", 100, 1), right("x", 101)])[2:]
    assert 1 == running.progress()[0].left.null_keys


def test_keys_may_be_computed(stream: StartStream) -> None:
    running = stream(left_key="[lower(k)]", right_key="[\"concat('x', cast(b as string))\"]")

    assert [{"k": "X7", "a": 1, "b": 7}] == running.feed([left("X7", 10)], [right("?", 10, 7)])


def test_match_window_includes_both_bounds_and_nothing_beyond(stream: StartStream) -> None:
    running = stream(join_type="inner", join="match_window: {before: 2 seconds, after: 5 seconds}")
    rights = [right("x", at, b) for b, at in enumerate((17.999, 18, 25, 25.001))]

    assert [1, 2] == sorted(row["b"] for row in running.feed([left("x", 20)], rights))


def test_match_window_of_weeks_means_weeks(stream: StartStream) -> None:
    running = stream(join_type="inner", join="match_window: {before: 0 seconds, after: 5 weeks}")
    week = 7 * 24 * 3600

    out = running.feed([left("x", 0)], [right("x", 5 * week, 1), right("x", 5 * week + 1, 2)])

    assert [1] == [row["b"] for row in out]


def test_rows_of_one_tumbling_window_match_and_unmatched_ones_are_emitted_at_its_end(
    stream: StartStream,
) -> None:
    running = stream(join="window: 10 seconds")
    # Windows begin at multiples of 10 s after 1970; T0 is one.
    assert [{"k": "x", "a": 1, "b": 2}] == running.feed(
        [left("x", 10), left("y", 19.999)], [right("x", 19.999, 2), right("y", 20, 3)]
    )
    # Watermark 19.9: the window of y has not ended.
    assert [] == running.feed([left("z", 29.9)], [right("z", 30.1)])
    # Watermark 20: the window has ended, and a row of it is late.
    assert [{"k": "y", "a": 1, "b": None}] == running.feed([left("w", 30)], [])
    running.feed([left("late", 19.999)], [right("late", 20)])
    assert 1 == sum(batch.late_rows for batch in running.progress())


def test_event_time_may_be_part_of_the_key(stream: StartStream) -> None:
    running = stream(left_key="[k, t]", right_key="[k, t]", join="condition: left.a <> right.b")

    assert [{"k": "x", "a": 1, "b": 2}] == running.feed(
        [left("x", 10), left("y", 10)], [right("x", 10, 2), right("x", 10.001, 3)]
    )
    assert [{"k": "y", "a": 1, "b": None}] == running.feed([left("z", 25)], [right("z", 26)])


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
