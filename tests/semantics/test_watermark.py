"""The job raises the watermark of a running query in Spark's tracker."""

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.polling import wait_until
from tests.semantics.streams import T0, Stream, record, spec_text


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Iterator[Stream]:
    """A left outer join whose left rows wait 5 s for a match."""
    running = Stream(spark, tmp_path, spec_text())
    yield running
    running.stop()


def row(k: str, at: float) -> dict[str, Any]:
    return {"k": k, "t": T0 + round(at * 1000), "a": 1, "b": 2}


def late_rows(stream: Stream) -> int:
    return sum(batch.late_rows for batch in stream.progress())


def watermarks(stream: Stream) -> list[int]:
    """Watermarks of the batches, in order; 0 before the first one."""
    return [batch.watermark_ms or 0 for batch in stream.progress()]


def test_unmatched_rows_are_emitted_without_new_records(stream: Stream) -> None:
    stream.feed([row("x", 100), row("y", 110)])

    stream.raise_watermark(105)
    assert [] == stream.feed()
    stream.raise_watermark(105.001)

    assert [{"k": "x", "a": 1, "b": None}] == stream.feed()
    assert T0 + 105_001 == stream.progress()[-1].watermark_ms


def test_watermark_is_not_lowered(stream: Stream) -> None:
    stream.feed([row("x", 100)], [row("x", 100)])
    assert T0 + 90_000 == stream.progress()[-1].watermark_ms

    stream.raise_watermark(50)
    stream.feed([row("y", 95)], [row("y", 96)])

    assert sorted(watermarks(stream)) == watermarks(stream)
    assert T0 + 90_000 == watermarks(stream)[-1]


def test_row_is_late_at_or_behind_a_raised_watermark_and_joined_above_it(stream: Stream) -> None:
    stream.feed([row("x", 100)])
    stream.raise_watermark(200)
    stream.feed()

    late_and_in_order = [row("at", 200), row("above", 200.001)]
    out = stream.feed(late_and_in_order, [row("at", 201), row("above", 202)])

    assert [{"k": "above", "a": 1, "b": 2}] == out
    assert 1 == late_rows(stream)


def test_records_advance_a_raised_watermark(stream: Stream) -> None:
    stream.feed([row("x", 100)])
    stream.raise_watermark(200)
    stream.feed()

    stream.feed([row("y", 205)], [row("y", 205)])  # by both sides alone: 195
    assert T0 + 200_000 == stream.progress()[-1].watermark_ms
    stream.feed([row("z", 215)], [row("z", 216)])

    assert T0 + 205_000 == stream.progress()[-1].watermark_ms


def test_raised_watermark_survives_a_restart(stream: Stream) -> None:
    stream.feed([row("x", 100)])
    stream.raise_watermark(200)
    stream.feed()

    stream.restart()
    out = stream.feed([row("late", 200), row("y", 201)], [row("y", 202)])

    assert [{"k": "y", "a": 1, "b": 2}] == out
    assert T0 + 200_000 == stream.progress()[0].watermark_ms
    assert 1 == late_rows(stream)


def test_first_batch_after_a_restart_waits_for_a_record_of_either_side(stream: Stream) -> None:
    """Spark decides by the last batch of the run whether another is due, and there is none yet."""
    stream.feed([row("x", 100)])
    stream.restart()
    stream.feed()

    stream.raise_watermark(200)
    assert [] == stream.feed()

    assert [{"k": "x", "a": 1, "b": None}] == stream.feed([row("y", 300)])


def test_watermark_never_decreases_in_any_order_of_updates(stream: Stream) -> None:
    """The job raises the watermark above or below the one that Spark sets next."""
    ended = threading.Event()
    failures: list[BaseException] = []

    def raise_on() -> None:
        at = 0.0
        while not ended.is_set():
            at = (at + 0.7) % 140
            try:
                stream.raise_watermark(at)
            except BaseException as error:
                failures.append(error)

    hand = threading.Thread(target=raise_on)
    hand.start()
    try:
        for count, at in enumerate(range(200, 280, 10), start=1):
            stream.send([row("x", at)], [row("x", at)])
            wait_until(partial(read, stream, count), 60, f"{count} records of each side are read")
    finally:
        ended.set()
        hand.join()

    assert sorted(watermarks(stream)) == watermarks(stream)
    assert (0, []) == (late_rows(stream), failures)


def read(stream: Stream, count: int) -> bool:
    return count == sum(batch.right.records for batch in stream.progress())


def in_partition(number: int, k: str, at: float) -> dict[str, Any]:
    return record(row(k, at), partition=number)


def test_partition_that_is_newer_than_the_query_advances_the_watermark_of_its_side(
    stream: Stream,
) -> None:
    """Only a sample of the partition and the newest event time of the side are observed."""
    stream.feed([in_partition(7, "x", 300)], [row("x", 300)])
    stream.feed([row("y", 310)], [row("y", 310)])

    assert T0 + 300_000 == watermarks(stream)[-1]
