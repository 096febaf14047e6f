"""Counters since the job started. The batch was recorded from Spark 4.3.0."""

import pytest

from job.protocol.progress import batch_progress
from job.protocol.totals import BATCH_SECONDS_BOUNDS, Totals
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
