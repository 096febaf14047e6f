"""Duplicates are dropped before the join, by the operator streamjoin (job/join/Duplicates.java)."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.checkpoint.state_reader import StateReader
from job.plan.planner import join_plan
from job.spec.spec import spec_from_yaml
from tests.semantics import differential
from tests.semantics.join_cases import Case, Data, Idle, Restart
from tests.semantics.planted_java import Plant, compile_plants, use_plant
from tests.semantics.real_time_runner import HEAPS, Heap
from tests.semantics.streams import T0, Stream, spec_text
from tests.semantics.test_differential import case
from tests.semantics.test_differential import row as line
from tests.sql_worker import SQL

SCHEMA = "k STRING, t TIMESTAMP, a BIGINT, e STRING"
BY_E = "deduplicate: {by: [e], within: 20 seconds}"
WIDE = "match_window: {before: 1 hour, after: 1 hour}"


@pytest.fixture
def started(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., Stream]]:
    with ExitStack() as running:

        def start(**changes: str) -> Stream:
            defaults = {"left_schema": SCHEMA, "left_more": BY_E, "join_type": "inner"}
            stream = Stream(spark, tmp_path, spec_text(**(defaults | changes)))
            running.callback(stream.stop)
            return stream

        yield start


def row(k: str, at: float, e: str | None = None) -> dict[str, Any]:
    return {"k": k, "t": T0 + round(at * 1000), "a": 1, "b": 2, "e": e}


def keys(results: list[dict[str, Any]]) -> list[str]:
    return sorted(result["k"] for result in results)


def test_duplicate_in_the_same_a_later_and_a_restarted_batch_is_dropped_and_counted(
    started: Callable[..., Stream],
) -> None:
    stream = started()
    assert ["x"] == keys(stream.feed([row("x", 100, "1")] * 2, [row("x", 101)]))
    assert [] == keys(stream.feed([row("x", 100.5, "1")]))
    assert 2 == stream.duplicates("left")

    stream.restart()

    assert ["y"] == keys(stream.feed([row("x", 100, "1"), row("y", 101, "2")], [row("y", 101)]))
    assert 1 == stream.duplicates("left")


@pytest.mark.parametrize(
    ("at", "is_duplicate"), [(79.999, False), (80, True), (120, True), (120.001, False)]
)
def test_duplicate_has_an_event_time_at_most_within_before_or_after(
    started: Callable[..., Stream], at: float, is_duplicate: bool
) -> None:
    stream = started(join=WIDE)
    found = stream.feed([row("x", 100, "1"), row("x", at, "1")], [row("x", 100)])

    assert (["x"] if is_duplicate else ["x", "x"]) == keys(found)


def test_rows_with_another_key_or_a_null_in_the_id_are_no_duplicates(
    started: Callable[..., Stream],
) -> None:
    stream = started(join=WIDE)
    rows = [row("x", 100, "1"), row("y", 100, "1"), row("x", 100), row("x", 100)]

    assert ["x", "x", "x", "y"] == keys(stream.feed(rows, [row("x", 100), row("y", 100)]))
    assert 0 == stream.duplicates("left")


def test_id_is_kept_until_the_watermark_is_within_after_its_row(
    started: Callable[..., Stream],
) -> None:
    stream = started(join=WIDE)
    stream.feed([row("x", 100, "1")], [row("x", 100)])
    stream.raise_watermark(119.999)
    stream.feed()
    assert [] == keys(stream.feed([row("x", 120, "1")]))

    stream.raise_watermark(140)
    stream.feed()
    assert ["x"] == keys(stream.feed([row("x", 140.5, "1")]))


def test_duplicates_are_in_one_tumbling_window(started: Callable[..., Stream]) -> None:
    stream = started(join="window: 1 minute")
    start = -T0 / 1000 % 60  # seconds after T0 at which a window begins
    rows = [row("x", start + at, "1") for at in (59, 59.5, 60)]

    found = stream.feed(rows, [row("x", start + 30), row("x", start + 90)])

    assert ["x", "x"] == keys(found)
    assert 1 == stream.duplicates("left")


def test_both_sides_of_a_right_semi_join_count_their_own_duplicates_and_ids(
    spark: SparkSession, tmp_path: Path
) -> None:
    changes = {
        "left_schema": SCHEMA,
        "left_more": BY_E,
        "right_schema": "k STRING, t TIMESTAMP, b BIGINT, e STRING",
        "join_type": "right_semi",
        "columns": "k: right.k",
    }
    by_b = "deduplicate: {by: [b], within: 1 minute}"
    text = spec_text(**changes).replace("topic: rights", f"topic: rights\n  {by_b}")
    stream = Stream(spark, tmp_path, text)
    try:
        rights = [row("x", 101, "1"), row("x", 101, "2")]
        stream.feed([row("x", 100, "1")] * 3 + [row("y", 100, "2")], rights)
        progress = next(batch for batch in stream.progress() if batch.input_records)
        found = stream.duplicates("left"), stream.duplicates("right")
        plan = join_plan(spec_from_yaml(text, {}), SQL, state_partitions=1)
        # Before the stop, which restores the settings by which Spark finds the state.
        reader = StateReader(spark, plan, str(tmp_path / "checkpoint"))
        count = reader.count_rows(progress.batch_id, cancel=threading.Event())
        # After `within` of the left side, and before that of the right side.
        stream.raise_watermark(125)
        stream.feed()
        stream.feed([row("x", 126, "1")], [row("x", 126, "3")])
        dropped = stream.duplicates("left"), stream.duplicates("right")
    finally:
        stream.stop()
    assert (2, 1) == found
    assert (2, 1) == (count.left.stored_ids, count.right.stored_ids)
    assert (2, 2) == dropped


# Duplicates are at most 2.5 seconds apart, and their ids in slots of 1.25 seconds.
DUPLICATES = (
    Data([line(1, 1_000), line(1, 3_500, 1)], [line(1, 2_000)]),
    Data([line(1, 3_501), line(2, 8_000)]),
    Data([line(2, 5_500)], [line(1, 2_000)]),
    Restart(),
    Data([line(1, 1_000), line(2, 8_000)], [line(2, 8_100)]),
    Data([line(9, 30_000), line(4, 40_000)], [line(9, 30_000)]),
    Idle(),
    Data([line(9, 52_000)], [line(9, 52_000)]),
    Idle(),
    # The watermark, 42,000, has passed the first row, and not the time in which it has duplicates.
    Data([line(4, 42_400)]),
    Data([line(9, 90_000)], [line(9, 90_000)]),
    Idle(),
)


PLANTED: Mapping[str, Plant] = {
    "duplicate_at_the_end_of_within_not_found": Plant(
        "Duplicates.java", "<= ids.within", "< ids.within"
    ),
    "id_of_an_earlier_slot_not_read": Plant(
        "Duplicates.java", "slotTime - ids.reach,", "slotTime,"
    ),
    "id_evicted_too_early": Plant("JoinRules.java", "kept[list] = ids[side].kept;", ""),
    "ids_not_written": Plant(
        "JoinState.java",
        "for (Slot slot : ofSide) {\n        slot.uses /= 2;",
        "for (Slot slot : ofSide) {\n        if (slot.side > 1) continue;",
    ),
}


@pytest.fixture(scope="module")
def planted() -> None:
    compile_plants(PLANTED)


def scenario() -> Case:
    made = case("full_outer", steps=DUPLICATES)
    made.spec["left"]["deduplicate"] = {"by": ["k"], "within": "2500 milliseconds"}
    return made


@pytest.mark.parametrize("heap", HEAPS)
def test_without_a_planted_bug_the_scenario_agrees(spark: SparkSession, heap: Heap) -> None:
    batches = differential.check(spark, scenario(), processor="batch", heap=heap)

    assert [1, 1, 2, 1] == [n for each in batches if (n := each.duplicates["left"])]


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("name", PLANTED)
def test_bug_planted_in_deduplication_is_caught(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    use_plant(monkeypatch, name)

    with pytest.raises(differential.DifferenceError, match=r"batch \d+, (output|duplicates): "):
        differential.check(spark, scenario(), processor="batch", heap=HEAPS[1])
