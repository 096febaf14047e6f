"""Rows in state, read while the query runs, in the state formats of both engines."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.checkpoint.state_reader import StateReader
from job.errors import CancelledError, RequestError
from job.plan.planner import join_plan
from job.spark.executors import running_task_count
from job.spark.state_stores import close_state_stores
from job.spec.join_conditions import JoinType
from job.spec.sides import OTHER_SIDE, SIDES, Side
from job.spec.spec import spec_from_yaml
from tests.polling import wait_until
from tests.semantics.streams import T0, Stream, record, spec_text
from tests.semantics.test_state_stores import open_stores
from tests.sql_worker import SQL


@pytest.fixture(params=["4", "real_time"])
def state_format(request: pytest.FixtureRequest) -> str:
    """The format of Spark's join, or that of the real-time engine."""
    return str(request.param)


@pytest.fixture
def reader(
    spark: SparkSession, tmp_path: Path, state_format: str
) -> Iterator[tuple[Stream, StateReader]]:
    """Of a left outer join with a composite key, its right side ready 5 s after its left."""
    text = spec_text(
        left_key="[k, a % 2]",
        right_key="[k, b]",
        right_schema="k STRING, t TIMESTAMP, b BIGINT",
        more="engine: real_time" if state_format == "real_time" else "",
    )
    stream = Stream(spark, tmp_path, text)
    plan = join_plan(spec_from_yaml(text, {}), SQL, state_partitions=1)
    yield stream, StateReader(spark, plan, str(tmp_path / "checkpoint"))
    stream.stop()


def last_batch(states: StateReader) -> int:
    commits = (Path(states.location) / "commits").iterdir()
    return max(int(path.name) for path in commits if path.name.isdecimal())


def moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(T0 / 1000, UTC) + timedelta(seconds=seconds)


def never() -> threading.Event:
    return threading.Event()


def test_rows_of_a_key_have_time_position_match_and_expiry_and_are_as_many_as_requested(
    reader: tuple[Stream, StateReader],
) -> None:
    stream, states = reader
    stream.feed(
        left=[
            record({"k": "x", "t": T0 + 2000, "a": 3}, partition=1, offset=70),
            {"k": "x", "t": T0 + 1000, "a": 5},
            {"k": "x", "t": T0, "a": 4},
            {"k": "y", "t": T0, "a": 1},
        ],
        right=[{"k": "x", "t": T0 + 1500, "b": 1}],
    )
    found = states.rows("left", ["x", "1"], last_batch(states), limit=10, cancel=never())

    assert ([5, 3], False) == ([row.row["a"] for row in found.rows], found.more)
    earlier, later = found.rows
    assert (moment(1), moment(6), True) == (
        earlier.event_time,
        earlier.leaves_after,
        earlier.matched,
    )
    assert (moment(2), "lefts", 1, 70, False) == (
        later.event_time,
        later.topic,
        later.partition,
        later.offset,
        later.matched,
    )
    fewer = states.rows("left", ["x", "1"], last_batch(states), limit=1, cancel=never())
    assert (1, True) == (len(fewer.rows), fewer.more)
    [other] = states.rows("right", ["x", "1"], last_batch(states), limit=10, cancel=never()).rows
    # Of the inner side of an outer join Spark does not keep whether it has matched.
    assert (None, moment(1.5)) == (other.matched, other.leaves_after)


def test_state_count_has_rows_and_those_without_a_match(
    reader: tuple[Stream, StateReader],
) -> None:
    stream, states = reader
    stream.feed(
        left=[{"k": "x", "t": T0 + number, "a": 1} for number in range(4)],
        right=[{"k": "x", "t": T0 + 2, "b": 1}, {"k": "z", "t": T0, "b": 1}],
    )
    state_count = states.count_rows(last_batch(states), cancel=never())

    [left], [right] = state_count.left.partitions, state_count.right.partitions
    assert (4, 1, moment(0)) == (left.rows, left.unmatched_rows, left.event_time_min)
    assert (2, None) == (right.rows, right.unmatched_rows)


@pytest.mark.parametrize("columns", ["k: left.k, b: right.b", "k: left.k, at: left.t"])
def test_rows_of_a_tumbling_window_are_read_with_or_without_their_event_time(
    spark: SparkSession, tmp_path: Path, columns: str
) -> None:
    """Spark keeps the event time in state only if the output uses it."""
    text = spec_text(join="window: 10 seconds", columns=columns)
    stream = Stream(spark, tmp_path, text)
    stream.feed(
        left=[{"k": "x", "t": T0 + 12_000, "a": 1}, {"k": "x", "t": T0 + 1_000, "a": 2}],
        right=[{"k": "x", "t": T0 + 2_000, "b": 1}],
    )
    plan = join_plan(spec_from_yaml(text, {}), SQL, state_partitions=1)
    states = StateReader(spark, plan, str(tmp_path / "checkpoint"))
    answer = states.rows("left", ["x"], last_batch(states), limit=10, cancel=never())
    counts = states.count_rows(last_batch(states), cancel=never())
    stream.stop()

    in_state = "left.t" in columns
    assert [moment(1) if in_state else None, moment(12) if in_state else None] == [
        row.event_time for row in answer.rows
    ]
    assert [(moment(9.999), True), (moment(19.999), False)] == [
        (row.leaves_after, row.matched) for row in answer.rows
    ]
    assert (2, moment(1) if in_state else None) == (
        counts.left.partitions[0].rows,
        counts.left.partitions[0].event_time_min,
    )


