"""What a batch did and what the job has done so far. The only translator of Spark's JSON.

Pure: no Spark, no clock. These values cross the control socket, so they are pydantic models.
"""

import json
from bisect import bisect_left
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from job.instants import to_epoch_ms
from job.protocol.reasons import DEAD_LETTER_REASONS, REASONS, RESULT_REASONS
from job.protocol.reports import BrokerReport, ResetReport, SideEventTimes, StateCensus

TRANSACTION_RESULTS = ("committed", "skipped", "aborted", "fenced", "unknown")
"""What came of the transaction of a state partition's batch.

committed: its rows are out. skipped: they were out already, an earlier attempt had committed.
aborted: not out, to be tried again. fenced: another job has taken over. unknown: the answer to the
commit was lost; counted as committed, too, where the marker showed that it was.
"""

# Batches take from tens of milliseconds to, after a long pause, minutes.
BATCH_SECONDS_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
# A record waits for the batch before its own and then for its own: finest where batches are short,
# up to what a restart or a burst leaves behind.
LATENCY_SECONDS_BOUNDS = (
    0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0,
)  # fmt: skip


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class SideProgress(_Value):
    records: int
    """Read from the topic in this batch, readable or not."""
    null_keys: int
    bad_records: dict[str, int]
    """Per reason, zeros included."""
    event_time_max_ms: int | None
    """Newest event time in this batch, epoch milliseconds."""
    record_time_min_ms: int | None = None
    """The oldest of Kafka's own timestamps in this batch, epoch milliseconds."""
    record_time_max_ms: int | None = None
    end_offsets: dict[int, int]
    """Per partition, the next offset to read."""
    latest_offsets: dict[int, int]
    """Empty of a batch that is run again after a crash: Spark asks for none then."""

    @property
    def offsets_behind_latest(self) -> dict[int, int] | None:
        """None where the latest are not known."""
        if not self.latest_offsets:
            return None
        return {
            partition: max(0, latest - self.end_offsets.get(partition, 0))
            for partition, latest in self.latest_offsets.items()
        }

    @property
    def offsets_behind_latest_total(self) -> int | None:
        behind = self.offsets_behind_latest
        return None if behind is None else sum(behind.values())


class BatchProgress(_Value):
    batch_id: int
    query_id: str
    run_id: str
    started_at: datetime
    duration_seconds: float
    phase_seconds: dict[str, float]
    output_records: int
    too_large_results: int = 0
    """Not written: the output topic takes none that large."""
    failed_results: int = 0
    """Not written: an expression fails on the result."""
    late_records: int
    state_rows: int | None = None
    """Held after it, both sides; None as long as they were not counted (state_rows.py)."""
    state_rows_updated: int
    state_rows_removed: int
    state_memory_bytes: int
    state_update_seconds: float
    state_removal_seconds: float
    state_commit_seconds: float
    state_custom: dict[str, float]
    watermark_ms: int | None
    """The watermark this batch ran with, epoch milliseconds; None before there was any."""
    left: SideProgress
    right: SideProgress

    @property
    def input_records(self) -> int:
        return self.left.records + self.right.records

    @property
    def has_backlog(self) -> bool:
        """It left more of a side than it read; False where the latest offsets are not known."""
        return any(
            (side.offsets_behind_latest_total or 0) > side.records
            for side in (self.left, self.right)
        )

    @property
    def ended_at(self) -> datetime:
        return self.started_at + timedelta(seconds=self.duration_seconds)


def batch_progress(text: str) -> BatchProgress:
    """From the JSON of a StreamingQueryProgress.

    The shape was read off Spark 4.3.0; the integration tests hold it against the running version.
    """
    progress = json.loads(text)
    operator = progress["stateOperators"][0]
    observed = progress.get("observedMetrics", {})
    left, right = progress["sources"]  # in the order in which the dataflow reads them
    return BatchProgress(
        batch_id=progress["batchId"],
        query_id=progress["id"],
        run_id=progress["runId"],
        started_at=datetime.fromisoformat(progress["timestamp"]),
        duration_seconds=progress["batchDuration"] / 1000,
        phase_seconds={_snake(name): ms / 1000 for name, ms in progress["durationMs"].items()},
        output_records=max(0, progress["sink"]["numOutputRows"]),  # -1: Spark does not know
        too_large_results=observed.get("output", {}).get("too_large", 0),
        failed_results=observed.get("output", {}).get("failed", 0),
        late_records=operator["numRowsDroppedByWatermark"],
        state_rows_updated=operator["numRowsUpdated"],
        state_rows_removed=operator["numRowsRemoved"],
        state_memory_bytes=operator["memoryUsedBytes"],
        state_update_seconds=operator["allUpdatesTimeMs"] / 1000,
        state_removal_seconds=operator["allRemovalsTimeMs"] / 1000,
        state_commit_seconds=operator["commitTimeMs"] / 1000,
        state_custom=operator["customMetrics"],
        watermark_ms=_watermark_ms(progress.get("eventTime", {}).get("watermark")),
        left=_side_progress(observed.get("left", {}), left),
        right=_side_progress(observed.get("right", {}), right),
    )


