"""Counters since the job started: sums over its batches, restarts, failures. Pure."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from job.protocol.latency import Latencies
from job.protocol.progress import (
    BatchProgress,
    HeapUse,
    SideProgress,
    TableCounts,
    dead_letter_counts,
    record_counts,
    result_counts,
    results_written,
)
from job.protocol.reasons import DEAD_LETTER_REASONS, REASONS, RESULT_REASONS
from job.spec.sides import Side

TRANSACTION_RESULTS = ("committed", "skipped", "aborted", "fenced")
"""Result of a transaction, one per batch and state partition.

committed: its rows are written. skipped: an earlier attempt of the batch had committed them.
aborted: its rows are not written, the batch runs again. fenced: another job has taken over. If the
response to a commit is lost, Kafka's client sends the commit again, so no result is unknown. A
transaction that ends because no broker answers is a failure of the query, and not counted here.
"""

# Batches take from tens of milliseconds to, after a long pause, minutes.
BATCH_SECONDS_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
# Fields of Totals that are sums of the batches' fields of the same name.
_SUMMED = (
    "output_records", "unmatched_results", "filtered_results", "too_large_results",
    "failed_results", "keyless_results", "late_rows", "state_rows_updated", "state_rows_removed",
    "state_update_seconds", "state_removal_seconds", "state_commit_seconds",
)  # fmt: skip
# Those that move while an interval runs, besides output_records.
_LIVE = (
    "unmatched_results", "filtered_results", "too_large_results", "failed_results",
    "keyless_results", "late_rows",
)  # fmt: skip


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class SideTotals(_Value):
    records: int = 0
    null_keys: int = 0
    filtered_records: int = 0
    duplicates: int = 0
    skipped_records: int = 0
    """Deleted records that `checkpoint skip-gap` has skipped, since the checkpoint began."""
    bad_records: dict[str, int] = dict.fromkeys(REASONS, 0)
    """Per reason, including zeros."""
    event_time_max_ms: int | None = None
    """Newest event time, epoch milliseconds. None: no readable record yet."""

    def plus(self, progress: SideProgress) -> Self:
        times = (self.event_time_max_ms, progress.event_time_max_ms)
        return self.model_copy(
            update={
                "records": self.records + progress.records,
                "null_keys": self.null_keys + progress.null_keys,
                "filtered_records": self.filtered_records + progress.filtered_records,
                "duplicates": self.duplicates + progress.duplicates,
                "bad_records": _sums(self.bad_records, progress.bad_records),
                "event_time_max_ms": max((ms for ms in times if ms is not None), default=None),
            }
        )

    def with_live(self, live: "LiveFigures", side: Side) -> Self:
        counted = SideProgress(
            **{**record_counts(live.observed.get(side, {})), "records": live.read.get(side, 0)},
            event_time_max_ms=live.newest_ms.get(side),
            end_offsets={},
            latest_offsets={},
        )
        return self.plus(counted)

    def at_least(self, shown: Self) -> Self:
        counts = ("records", "null_keys", "filtered_records")
        return self.model_copy(
            update={
                **_largest(self, shown, counts),
                "bad_records": _maxima(self.bad_records, shown.bad_records),
            }
        )


class LiveFigures(_Value):
    """Figures of an interval of real-time mode that has not ended."""

    read: dict[Side, int]
    observed: Mapping[str, Mapping[str, int]] = {}
    """Counts of the metrics that the query observes, by the names of metrics and counts."""
    late_rows: int
    newest_ms: dict[Side, int | None]
    """Newest event time, epoch milliseconds. None: no row has come yet."""


class Totals(_Value):
    batches: int = 0
    batch_seconds: float = 0
    batch_seconds_counts: list[int] = [0] * (len(BATCH_SECONDS_BOUNDS) + 1)
    """Batches per bucket of BATCH_SECONDS_BOUNDS; the last bucket is unbounded."""
    phase_seconds: dict[str, float] = {}
    output_records: int = 0
    unmatched_results: int = 0
    filtered_results: int = 0
    too_large_results: int = 0
    failed_results: int = 0
    keyless_results: int = 0
    kept_back_results: int = 0
    """Results that are kept back, because the old query has written them (job/change/)."""
    late_rows: int = 0
    state_rows_updated: int = 0
    state_rows_removed: int = 0
    state_update_seconds: float = 0
    state_removal_seconds: float = 0
    state_commit_seconds: float = 0
    heap: dict[Side, HeapUse] = {}
    """Empty with the operator of Spark."""
    table: TableCounts = TableCounts()
    transactions: dict[str, int] = dict.fromkeys(TRANSACTION_RESULTS, 0)
    """Per result; zeros if delivery is at least once."""
    dead_letters: dict[str, dict[str, int]] = {
        "left": dict.fromkeys(DEAD_LETTER_REASONS, 0),
        "right": dict.fromkeys(DEAD_LETTER_REASONS, 0),
        "output": dict.fromkeys(RESULT_REASONS, 0),
    }
    """Records written to the dead-letter topic, per side and reason."""
    restarts: int = 0
    """Restarts of the query after a failure or by a command."""
    failures: dict[str, int] = {}
    """Failures of the query per error code."""
    latencies: Latencies = Latencies()
    left: SideTotals = SideTotals()
    right: SideTotals = SideTotals()

    def plus(self, batch: BatchProgress) -> Self:
        counts = list(self.batch_seconds_counts)
        counts[bisect_left(BATCH_SECONDS_BOUNDS, batch.duration_seconds)] += 1
        latencies = self.latencies
        for side in () if batch.is_replay else (batch.left, batch.right):
            latencies = latencies.plus(side, batch.ended_at)
        return self.model_copy(
            update={
                **{name: getattr(self, name) + getattr(batch, name) for name in _SUMMED},
                "batches": self.batches + 1,
                "batch_seconds": self.batch_seconds + batch.duration_seconds,
                "batch_seconds_counts": counts,
                "phase_seconds": _sums(self.phase_seconds, batch.phase_seconds),
                "latencies": latencies,
                "heap": _heap(self.heap, batch.heap or {}),
                "table": self.table.plus(batch.table),
                "left": self.left.plus(batch.left),
                "right": self.right.plus(batch.right),
            }
        )

    @property
    def matched_results(self) -> int:
        """Results of matched rows."""
        # A repeated batch writes only the results that its first attempt did not write.
        return max(0, self.output_records - self.unmatched_results)

    @property
    def results_left_out(self) -> dict[str, int]:
        """Results that were not written, per reason."""
        counts = (self.too_large_results, self.failed_results, self.keyless_results)
        return dict(zip(RESULT_REASONS, counts, strict=True))

    def with_transactions(self, results: Mapping[str, int]) -> Self:
        counts = {result: results.get(result, 0) for result in TRANSACTION_RESULTS}
        return self.model_copy(update={"transactions": _sums(self.transactions, counts)})

    def with_kept_back(self, results: int) -> Self:
        return self.model_copy(update={"kept_back_results": self.kept_back_results + results})

    def with_live(self, live: LiveFigures) -> Self:
        """With the figures of an interval that has not ended."""
        counts = {
            **result_counts(live.observed),
            "output_records": results_written(live.observed.get("output", {})),
            "late_rows": live.late_rows,
        }
        return self.model_copy(
            update={
                **{name: getattr(self, name) + count for name, count in counts.items()},
                "left": self.left.with_live(live, "left"),
                "right": self.right.with_live(live, "right"),
            }
        ).with_dead_letters(dead_letter_counts(live.observed))

    def at_least(self, shown: Self) -> Self:
        """Without a counter that is lower than in `shown`, as after an interval was interrupted."""
        largest = _largest(self, shown, _LIVE)
        matched = max(self.matched_results, shown.matched_results)
        return self.model_copy(
            update={
                **largest,
                "output_records": matched + largest["unmatched_results"],
                "left": self.left.at_least(shown.left),
                "right": self.right.at_least(shown.right),
                "dead_letters": {
                    side: _maxima(counts, shown.dead_letters[side])
                    for side, counts in self.dead_letters.items()
                },
            }
        )

    def without_event_times(self) -> Self:
        """The counters without the newest event times, which belong to the old checkpoint."""
        sides = {
            "left": self.left.model_copy(update={"event_time_max_ms": None}),
            "right": self.right.model_copy(update={"event_time_max_ms": None}),
        }
        return self.model_copy(update=sides)

    def with_dead_letters(self, counts: Mapping[tuple[str, str], int]) -> Self:
        summed = {
            side: {
                reason: total + counts.get((side, reason), 0) for reason, total in totals.items()
            }
            for side, totals in self.dead_letters.items()
        }
        return self.model_copy(update={"dead_letters": summed})

    def with_skipped(self, records: Mapping[Side, int]) -> Self:
        left, right = (
            side.model_copy(update={"skipped_records": count})
            for side, count in ((self.left, records["left"]), (self.right, records["right"]))
        )
        return self.model_copy(update={"left": left, "right": right})

    def with_restart(self) -> Self:
        return self.model_copy(update={"restarts": self.restarts + 1})

    def with_failure(self, code: str) -> Self:
        return self.model_copy(update={"failures": _sums(self.failures, {code: 1})})


def _heap(total: Mapping[Side, HeapUse], batch: Mapping[Side, HeapUse]) -> dict[Side, HeapUse]:
    return {**total, **{side: use.plus(total.get(side, HeapUse())) for side, use in batch.items()}}


def _sums(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


def _largest(left: BaseModel, right: BaseModel, names: Sequence[str]) -> dict[str, int]:
    """The larger value of each field."""
    return {name: max(getattr(left, name), getattr(right, name)) for name in names}


def _maxima(left: Mapping[str, int], right: Mapping[str, int]) -> dict[str, int]:
    return {name: max(left.get(name, 0), right.get(name, 0)) for name in {**left, **right}}
