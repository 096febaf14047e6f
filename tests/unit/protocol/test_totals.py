"""Counters since the job started. The batch was recorded from Spark 4.3.0."""

import pytest

from job.protocol.progress import SideProgress, batch_progress
from job.protocol.totals import BATCH_SECONDS_BOUNDS, LATENCY_SECONDS_BOUNDS, Latencies, Totals
from tests.unit.protocol.test_progress import RECORDED


def test_totals_are_sums_and_the_newest_event_time() -> None:
    batch = batch_progress(RECORDED)
    older = batch.model_copy(
        update={"left": batch.left.model_copy(update={"event_time_max_ms": 5, "duplicates": 3})}
    )

    totals = Totals().plus(batch).plus(older).plus(older)

    assert (3, 9, 3) == (totals.batches, totals.output_records, totals.late_rows)
    assert (18, 6) == (totals.left.records, totals.left.bad_records["malformed_json"])
    assert (6, 0) == (totals.left.duplicates, totals.right.duplicates)
    assert 1_700_000_060_000 == totals.left.event_time_max_ms
    assert totals.batch_seconds == pytest.approx(3 * 0.347)
    assert totals.phase_seconds["add_batch"] == pytest.approx(3 * 0.171)


def test_batch_is_in_the_first_bucket_whose_bound_it_does_not_exceed() -> None:
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
    assert {0.35: 3, 0.5: 1, 0.75: 3, 1.0: 2} == buckets(latencies)
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
def test_records_are_spread_evenly_between_oldest_and_newest(
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

    counts = buckets(latencies)
    assert 100 == sum(latencies.counts)
    assert {bound: counts.get(bound, 0) for bound in expected} == expected
    spread = max(0.0, oldest) + max(0.0, newest)
    assert latencies.seconds == pytest.approx(50 * spread, abs=0.1)


def buckets(latencies: Latencies) -> dict[float | None, int]:
    """Records per upper bound; None: the last bucket. Empty buckets are left out."""
    bounds = [*LATENCY_SECONDS_BOUNDS, None]
    return {bound: count for bound, count in zip(bounds, latencies.counts, strict=True) if count}