@pytest.mark.parametrize("join_type", ["left_semi", "left_anti", "right_semi"])
def test_rows_of_a_side_that_the_output_does_not_use_are_read(
    spark: SparkSession, tmp_path: Path, join_type: str
) -> None:
    [shown] = JoinType(join_type).shown_sides
    hidden = OTHER_SIDE[shown]
    text = spec_text(join_type=join_type, columns=f"k: {shown}.k")
    stream = Stream(spark, tmp_path, text)
    value = {"k": "x", "t": T0 + 1_000, "a" if hidden == "left" else "b": 1}
    stream.feed(**{hidden: [value]})
    plan = join_plan(spec_from_yaml(text, {}), SQL, state_partitions=1)
    states = StateReader(spark, plan, str(tmp_path / "checkpoint"))
    answer = states.rows(hidden, ["x"], last_batch(states), limit=10, cancel=never())
    stream.stop()

    [row] = answer.rows
    assert (moment(1), "x") == (row.event_time, row.row["k"])
    assert join_type.endswith("_semi") == (row.offset is None)


def test_rows_that_wait_for_their_version_and_its_versions_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = "table: {version: as_of, final: true}"
    columns = "k: right.k, a: left.a, b: right.b"
    text = spec_text(join_type="right_outer", join="", left_more=table, columns=columns)
    stream = Stream(spark, tmp_path, text)
    plan = join_plan(spec_from_yaml(text, {}), SQL, state_partitions=1)
    states = StateReader(spark, plan, str(tmp_path / "checkpoint"))

    def versions_and_rows() -> tuple[list[Any], list[tuple[Any, datetime | None]]]:
        batch = last_batch(states)
        table, rows = (
            states.rows(side, ["x"], batch, limit=10, cancel=never()).rows for side in SIDES
        )
        return [row.row["a"] for row in table], [(row.row["b"], row.leaves_after) for row in rows]

    versions = [{"k": "x", "t": T0 + 1000 * second, "a": second} for second in (1, 5, 40)]
    stream.feed(left=versions, right=[{"k": "x", "t": T0 + 3_000, "b": 7}])
    waiting = versions_and_rows()
    later = {"k": "y", "t": T0 + 30_000}
    results = stream.feed(left=[{**later, "a": 1}], right=[{**later, "b": 1}])
    decided = versions_and_rows()
    stream.stop()

    assert ([1, 5, 40], [(7, moment(3))]) == waiting
    assert [("x", 1, 7)] == [tuple(result.values()) for result in results]
    assert ([5, 40], []) == decided


def test_key_that_is_none_of_this_join_is_refused(reader: tuple[Stream, StateReader]) -> None:
    stream, states = reader
    stream.feed(left=[{"k": "x", "t": T0, "a": 1}], right=[{"k": "x", "t": T0, "b": 1}])
    keys: list[tuple[Side, list[str]]] = [
        ("left", ["x"]),
        ("right", ["x", "1", "2"]),
        ("right", ["x", "one"]),
    ]

    for side, key in keys:
        with pytest.raises(RequestError) as refused:
            states.rows(side, key, last_batch(states), limit=10, cancel=never())
    assert (
        "the key part b has type BIGINT, and 'one' is not a value of this type: write the "
        "value as in the results"
    ) == str(refused.value)


def test_lookup_ends_when_it_is_cancelled_and_its_state_stores_are_closed(
    reader: tuple[Stream, StateReader], spark: SparkSession
) -> None:
    stream, states = reader
    stream.feed(left=[{"k": "x", "t": T0, "a": 1}])
    for query in spark.streams.active:
        query.stop()
    wait_until(lambda: running_task_count(spark) == 0, 60, "no task runs")
    close_state_stores(spark)
    before = open_stores(spark)
    gone = threading.Event()
    gone.set()

    for _ in range(5):  # Some end before the task begins to read.
        with pytest.raises(CancelledError):
            look_up_repeatedly(states, gone)
    wait_until(lambda: running_task_count(spark) == 0, 60, "no task runs")
    assert before == open_stores(spark)


