"""What the job keeps of what its query did."""

import json

from job.errors import BrokerError
from job.query.stats import BATCHES_KEPT, FAILURES_KEPT, QueryStats
from tests.unit.protocol.test_progress import recorded


def test_last_batches_are_kept_oldest_first_and_all_are_summed() -> None:
    account = QueryStats()
    for number in range(BATCHES_KEPT + 5):
        account.batch(recorded(batchId=number))

    assert list(range(5, BATCHES_KEPT + 5)) == [batch.batch_id for batch in account.batches]
    assert account.batches[-1] == account.last_batch
    assert BATCHES_KEPT + 5 == account.totals.batches


def test_rows_that_the_job_wrote_by_itself_are_the_batch_s() -> None:
    account = QueryStats()
    account.delivered(7, 3, {"committed": 1, "aborted": 1})
    account.delivered(7, 2, {"committed": 1, "skipped": 1, "disagreement": 1})
    account.batch(recorded(batchId=7))

    assert account.last_batch is not None
    assert (5, 5) == (account.last_batch.output_records, account.totals.output_records)
    expected = {"committed": 2, "skipped": 1, "aborted": 1, "fenced": 0, "unknown": 0}
    assert expected == account.totals.transactions


def test_report_that_cannot_be_read_changes_nothing() -> None:
    account = QueryStats()
    account.batch(json.dumps({"batchId": 1}))

    assert (None, None, 0) == (
        account.last_batch,
        account.last_progress_at,
        account.totals.batches,
    )


def test_last_failures_are_kept_and_all_are_counted() -> None:
    account = QueryStats()
    for number in range(FAILURES_KEPT + 2):
        account.failed(BrokerError(f"number {number}"))

    assert f"number {FAILURES_KEPT + 1}" == account.failures[-1].message
    assert account.failures[-1] == account.last_failure
    assert FAILURES_KEPT == len(account.failures)
    assert {BrokerError.code: FAILURES_KEPT + 2} == account.totals.failures


def test_retries_are_counted_until_there_is_progress() -> None:
    account = QueryStats()

    assert [0, 1, 2] == [account.retry() for _ in range(3)]
    account.idle()
    assert 0 == account.retry()


def test_after_a_reset_the_counts_stand_and_what_was_read_is_forgotten() -> None:
    account = QueryStats()
    account.batch(recorded())
    account.begins_anew()

    assert (None, None, []) == (account.offsets, account.last_batch, account.batches)
    assert account.totals.left.event_time_max_ms is None
    assert (1, 6) == (account.totals.batches, account.totals.left.records)


def test_rows_of_a_running_interval_count_until_its_report_replaces_them() -> None:
    stats = QueryStats()
    stats.batch(recorded(batchId=4))
    before = stats.totals

    stats.interval_runs(5, {"left": 70, "right": 20}, 9)
    live = stats.totals
    assert before.left.records + 70 == live.left.records
    assert before.right.records + 20 == live.right.records
    assert before.output_records + 9 == live.output_records
    assert {"left": 70, "right": 20} == stats.live_rows

    stats.batch(recorded(batchId=5))
    assert 2 * before.left.records == stats.totals.left.records
    assert {} == stats.live_rows


def test_late_figures_of_an_interval_that_has_been_reported_are_ignored() -> None:
    stats = QueryStats()
    stats.batch(recorded(batchId=5))
    before = stats.totals

    stats.interval_runs(5, {"left": 70, "right": 20}, 9)

    assert before == stats.totals


class Counter:
    """What the processor has counted."""

    def __init__(self) -> None:
        self.late, self.state = 0, 0

    def late_rows(self, side: str) -> int:
        return self.late if side == "left" else 0

    def state_rows(self, side: str) -> int:
        return self.state if side == "right" else 0


def test_late_rows_and_state_of_the_real_time_engine_are_those_of_its_counter() -> None:
    stats, counter = QueryStats(), Counter()
    stats.begins_at(None, None)
    stats.count_rows_with(counter)
    by_spark = json.loads(recorded())["stateOperators"][0]["numRowsDroppedByWatermark"]

    for batch_id, (counter.late, counter.state) in enumerate([(3, 10), (3, 7), (4, 7)]):
        stats.batch(recorded(batchId=batch_id))

    assert [3, 0, 1] == [batch.late_records - by_spark for batch in stats.batches]
    assert [10, 7, 7] == [batch.state_rows for batch in stats.batches]


def test_counter_of_the_next_run_begins_at_zero() -> None:
    stats = QueryStats()
    stats.begins_at(None, None)
    for batch_id in range(2):
        counter = Counter()
        stats.count_rows_with(counter)
        counter.state = 5
        stats.batch(recorded(batchId=batch_id))

    assert [5, 10] == [batch.state_rows for batch in stats.batches]