def _side_progress(observed: Mapping[str, Any], source: Mapping[str, Any]) -> SideProgress:
    return SideProgress(
        records=observed.get("records", 0),
        null_keys=observed.get("null_keys", 0),
        bad_records={reason: observed.get(reason, 0) for reason in REASONS},
        event_time_max_ms=observed.get("event_time_max_ms"),
        record_time_min_ms=observed.get("record_time_min_ms"),
        record_time_max_ms=observed.get("record_time_max_ms"),
        end_offsets=_offsets(source["endOffset"]),
        latest_offsets=_offsets(source["latestOffset"]),
    )


def _offsets(by_topic: Mapping[str, Mapping[str, int]] | None) -> dict[int, int]:
    return {
        int(partition): offset
        for offsets in (by_topic or {}).values()
        for partition, offset in offsets.items()
    }


def _watermark_ms(text: str | None) -> int | None:
    """Spark says 1970 as long as no row has moved the watermark."""
    if text is None:
        return None
    milliseconds = to_epoch_ms(datetime.fromisoformat(text))
    return milliseconds or None


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


class SideTotals(_Value):
    records: int = 0
    null_keys: int = 0
    bad_records: dict[str, int] = dict.fromkeys(REASONS, 0)
    event_time_max_ms: int | None = None

    def plus(self, progress: SideProgress) -> Self:
        newest = [
            time
            for time in (self.event_time_max_ms, progress.event_time_max_ms)
            if time is not None
        ]
        return self.model_copy(
            update={
                "records": self.records + progress.records,
                "null_keys": self.null_keys + progress.null_keys,
                "bad_records": _sums(self.bad_records, progress.bad_records),
                "event_time_max_ms": max(newest, default=None),
            }
        )


class Latencies(_Value):
    """How long after Kafka's own timestamp of a record the batch that read it has ended.

    An estimate within a batch: its records are taken as spread evenly between the oldest and the
    newest of them, since to look at each would cost more than it tells.
    """

    seconds: float = 0
    """The sum of all."""
    counts: list[int] = [0] * (len(LATENCY_SECONDS_BOUNDS) + 1)
    """Records per bucket of LATENCY_SECONDS_BOUNDS, the last one without bound."""

    def plus(self, side: SideProgress, ended_at: datetime) -> Self:
        if side.record_time_min_ms is None or side.record_time_max_ms is None:
            return self
        end = ended_at.timestamp()
        # Below zero where the producer's clock is ahead.
        shortest = max(0.0, end - side.record_time_max_ms / 1000)
        longest = max(0.0, end - side.record_time_min_ms / 1000)
        up_to = [
            round(side.records * _share_up_to(bound, shortest, longest))
            for bound in LATENCY_SECONDS_BOUNDS
        ]
        counts = [
            count + above - below
            for count, below, above in zip(
                self.counts, [0, *up_to], [*up_to, side.records], strict=True
            )
        ]
        seconds = self.seconds + side.records * (shortest + longest) / 2
        return self.model_copy(update={"seconds": seconds, "counts": counts})


def _share_up_to(bound: float, shortest: float, longest: float) -> float:
    """The part of what lies evenly between `shortest` and `longest` that is at most `bound`."""
    if bound >= longest:
        return 1.0
    return 0.0 if bound <= shortest else (bound - shortest) / (longest - shortest)


