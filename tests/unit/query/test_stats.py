"""Statistics of the query."""

import json
from collections import deque
from threading import Thread

from job.errors import BrokerError
from job.protocol.progress import BatchProgress
from job.query.stats import BATCHES_KEPT, FAILURES_KEPT, QueryStats
from tests.unit.protocol.test_progress import recorded


def test_last_batches_are_kept_oldest_first_and_all_are_summed() -> None:
    stats = QueryStats()
    for number in range(BATCHES_KEPT + 5):
        stats.batch(recorded(batchId=number))

    assert list(range(5, BATCHES_KEPT + 5)) == [batch.batch_id for batch in stats.batches]
    assert stats.batches[-1] == stats.last_batch
    assert BATCHES_KEPT + 5 == stats.totals.batches


def test_rows_that_the_job_wrote_itself_are_output_of_the_batch() -> None:
    stats = QueryStats()
    stats.delivered(7, 3, {"committed": 1, "aborted": 1})
    stats.delivered(7, 2, {"committed": 1, "skipped": 1, "disagreement": 1})
    stats.batch(recorded(batchId=7))

    assert stats.last_batch is not None
    assert (5, 5) == (stats.last_batch.output_records, stats.totals.output_records)
    expected = {"committed": 2, "skipped": 1, "aborted": 1, "fenced": 0, "unknown": 0}
    assert expected == stats.totals.transactions


def test_unreadable_report_changes_nothing() -> None:
    stats = QueryStats()
    stats.batch(json.dumps({"batchId": 1}))

    assert (None, None, 0) == (
        stats.last_batch,
        stats.last_progress_at,
        stats.totals.batches,
    )


def test_last_failures_are_kept_and_all_are_counted() -> None:
    stats = QueryStats()
    for number in range(FAILURES_KEPT + 2):
        stats.on_failure(BrokerError(f"number {number}"))

    assert f"number {FAILURES_KEPT + 1}" == stats.failures[-1].message
    assert stats.failures[-1] == stats.last_failure
    assert FAILURES_KEPT == len(stats.failures)
    assert {BrokerError.code: FAILURES_KEPT + 2} == stats.totals.failures


def test_retries_are_counted_until_the_next_progress() -> None:
    stats = QueryStats()

    assert [0, 1, 2] == [stats.count_retry() for _ in range(3)]
    stats.idle()
    assert 0 == stats.count_retry()


def test_reset_keeps_the_counters_and_forgets_offsets_and_batches() -> None:
    stats = QueryStats()
    stats.batch(recorded())
    stats.on_reset()

    assert (None, None, []) == (stats.offsets, stats.last_batch, stats.batches)
    assert stats.totals.left.event_time_max_ms is None
    assert (1, 6) == (stats.totals.batches, stats.totals.left.records)


def test_last_batch_can_be_read_during_a_reset() -> None:
    stats = QueryStats()
    stats.batch(recorded())

    class ResetInBetween(deque[BatchProgress]):
        def __len__(self) -> int:
            before = super().__len__()
            reset = Thread(target=stats.on_reset, daemon=True)
            reset.start()
            reset.join(0.2)  # ends only if the reader does not hold the lock
            return before

    stats._batches = ResetInBetween(stats.batches)

    assert stats.last_batch is not None