def test_lookups_leave_no_state_store_and_no_file_open(
    reader: tuple[Stream, StateReader], spark: SparkSession
) -> None:
    stream, states = reader
    stream.feed(left=[{"k": "x", "t": T0, "a": 1}])
    jvm: Any = spark._jvm
    descriptors = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/fd")

    def look_up() -> tuple[int, int]:
        """Open state stores and files afterwards."""
        for side, key in (("left", ["x", "1"]), ("right", ["x", "1"]), ("left", ["y", "1"])):
            states.rows(side, key, last_batch(states), limit=9, cancel=never())
        states.count_rows(last_batch(states), cancel=never())
        wait_until(lambda: running_task_count(spark) == 0, 60, "no task runs")
        return open_stores(spark), sum(map(is_file, descriptors.iterdir()))

    stores, open_files = look_up()  # The first lookup opens what all of them share.
    for _ in range(5):
        later = look_up()
    # Spark may close some of the query meanwhile.
    assert later[0] <= stores
    assert later[1] <= open_files


def is_file(descriptor: Path) -> bool:
    """Not a socket, and not closed meanwhile."""
    return descriptor.resolve().is_file()


def look_up_repeatedly(states: StateReader, gone: threading.Event) -> None:
    """A single lookup may end before the cancellation."""
    for _ in range(50):
        states.count_rows(last_batch(states), cancel=gone)


def test_spark_corrupts_the_state_when_it_rewrites_it_for_more_partitions(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Why `streamjoin checkpoint repartition` refuses. Once this fails, Spark can do it."""
    text = spec_text()
    stream = Stream(spark, tmp_path, text)
    stream.feed(left=[{"k": f"{number}", "t": T0, "a": 1} for number in range(20)])
    for query in spark.streams.active:
        query.stop()
    plan = join_plan(spec_from_yaml(text, {}), SQL, state_partitions=1)
    states = StateReader(spark, plan, str(tmp_path / "checkpoint"))
    [whole] = states.count_rows(last_batch(states), cancel=never()).left.partitions
    assert 20 == whole.rows

    manager = spark._streamingCheckpointManager  # type: ignore[attr-defined]  # private in 4.3.0
    manager.repartition(states.location, 2, True)
    with pytest.raises(Exception, match="Invalid byte array backed UnsafeRow"):
        states.count_rows(last_batch(states), cancel=never())
    stream.stop()


def families(spark: SparkSession, states: StateReader) -> dict[str, list[bytes]]:
    """Keys of the newest state by column family."""
    entries = (
        spark.read.format("statestore")
        .option("path", states.location)
        .option("_readAllColumnFamilies", True)
        .load()
        .collect()
    )
    keys: dict[str, list[bytes]] = {}
    for entry in entries:
        keys.setdefault(entry.column_family_name, []).append(entry.key_bytes)
    return keys


def times(keys: dict[str, list[bytes]]) -> list[int]:
    """Times of the timers."""
    [family] = (each for name, each in keys.items() if name.endswith("timestampToKey"))
    # An UnsafeRow: a word of null bits, then the time.
    return sorted(int.from_bytes(key[8:16], "little") for key in family)


@pytest.mark.parametrize("state_format", ["real_time"], indirect=True)
def test_nothing_is_left_in_state_once_all_rows_have_expired(
    reader: tuple[Stream, StateReader], spark: SparkSession
) -> None:
    stream, states = reader
    # Rows of a key that expire one after the other, and keys that expire together.
    rows = [{"k": "x", "t": T0 + number, "a": 1, "b": 1} for number in range(5)]
    rows += [{"k": f"{number}", "t": T0, "a": 1, "b": 1} for number in range(20)]
    stream.feed(left=rows, right=rows)
    assert {"left", "right"} <= families(spark, states).keys()

    stream.raise_watermark(20)
    stream.feed(left=[{"k": "late", "t": T0, "a": 1}])

    left = families(spark, states)
    assert not {"left", "right"} & left.keys()
    # After each row of an interval Spark searches for timers that are due: there is only one.
    [_clock] = times(left)


def test_names_that_the_state_cannot_have_are_those_of_the_spec(
    spark: SparkSession, tmp_path: Path
) -> None:
    nested = "STRUCT<`a-b`: ARRAY<STRUCT<`1st`: BIGINT>>>"
    schema = f"k STRING, t TIMESTAMP, a BIGINT, `two words` STRING, `_x0020_\U0001f600` {nested}"
    text = spec_text(
        left_schema=f'"{schema}"',
        columns='k: left.k, b: right.b, w: "left.`two words`", n: "left.`_x0020_\U0001f600`"',
        more="engine: real_time",
    )
    plan = join_plan(spec_from_yaml(text, {}), SQL, state_partitions=1)
    states = StateReader(spark, plan, str(tmp_path / "checkpoint"))
    content = {"two words": "w", "_x0020_😀": {"a-b": [{"1st": 7}]}}
    stream = Stream(spark, tmp_path, text)
    try:
        stream.feed(left=[{"k": "x", "t": T0, "a": 3, **content}])
        [found] = states.rows("left", ["x"], last_batch(states), limit=10, cancel=never()).rows
        [result] = stream.feed(right=[{"k": "x", "t": T0, "b": 1}])
    finally:
        stream.stop()

    assert content.items() <= found.row.items()
    assert {"w": "w", "n": {"a-b": [{"1st": 7}]}}.items() <= result.items()
