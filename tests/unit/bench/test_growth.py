"""The load that keeps a state at its size, and the figures of its batches."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from bench.growth.batches import Batches, Point, points, steady
from bench.growth.load import (
    BATCH_ROWS,
    KEYS,
    SMALLEST_STATE_ROWS,
    Events,
    Keys,
    Shape,
    TableEvents,
    events,
    table_events,
)
from bench.growth.report import MEMORY_CAP_BYTES, limits, loading_table
from bench.growth.run import Growth
from bench.load import Click, Impression, joined
from bench.processes import Sample
from job.protocol.progress import BatchProgress, batch_progress
from tests.unit.protocol.test_progress import recorded

STATE_ROWS = 2 * BATCH_ROWS


def held_after_batches(shape: Shape, load: Events) -> Iterator[int]:
    """Rows in state after each batch, as the join stores them; AssertionError if a row is late."""
    workload, side_rows = shape.workload, BATCH_ROWS // 2
    stored, watermark, newest = np.empty(0, dtype=np.int64), 0, 0
    for start in range(0, len(load.left), side_rows):
        shown = load.shown_at[load.left[start : start + side_rows]]
        clicked = load.clicked_at[load.right[start : start + side_rows]]
        assert min(shown.min(), clicked.min()) > watermark
        waits_until = np.concatenate([shown + workload.match_window_ms, clicked])
        watermark = newest
        stored = np.concatenate([stored, waits_until])
        stored = stored[stored > watermark]
        newest = min(shown.max(), clicked.max()) - workload.watermark_delay_ms
        yield len(stored)


@pytest.mark.parametrize("keys", KEYS)
def test_state_grows_to_the_wanted_size_and_stays_there_without_late_rows(keys: Keys) -> None:
    shape = Shape(STATE_ROWS, keys)

    sizes = list(held_after_batches(shape, events(shape, 10 * BATCH_ROWS // 2)))

    assert BATCH_ROWS == sizes[0]
    assert [] == [size for size in sizes[3:] if abs(size - STATE_ROWS) > 0.05 * STATE_ROWS]


@pytest.mark.parametrize("keys", KEYS)
def test_expected_rows_are_those_of_the_events_that_arrive(keys: Keys) -> None:
    shape = Shape(SMALLEST_STATE_ROWS, keys)
    load = events(shape, 8_000)
    impressions, clicks = sides(load)

    expected = sorted(joined(impressions, clicks, shape.workload))

    assert len(expected) > 1_000
    assert expected == sorted(load.joined())


def sides(load: Events | TableEvents) -> tuple[list[Impression], list[Click]]:
    arriving = list(load.arriving())
    return (
        [event for event in arriving if isinstance(event, Impression)],
        [event for event in arriving if isinstance(event, Click)],
    )


def test_table_has_each_key_once_before_the_clicks_on_some_of_them() -> None:
    shape = Shape(2_000, "table")
    load = table_events(shape, 500)
    impressions, clicks = sides(load)

    assert [*impressions, *clicks] == list(load.arriving())
    assert list(range(2_000)) == sorted(shown.ad_id for shown in impressions)
    assert 300 < len({clicked.ad_id for clicked in clicks}) < 500 == len(clicks)
    assert sorted(joined(impressions, clicks, shape.workload)) == sorted(load.joined())


def test_steady_batches_of_a_table_have_only_rows_of_the_stream() -> None:
    table, uniform = Shape(1_000_000, "table"), Shape(1_000_000, "uniform")

    assert BATCH_ROWS == uniform.batch_rows == 2 * table.batch_rows
    assert 1_000_000 == uniform.rows_before_steady(2)
    assert 1_000_000 + 2 * table.batch_rows == table.rows_before_steady(2)
    assert (1_000_000, 200_000) == table.records(table.rows_before_steady(2))
    assert (500_000, 500_000) == uniform.records(1_000_001)


def ended(*seconds: float) -> list[BatchProgress]:
    """Batches of 9 input rows, and the time at which each ended."""
    batch = batch_progress(recorded())
    return [
        batch.model_copy(
            update={
                "batch_id": number,
                "state_rows": 100 * number,
                "started_at": batch.started_at + timedelta(seconds=end - batch.duration_seconds),
            }
        )
        for number, end in enumerate(seconds)
    ]


def samples(batches: list[BatchProgress]) -> list[Sample]:
    """One sample a second from the first batch's end: half a core, and a byte more each second."""
    start = batches[0].ended_at.timestamp()
    return [Sample(start + n, 0.5 * n, 0, 0, 0, tree_memory_bytes=n) for n in range(120)]


def test_batch_lasts_from_the_end_of_the_one_before_and_costs_what_was_used_meanwhile() -> None:
    batches = ended(0, 3, 10)

    first, second = points(batches, samples(batches))

    assert (9, 18) == (first.rows_before, second.rows_before)
    assert (3, 9 / 3, 9 / 1.5, 100) == (
        pytest.approx(first.seconds),
        pytest.approx(first.rows_per_second),
        pytest.approx(first.rows_per_cpu_second),
        first.state_rows,
    )
    assert (3, 10) == (first.memory_bytes, second.memory_bytes)
    assert (15, 131, 4) == (second.evict_ms, second.commit_ms, second.evicted_rows)
    assert {"rocksdbGetCount", "rocksdbPutCount", "rocksdbSstFileSize"} == set(first.rocksdb)


