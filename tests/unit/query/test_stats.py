"""Statistics of the query."""

import json
from collections import deque
from datetime import timedelta
from threading import Thread
from types import SimpleNamespace

import pytest

from job.errors import BrokerError
from job.event_time.partitions import Offsets, Partition, PartitionRead, Partitions, Reads
from job.protocol.latency import LATENCY_WINDOW
from job.protocol.progress import BatchProgress, HeapUse, TableCounts, batch_progress
from job.protocol.totals import LiveFigures, Totals
from job.query.stats import BATCHES_KEPT, FAILURES_KEPT, QueryStats
from job.spec.source_topics import ONE_TOPIC_EACH
from tests.unit.protocol.test_progress import recorded


def test_last_batches_are_kept_oldest_first_and_all_are_summed() -> None:
    stats = QueryStats()
    for number in range(BATCHES_KEPT + 5):
        stats.batch(recorded(batchId=number))

    assert list(range(5, BATCHES_KEPT + 5)) == [batch.batch_id for batch in stats.batches]
    assert stats.batches[-1] == stats.last_batch
    assert BATCHES_KEPT + 5 == stats.totals.batches


def test_next_batch_is_that_of_the_checkpoint_until_a_batch_ends() -> None:
    stats = QueryStats()
    assert stats.next_batch_id is None
    stats.on_start(None, None, ONE_TOPIC_EACH)
    assert 0 == stats.next_batch_id
    stats.on_start(6, None, ONE_TOPIC_EACH)
    assert 7 == stats.next_batch_id
    stats.batch(recorded(batchId=7))
    assert 8 == stats.next_batch_id


def test_rows_that_the_job_wrote_itself_are_output_of_the_batch() -> None:
    stats = QueryStats()
    stats.delivered(7, 3, {"committed": 1, "aborted": 1})
    stats.delivered(7, 2, {"committed": 1, "skipped": 1, "disagreement": 1})
    stats.batch(recorded(batchId=7))

    assert stats.last_batch is not None
    assert (5, 5) == (stats.last_batch.output_records, stats.totals.output_records)
    expected = {"committed": 2, "skipped": 1, "aborted": 1, "fenced": 0}
    assert expected == stats.totals.transactions


def test_results_and_dead_letters_that_are_kept_back_are_counted_apart() -> None:
    """In a whole batch of the replay, or among others after it."""
    stats = QueryStats()
    letters = {"written": {"left/malformed_json": 2}}
    stats.kept_back(7, 5)
    stats.batch(recorded(batchId=7, observedMetrics=letters))
    assert 5 == stats.totals.kept_back_results
    assert {0} == set(stats.totals.dead_letters["left"].values())

    stats.batch(recorded(batchId=8, observedMetrics={**letters, "kept_back": {"results": 3}}))
    assert 8 == stats.totals.kept_back_results
    assert 2 == sum(stats.totals.dead_letters["left"].values())


