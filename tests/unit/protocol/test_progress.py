"""Spark's JSON read into values, and values summed. The JSON was recorded from Spark 4.3.0."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from job.protocol.progress import SideProgress, batch_progress
from job.protocol.reasons import REASONS
from job.protocol.totals import BATCH_SECONDS_BOUNDS, LATENCY_SECONDS_BOUNDS, Latencies, Totals

RECORDED = (Path(__file__).parents[2] / "golden" / "progress.json").read_text()


def recorded(**changes: Any) -> str:
    return json.dumps({**json.loads(RECORDED), **changes})


def test_recorded_progress_is_read_in_our_names_and_units() -> None:
    batch = batch_progress(RECORDED)

    assert 2 == batch.batch_id
    assert datetime(2026, 11, 20, 21, 20, 46, 500_000, UTC) == batch.started_at
    assert 0.347 == batch.duration_seconds
    assert 0.171 == batch.phase_seconds["add_batch"]
    assert (3, 1, 1) == (batch.output_records, batch.late_rows, batch.state_rows_updated)
    assert 4 == batch.state_rows_removed
    assert (0.095, 0.015, 0.131) == (
        batch.state_update_seconds,
        batch.state_removal_seconds,
        batch.state_commit_seconds,
    )
    assert 268_068 == batch.state_memory_bytes
    assert 10 == batch.state_custom["rocksdbGetCount"]
    assert 1_700_000_050_000 == batch.watermark_ms
    assert 9 == batch.input_records


def test_each_side_has_its_offsets_counts_and_reasons() -> None:
    batch = batch_progress(RECORDED)

    assert {0: 5, 1: 0} == batch.left.offsets_behind_latest
    assert {0: 0} == batch.right.offsets_behind_latest
    assert {**dict.fromkeys(REASONS, 0), "malformed_json": 2} == batch.left.bad_records
    assert (6, 1, 1_700_000_060_000) == (
        batch.left.records,
        batch.left.null_keys,
        batch.left.event_time_max_ms,
    )


def test_side_that_saw_nothing_counts_nothing() -> None:
    batch = batch_progress(recorded(observedMetrics={}))

    assert (0, None) == (batch.right.records, batch.right.event_time_max_ms)


def test_batch_that_is_run_again_knows_of_no_latest_offsets() -> None:
    progress = json.loads(RECORDED)
    progress["sources"][0]["latestOffset"] = None

    assert batch_progress(json.dumps(progress)).left.offsets_behind_latest is None


def test_self_join_keeps_its_sides_apart() -> None:
    progress = json.loads(RECORDED)
    progress["sources"][1]["endOffset"] = {"impressions": {"0": 1}}
    progress["sources"][1]["latestOffset"] = {"impressions": {"0": 9}}

    assert {0: 8} == batch_progress(json.dumps(progress)).right.offsets_behind_latest


def test_there_is_no_watermark_before_a_row_has_moved_it() -> None:
    at_the_start = recorded(eventTime={"watermark": "1970-01-01T00:00:00.000Z"})

    assert batch_progress(at_the_start).watermark_ms is None
    assert batch_progress(recorded(eventTime={})).watermark_ms is None


def test_count_that_spark_does_not_know_is_none_at_all() -> None:
    assert 0 == batch_progress(recorded(sink={"numOutputRows": -1})).output_records


def test_totals_are_sums_and_the_newest_event_time() -> None:
    batch = batch_progress(RECORDED)
    older = batch.model_copy(
        update={"left": batch.left.model_copy(update={"event_time_max_ms": 5})}
    )

    totals = Totals().plus(batch).plus(older)

    assert (2, 6, 2) == (totals.batches, totals.output_records, totals.late_rows)
    assert (12, 4) == (totals.left.records, totals.left.bad_records["malformed_json"])
    assert 1_700_000_060_000 == totals.left.event_time_max_ms
    assert 0.694 == totals.batch_seconds
    assert 0.342 == totals.phase_seconds["add_batch"]


def test_batches_fall_into_the_bucket_that_just_holds_them() -> None:
    batch = batch_progress(RECORDED)
    totals = Totals()
    for seconds in (0.1, 0.11, 10_000):
        totals = totals.plus(batch.model_copy(update={"duration_seconds": seconds}))

    last = len(BATCH_SECONDS_BOUNDS)
    assert {0: 1, 1: 1, last: 1} == {
        bucket: count for bucket, count in enumerate(totals.batch_seconds_counts) if count
    }


def test_failures_and_restarts_are_counted() -> None:
    totals = Totals().with_failure("broker").with_failure("broker").with_failure("query")

    assert {"broker": 2, "query": 1} == totals.failures
    assert 1 == totals.with_restart().restarts


def test_latency_is_from_the_record_timestamps_to_the_end_of_the_batch() -> None:
    latencies = Totals().plus(batch_progress(RECORDED)).latencies

    # Left: 6 records from 1 s to 0.4 s before the batch ended. Right: 3, all 0.3 s before.
    assert {0.35: 3, 0.5: 1, 0.75: 3, 1.0: 2} == told(latencies)
    assert latencies.seconds == pytest.approx(6 * 0.7 + 3 * 0.3)


def test_records_without_a_timestamp_have_no_latency() -> None:
    batch = batch_progress(RECORDED)
    unknown = {"record_time_min_ms": None, "record_time_max_ms": None}
    left, right = (side.model_copy(update=unknown) for side in (batch.left, batch.right))

    totals = Totals().plus(batch.model_copy(update={"left": left, "right": right}))

    assert Latencies() == totals.latencies


@pytest.mark.parametrize(
    ("oldest", "newest", "expected"),
    [
        (-5.0, -5.0, {0.05: 100}),  # the producer's clock is ahead
        (0.05, 0.05, {0.05: 100}),
        (0.051, 0.051, {0.1: 100}),
        (10.0, 0.0, {0.05: 0, 2.5: 10, 5.0: 25, 10.0: 50}),
        (3_600.0, 3_600.0, {None: 100}),
        (1_200.0, 0.0, {None: 50, 600.0: 35, 180.0: 10, 60.0: 3}),
    ],
)
def test_records_of_a_batch_are_spread_evenly_between_the_oldest_and_the_newest(
    oldest: float, newest: float, expected: dict[float | None, int]
) -> None:
    end = batch_progress(RECORDED).ended_at
    side = SideProgress(
        records=100,
        null_keys=0,
        bad_records={},
        event_time_max_ms=None,
        record_time_min_ms=round((end.timestamp() - oldest) * 1000),
        record_time_max_ms=round((end.timestamp() - newest) * 1000),
        end_offsets={},
        latest_offsets={},
    )

    latencies = Latencies().plus(side, end)

    found = told(latencies)
    assert 100 == sum(latencies.counts)
    assert {bound: found.get(bound, 0) for bound in expected} == expected
    spread = max(0.0, oldest) + max(0.0, newest)
    assert latencies.seconds == pytest.approx(50 * spread, abs=0.1)


def told(latencies: Latencies) -> dict[float | None, int]:
    """Records per upper bound, those without any apart."""
    bounds = [*LATENCY_SECONDS_BOUNDS, None]
    return {bound: count for bound, count in zip(bounds, latencies.counts, strict=True) if count}
