"""Latency of records. The batch was recorded from Spark 4.3.0."""

from datetime import datetime

import pytest

from job.protocol.latency import LATENCY_SECONDS_BOUNDS, Latencies, latency_report
from job.protocol.progress import SideProgress, batch_progress
from job.protocol.totals import Totals
from tests.unit.protocol.test_progress import RECORDED


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
    latencies = Latencies().plus(side(100, oldest, newest, end), end)

    counts = buckets(latencies)
    assert 100 == sum(latencies.counts)
    assert {bound: counts.get(bound, 0) for bound in expected} == expected
    spread = max(0.0, oldest) + max(0.0, newest)
    assert latencies.seconds == pytest.approx(50 * spread, abs=0.1)


@pytest.mark.parametrize(
    ("spreads", "p50", "p99"),
    [
        ([(100, 1.0, 0.0)], 0.5, 0.99),
        ([(100, 0.25, 0.25)], 0.25, 0.25),
        ([(100, -5.0, -5.0)], 0.0, 0.0),  # the producer's clock is ahead
        ([(98, 0.25, 0.25), (0, 900.0, 900.0), (2, 60.0, 60.0)], 0.25, 60.0),
        ([(50, 1.0, 0.0), (50, 3.0, 1.0)], 1.0, 2.96),
    ],
)
def test_quantiles_are_those_of_the_records_of_all_batches(
    spreads: list[tuple[int, float, float]], p50: float, p99: float
) -> None:
    recorded = batch_progress(RECORDED)
    nothing = side(0, 0.0, 0.0, recorded.ended_at)
    batches = [
        recorded.model_copy(update={"left": side(*spread, recorded.ended_at), "right": nothing})
        for spread in spreads
    ]

    report = latency_report(batches)

    assert report is not None
    assert [p50, p99] == pytest.approx([report.p50_seconds, report.p99_seconds], abs=0.002)


def test_batches_without_records_have_no_quantiles() -> None:
    recorded = batch_progress(RECORDED)
    nothing = side(0, 0.0, 0.0, recorded.ended_at)

    assert latency_report([recorded.model_copy(update={"left": nothing, "right": nothing})]) is None


def test_batches_of_a_replay_do_not_count() -> None:
    recorded = batch_progress(RECORDED)
    replay = recorded.model_copy(
        update={"is_replay": True, "left": side(900, 7_200.0, 7_200.0, recorded.ended_at)}
    )

    assert latency_report([recorded]) == latency_report([replay, recorded])
    assert latency_report([replay]) is None
    assert Totals().plus(recorded).latencies == Totals().plus(replay).plus(recorded).latencies


def side(records: int, oldest: float, newest: float, end: datetime) -> SideProgress:
    """Records with timestamps that are so many seconds before `end`."""
    return SideProgress(
        records=records,
        null_keys=0,
        bad_records={},
        event_time_max_ms=None,
        record_time_min_ms=round((end.timestamp() - oldest) * 1000),
        record_time_max_ms=round((end.timestamp() - newest) * 1000),
        end_offsets={},
        latest_offsets={},
    )


def buckets(latencies: Latencies) -> dict[float | None, int]:
    """Records per upper bound; None: the last bucket. Empty buckets are left out."""
    bounds = [*LATENCY_SECONDS_BOUNDS, None]
    return {bound: count for bound, count in zip(bounds, latencies.counts, strict=True) if count}