def test_pause_is_not_part_of_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has started the trigger in the pause, and planned the batch after it."""
    stats, whole = QueryStats(), batch_progress(recorded())
    clock = SimpleNamespace(now=lambda _: whole.started_at + timedelta(seconds=0.2))
    monkeypatch.setattr("job.query.stats.datetime", clock)

    stats.on_resume(paused_at=whole.started_at - timedelta(minutes=1))
    stats.batch(recorded())
    stats.batch(recorded(timestamp=(whole.started_at + timedelta(minutes=1)).isoformat()))

    first, second = stats.batches
    assert whole.ended_at == first.ended_at
    assert (0.147, 0.347) == (pytest.approx(first.duration_seconds), second.duration_seconds)
    phases = whole.phase_seconds
    shorter = pytest.approx(phases["trigger_execution"] - 0.2)
    assert {**phases, "trigger_execution": shorter} == first.phase_seconds
    assert 0.147 + 0.347 == pytest.approx(stats.totals.batch_seconds)


def test_batch_of_a_replay_has_no_latency_and_the_next_one_has() -> None:
    stats = QueryStats()
    stats.replayed(7)
    stats.batch(recorded(batchId=7))
    now = stats.batches[0].ended_at
    assert stats.latency(now) is None

    stats.batch(recorded(batchId=8))
    assert stats.latency(now) is not None
    assert [True, False] == [batch.is_replay for batch in stats.batches]


def test_latency_of_a_backlog_is_not_reported_after_its_window() -> None:
    stats = QueryStats()
    stats.batch(recorded(batchId=7))
    ended_at = stats.batches[0].ended_at

    last = stats.latency(ended_at + LATENCY_WINDOW)
    assert last is not None
    assert stats.latency(ended_at + LATENCY_WINDOW + timedelta(seconds=1)) is None
    assert last == stats.latency(ended_at)


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


FAR_AHEAD_MS = 4_000_000_000_000
LIVE = LiveFigures(
    read={"left": 70, "right": 20},
    observed={
        "left": {"records": 70, "null_keys": 1, "filtered": 2, "tombstone": 4},
        "joined": {"results": 15},
        "output": {"records": 11, "unmatched": 5, "too_large": 2},
        "written": {"left/tombstone": 4, "output/value_too_large": 2},
    },
    late_rows=3,
    newest_ms={"left": FAR_AHEAD_MS, "right": None},
)


def test_event_times_of_a_running_interval_are_those_that_its_tasks_have_read() -> None:
    stats = QueryStats()
    known = {0: Partition(next_offset=9, latest_offset=9, event_time_ms=1_000)}
    stats.partitions = Partitions(known, known, {"left": 1_000, "right": 1_000})
    read: Reads = {"left": {0: PartitionRead(79, FAR_AHEAD_MS)}, "right": {}}
    for left_end, expected_ms in ((79, FAR_AHEAD_MS), (80, 1_000)):
        ends: Offsets = {"left": {0: left_end, 1: left_end - 79}, "right": {0: 9}}
        stats.live_partitions = stats.partitions.with_read(read, ends)
        found = stats.event_times
        # Partition 1 has a record that is not read, and no known event time.
        assert (expected_ms if left_end == 79 else None) == found["left"].event_time_ms
        assert 1_000 == found["right"].event_time_ms
        assert stats.read_offsets == {"left": {0: 79, 1: 0}, "right": {0: 9}}

    stats.live_partitions = None
    assert stats.read_offsets is None
    assert 1_000 == stats.event_times["left"].event_time_ms


def test_rows_of_a_running_interval_count_until_its_report_replaces_them() -> None:
    stats = QueryStats()
    stats.batch(recorded(batchId=4))
    before = stats.totals

    stats.interval_runs(5, LIVE.model_copy(update={"read": {"left": 1, "right": 2}}), is_alive=True)
    live = stats.totals
    assert before.left.records + 1 == live.left.records
    assert before.right.records + 2 == live.right.records
    assert before.output_records + 9 == live.output_records
    assert before.late_rows + 3 == live.late_rows
    assert before.unmatched_results + 5 == live.unmatched_results
    assert before.filtered_results + 4 == live.filtered_results
    assert before.too_large_results + 2 == live.too_large_results
    assert before.left.null_keys + 1 == live.left.null_keys
    assert before.left.filtered_records + 2 == live.left.filtered_records
    assert before.left.bad_records["tombstone"] + 4 == live.left.bad_records["tombstone"]
    assert before.dead_letters["left"]["tombstone"] + 4 == live.dead_letters["left"]["tombstone"]
    assert FAR_AHEAD_MS == live.left.event_time_max_ms
    assert before.right.event_time_max_ms == live.right.event_time_max_ms

    stats.batch(recorded(batchId=5))
    assert 2 * before.left.records == stats.totals.left.records


def test_no_counter_decreases_after_an_interval_was_interrupted() -> None:
    """The catch-up that repeats it reads fewer records in its first batch."""
    stats = QueryStats()
    stats.interval_runs(5, LIVE, is_alive=True)
    live = stats.totals
    stats.batch(recorded(batchId=5))
    after = stats.totals

    assert (70, 20) == (after.left.records, after.right.records)
    for name in Totals.model_fields:
        if name.endswith(("_results", "_records", "_rows")):
            assert getattr(live, name) <= getattr(after, name), name
    assert live.matched_results <= after.matched_results
    assert live.left.bad_records["tombstone"] <= after.left.bad_records["tombstone"]
    assert live.left.null_keys <= after.left.null_keys
    assert live.dead_letters["output"] == after.dead_letters["output"]
    assert 1 == after.batches


def test_late_figures_of_an_interval_that_has_been_reported_are_ignored() -> None:
    stats = QueryStats()
    stats.batch(recorded(batchId=5))
    before = stats.totals

    stats.interval_runs(5, LIVE, is_alive=True)

    assert before == stats.totals


IDLE = LiveFigures(
    read={"left": 0, "right": 0},
    late_rows=0,
    newest_ms={"left": None, "right": None},
)


def test_running_interval_is_progress_while_its_tasks_are_alive() -> None:
    stats = QueryStats()

    stats.interval_runs(5, LIVE, is_alive=False)
    assert stats.last_progress_at is None

    stats.interval_runs(5, IDLE, is_alive=True)
    assert stats.last_progress_at is not None


def test_interval_resets_the_retries_only_with_records() -> None:
    stats = QueryStats()
    stats.count_retry()

    stats.interval_runs(5, IDLE, is_alive=True)
    assert 1 == stats.count_retry()

    stats.interval_runs(5, LIVE, is_alive=True)
    assert 0 == stats.count_retry()


class Counter:
    """What the processor has counted."""

    def __init__(self) -> None:
        self.late, self.stored, self.removed = 0, 0, 0

    def late_rows(self, side: str) -> int:
        return self.late if side == "left" else 0

    def duplicate_rows(self, side: str) -> int:
        return self.late if side == "right" else 0

    def stored_rows(self, side: str) -> int:
        return self.stored if side == "right" else 0

    def removed_rows(self, side: str) -> int:
        return self.removed if side == "right" else 0

    def heap(self, side: str) -> HeapUse:
        return HeapUse(slots_loaded=self.late_rows(side))

    def table(self) -> TableCounts:
        return TableCounts(keys_moved=self.late)


def test_late_rows_and_state_of_the_real_time_engine_are_those_of_its_counter() -> None:
    stats, counter = QueryStats(), Counter()
    stats.on_start(None, None, ONE_TOPIC_EACH)
    stats.count_rows_with(counter)
    by_spark = json.loads(recorded())["stateOperators"][0]["numRowsDroppedByWatermark"]

    counts = [(3, 10, 0), (3, 12, 5), (4, 12, 5)]
    for batch_id, (counter.late, counter.stored, counter.removed) in enumerate(counts):
        stats.batch(recorded(batchId=batch_id))

    assert [3, 0, 1] == [batch.late_rows - by_spark for batch in stats.batches]
    assert [10, 7, 7] == [batch.state_rows for batch in stats.batches]
    assert [10, 2, 0] == [batch.state_rows_updated for batch in stats.batches]
    assert [0, 5, 0] == [batch.state_rows_removed for batch in stats.batches]
    assert [3, 0, 1] == [batch.right.duplicates for batch in stats.batches]
    assert [3, 0, 1] == [batch.heap["left"].slots_loaded for batch in stats.batches if batch.heap]


def test_counter_of_the_next_run_begins_at_zero() -> None:
    stats = QueryStats()
    stats.on_start(None, None, ONE_TOPIC_EACH)
    for batch_id in range(2):
        counter = Counter()
        stats.count_rows_with(counter)
        counter.stored = 5
        stats.batch(recorded(batchId=batch_id))

    assert [5, 10] == [batch.state_rows for batch in stats.batches]


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


def test_offsets_of_the_first_interval_are_known_while_it_runs() -> None:
    stats = QueryStats()
    assert stats.offsets is None

    stats.interval_begins({"left": {0: 7}, "right": {0: 9}})

    assert {"left": {0: 7}, "right": {0: 9}} == stats.offsets
