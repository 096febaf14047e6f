"""Duplicates are dropped before the join, by Spark's operator with the watermark of the job."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.checkpoint.state_reader import StateReader
from job.plan.planner import join_plan
from job.spec.sides import Side
from job.spec.spec import spec_from_yaml
from tests.semantics.streams import T0, Stream, spec_text
from tests.sql_worker import SQL

SCHEMA = "k STRING, t TIMESTAMP, a BIGINT, e STRING"
BY_E = "deduplicate: {by: [e], within: 20 seconds}"


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


def duplicates(stream: Stream, side: Side = "left") -> int:
    sides = [batch.left if side == "left" else batch.right for batch in stream.progress()]
    return sum(of_side.duplicates for of_side in sides)


def test_duplicate_in_the_same_a_later_and_a_restarted_batch_is_dropped_and_counted(
    started: Callable[..., Stream],
) -> None:
    stream = started()
    assert ["x"] == keys(stream.feed([row("x", 100, "1")] * 2, [row("x", 101)]))
    assert [] == keys(stream.feed([row("x", 100.5, "1")]))
    assert 2 == duplicates(stream)

    stream.restart()

    assert ["y"] == keys(stream.feed([row("x", 100, "1"), row("y", 101, "2")], [row("y", 101)]))
    assert 1 == duplicates(stream)
    # Rows of the join only: ids are not rows.
    assert [2] == [batch.state_rows_updated for batch in stream.progress() if batch.input_records]


def test_id_is_kept_until_the_watermark_is_within_after_its_first_row(
    started: Callable[..., Stream],
) -> None:
    stream = started(join="match_window: {before: 1 hour, after: 1 hour}")
    stream.feed([row("x", 100, "1")], [row("x", 100)])
    stream.raise_watermark(119.999)
    stream.feed()
    assert [] == keys(stream.feed([row("x", 120.5, "1")]))

    stream.raise_watermark(120)
    stream.feed()
    assert ["x"] == keys(stream.feed([row("x", 120.5, "1")]))


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
        plan = join_plan(spec_from_yaml(text, {}), SQL, state_partitions=1)
        # Before the stop, which restores the settings by which Spark finds the state.
        reader = StateReader(spark, plan, str(tmp_path / "checkpoint"))
        count = reader.count_rows(progress.batch_id, cancel=threading.Event())
        # After `within` of the left side, and before that of the right side.
        stream.raise_watermark(125)
        stream.feed()
        stream.feed([row("x", 126, "1")], [row("x", 126, "3")])
        dropped = duplicates(stream, "left"), duplicates(stream, "right")
    finally:
        stream.stop()
    assert (2, 1) == (progress.left.duplicates, progress.right.duplicates)
    assert (2, 1) == (count.left.stored_ids, count.right.stored_ids)
    assert (2, 2) == dropped