def test_batches_that_read_nothing_are_no_points_but_end_the_one_before() -> None:
    batches = ended(0, 3, 4, 10)
    nothing = batches[1].left.model_copy(update={"records": 0})
    batches[2] = batches[2].model_copy(update={"left": nothing, "right": nothing})

    assert [3, 6] == [round(point.seconds) for point in points(batches, samples(batches))]


def test_steady_are_the_batches_after_so_many_rows() -> None:
    batches = ended(0, 100, 103, 109, 112)
    measured = list(points(batches, samples(batches)))

    selected = steady(measured, rows_before=18)

    assert 3 == selected.batches
    assert 300 == selected.state_rows
    assert 3 * 9 / 12 == pytest.approx(selected.rows_per_second)
    with pytest.raises(ValueError, match="no batch began after 46 rows"):
        steady(measured, rows_before=46)


def test_all_is_read_when_both_sides_are(tmp_path: Path) -> None:
    [batch] = ended(0)
    left = batch.left.model_copy(update={"end_offsets": {0: 5, 1: 2}})
    right = batch.right.model_copy(update={"end_offsets": {0: 3, 1: 3}})
    batches = Batches(tmp_path / "socket")

    assert not batches.have_read(0, 0)
    batches.note([batch.model_copy(update={"left": left, "right": right})])
    assert batches.have_read(7, 6)
    assert not batches.have_read(7, 7)
    assert not batches.have_read(8, 6)


def grown(**changes: float) -> Growth:
    point = Point(1, 0, 200, 100, 1.0, 1.0, 1, 1.0, 1.0, 1.0, 50.0, 100, {})
    measured = steady([point], rows_before=0)
    return Growth(
        correct=True,
        outputs=1,
        expected_outputs=1,
        loading=None,
        steady=replace(measured, **changes),
        peak_memory_bytes=MEMORY_CAP_BYTES,
        checkpoint_bytes=1,
        checkpoint_files=1,
        restart_seconds=1.0,
        foreign_cores=0.0,
        points=[point],
    )


BASE, LARGE, HOT = Shape(300_000, "uniform"), Shape(500_000, "uniform"), Shape(500_000, "zipf")


def missed(**runs: Growth) -> list[str]:
    all_runs = {BASE: grown(), LARGE: grown(), HOT: grown()}
    named = {"base": BASE, "large": LARGE, "hot": HOT}
    all_runs |= {named[name]: run for name, run in runs.items()}
    return [line for line in limits(all_runs) if line.endswith("LIMIT MISSED")]


def test_limit_is_missed_when_it_is_and_not_before() -> None:
    assert [] == missed(large=grown(rows_per_second=161.0, evict_ms=74.0))
    assert [] == missed(hot=grown(rows_per_second=101.0))
    over = replace(grown(), peak_memory_bytes=MEMORY_CAP_BYTES + 2**20)

    [slow] = missed(large=grown(rows_per_second=159.0))
    [evicts] = missed(large=grown(evict_ms=76.0))
    [hot] = missed(hot=grown(rows_per_second=99.0))
    [fat] = missed(base=over)

    assert slow.startswith("uniform, 500,000: rows/s are 80% of uniform, 300,000")
    assert "time to evict a row is 152% of uniform, 300,000" in evicts
    assert hot.startswith("zipf, 500,000: rows/s are 50% of uniform, 500,000")
    assert "peak memory is 100% of the cap" in fat


def test_large_table_is_compared_with_a_small_one() -> None:
    small, large = Shape(100_000, "table"), Shape(500_000, "table")
    base, slow = grown(rows_per_second=100.0), grown(rows_per_second=79.0, evict_ms=999.0)

    lines = list(limits({BASE: grown(), small: base, large: slow}))

    assert ["table, 500,000: rows/s are 79% of table, 100,000: LIMIT MISSED"] == [
        line for line in lines if "MISSED" in line
    ]


def test_table_is_read_in_tenths_of_its_keys() -> None:
    [point] = grown().points
    starts = [0, 20, 40, 100, 1_000]
    points = [replace(point, rows_before=start, rows=20, seconds=2.0) for start in starts]
    table = loading_table(Shape(1_000, "table"), replace(grown(), points=points))

    read, seconds, rate, *_ = (list(column.cells) for column in table.columns)
    assert (["60", "120"], ["6.0", "8.0"], ["10", "10"]) == (read, seconds, rate)


def test_hot_keys_are_compared_with_uniform_ones_at_the_same_size() -> None:
    slow = grown(rows_per_second=110.0)

    assert ["uniform, 500,000"] == [line.partition(":")[0] for line in missed(large=slow, hot=slow)]