class Totals(_Value):
    """Sums over the batches since the job started."""

    batches: int = 0
    batch_seconds: float = 0
    batch_seconds_counts: list[int] = [0] * (len(BATCH_SECONDS_BOUNDS) + 1)
    """Batches per bucket of BATCH_SECONDS_BOUNDS, the last one without bound."""
    phase_seconds: dict[str, float] = {}
    output_records: int = 0
    too_large_results: int = 0
    failed_results: int = 0
    late_records: int = 0
    state_rows_updated: int = 0
    state_rows_removed: int = 0
    state_update_seconds: float = 0
    state_removal_seconds: float = 0
    state_commit_seconds: float = 0
    transactions: dict[str, int] = dict.fromkeys(TRANSACTION_RESULTS, 0)
    """Per result; zeros where delivery is at least once."""
    dead_letters: dict[str, dict[str, int]] = {
        "left": dict.fromkeys(DEAD_LETTER_REASONS, 0),
        "right": dict.fromkeys(DEAD_LETTER_REASONS, 0),
        "output": dict.fromkeys(RESULT_REASONS, 0),
    }
    """Written to the dead-letter topic, per side and reason."""
    restarts: int = 0
    """Starts of the query after a failure or at a user's wish."""
    failures: dict[str, int] = {}
    """Failures of the query per error code."""
    latencies: Latencies = Latencies()
    left: SideTotals = SideTotals()
    right: SideTotals = SideTotals()

    def plus(self, batch: BatchProgress) -> Self:
        counts = list(self.batch_seconds_counts)
        counts[bisect_left(BATCH_SECONDS_BOUNDS, batch.duration_seconds)] += 1
        latencies = self.latencies
        for side in (batch.left, batch.right):
            latencies = latencies.plus(side, batch.ended_at)
        summed = (
            "output_records", "too_large_results", "failed_results", "late_records",
            "state_rows_updated", "state_rows_removed", "state_update_seconds",
            "state_removal_seconds", "state_commit_seconds",
        )  # fmt: skip
        return self.model_copy(
            update={
                **{name: getattr(self, name) + getattr(batch, name) for name in summed},
                "batches": self.batches + 1,
                "batch_seconds": self.batch_seconds + batch.duration_seconds,
                "batch_seconds_counts": counts,
                "phase_seconds": _sums(self.phase_seconds, batch.phase_seconds),
                "latencies": latencies,
                "left": self.left.plus(batch.left),
                "right": self.right.plus(batch.right),
            }
        )

    @property
    def results_left_out(self) -> dict[str, int]:
        """Results that were not written, per reason."""
        counts = (self.too_large_results, self.failed_results)
        return dict(zip(RESULT_REASONS, counts, strict=True))

    def with_transactions(self, results: Mapping[str, int]) -> Self:
        counted = {result: results.get(result, 0) for result in TRANSACTION_RESULTS}
        return self.model_copy(update={"transactions": _sums(self.transactions, counted)})

    def without_event_times(self) -> Self:
        """The counts alone: the newest event times are those of a checkpoint put aside."""
        sides = {
            "left": self.left.model_copy(update={"event_time_max_ms": None}),
            "right": self.right.model_copy(update={"event_time_max_ms": None}),
        }
        return self.model_copy(update=sides)

    def with_dead_letters(self, counts: Mapping[tuple[str, str], int]) -> Self:
        summed = {
            side: {
                reason: count + counts.get((side, reason), 0) for reason, count in of_side.items()
            }
            for side, of_side in self.dead_letters.items()
        }
        return self.model_copy(update={"dead_letters": summed})

    def with_restart(self) -> Self:
        return self.model_copy(update={"restarts": self.restarts + 1})

    def with_failure(self, code: str) -> Self:
        return self.model_copy(update={"failures": _sums(self.failures, {code: 1})})


def _sums(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    return {name: left.get(name, 0) + right.get(name, 0) for name in {**left, **right}}


class QueryState(StrEnum):
    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    STOPPED = "STOPPED"
    FAILED = "FAILED"
    RESTARTING = "RESTARTING"


class Failure(_Value):
    code: str
    message: str
    retryable: bool
    at: datetime


class JobStatus(_Value):
    """All that the job tells of itself."""

    name: str
    join_type: str
    delivery: str
    state: QueryState
    started_at: datetime
    """When the job's process started."""
    state_since: datetime
    watermark_delay_ms: dict[str, int]
    """Per side."""
    idle: dict[str, bool] = {}
    """Whether its event time follows the clock, of each side with idle_after while it runs."""
    query_id: str | None = None
    run_id: str | None = None
    """Of the run at work, which may not have ended a batch yet."""
    last_batch: BatchProgress | None = None
    last_progress_at: datetime | None = None
    """When Spark last reported, be it a batch or that there was nothing to do."""
    last_failure: Failure | None = None
    totals: Totals = Totals()
    event_times: dict[str, SideEventTimes] = {}
    """Per side, as of the last batch; empty before the query has started."""
    brokers: BrokerReport | None = None
    """None until the job has first looked."""
    census: StateCensus | None = None
    """The last count of the rows in state, of this run or an earlier one."""
    last_reset: ResetReport | None = None
