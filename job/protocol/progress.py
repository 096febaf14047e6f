"""Progress of one batch. The only module that reads the JSON of Spark's StreamingQueryProgress.

Pure: no Spark, no clock. Batches cross the control socket, so they are pydantic models.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict

from job.instants import to_epoch_ms
from job.protocol.reasons import REASONS
from job.spec.sides import Side
from job.spec.source_topics import ONE_TOPIC_EACH, SourceTopics

WHOLE_BATCH = "trigger_execution"
"""Name of the phase that contains all others."""


class _Value(BaseModel):
    model_config = ConfigDict(frozen=True)


class SideProgress(_Value):
    records: int
    """Records read from the topic in this batch, including bad ones."""
    null_keys: int
    filtered_records: int = 0
    """Records that the filter of the side dropped, of all kinds."""
    bad_records: dict[str, int]
    """Per reason, including zeros."""
    event_time_max_ms: int | None
    """Newest event time in this batch, epoch milliseconds."""
    record_time_min_ms: int | None = None
    """Oldest Kafka record timestamp in this batch, epoch milliseconds."""
    record_time_max_ms: int | None = None
    """Newest Kafka record timestamp in this batch, epoch milliseconds."""
    duplicates: int = 0
    """Rows of this batch that the side dropped as duplicates."""
    end_offsets: dict[int, int]
    """Next offset to read, per partition."""
    latest_offsets: dict[int, int]
    """Per partition. Empty for a batch that runs again after a crash: Spark fetches none then."""

    @property
    def offsets_behind_latest(self) -> dict[int, int] | None:
        """Per partition. None: the latest offsets are unknown."""
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


Counts = TypeVar("Counts", bound=_Value)


def _plus(one: Counts, other: Counts, sign: int) -> Counts:
    names = type(one).model_fields
    sums = {name: getattr(one, name) + sign * getattr(other, name) for name in names}
    return one.model_copy(update=sums)


class HeapUse(_Value):
    """Work of the operator `streamjoin` with the rows of one side."""

    rows: int = 0
    """On the heap at the end of the batch."""
    slots_loaded: int = 0
    """From RocksDB to the heap."""
    slots_spilled: int = 0
    """From the heap, so that their rows are only in RocksDB."""
    heap_probes: int = 0
    """Slots on the heap that were searched for the key of a row of the other side."""
    store_probes: int = 0
    """Lists of RocksDB that were read for the key of a row of the other side."""

    def plus(self, other: Self, sign: int = 1) -> Self:
        return _plus(self, other, sign)


class TableCounts(_Value):
    """Of a join with a table."""

    rows_without_key: int = 0
    """Rows of the stream whose key had no row in the table."""
    rows_after_delete: int = 0
    """Rows of the stream at whose event time the version of the key was deleted, or older than
    `retention`."""
    rows_before_first: int = 0
    """Rows of the stream that were before all versions of their key."""
    keys_moved: int = 0
    """Records of the table whose key came from another partition before."""
    stale_answers: int = 0
    """Versions that were read after rows of the stream with a later event time: these rows may
    have joined an older version."""

    def plus(self, other: Self, sign: int = 1) -> Self:
        return _plus(self, other, sign)


class BatchProgress(_Value):
    batch_id: int
    query_id: str
    run_id: str
    started_at: datetime
    duration_seconds: float
    phase_seconds: dict[str, float]
    output_records: int
    unmatched_results: int = 0
    """Results of unmatched rows."""
    filtered_results: int = 0
    """Results that output.filter dropped."""
    too_large_results: int = 0
    """Results that were not written: larger than the output topic accepts."""
    failed_results: int = 0
    """Results that were not written: the evaluation of an expression failed."""
    keyless_results: int = 0
    """Results that were not written: without a key, and the output topic is compacted."""
    late_rows: int
    state_rows: int | None = None
    """Rows in state after the batch, both sides. None: they are not counted yet."""
    state_rows_updated: int
    state_rows_removed: int
    state_memory_bytes: int
    state_update_seconds: float
    state_removal_seconds: float
    state_commit_seconds: float
    state_custom: dict[str, float]
    heap: dict[Side, HeapUse] | None = None
    """None: the operator is that of Spark."""
    table: TableCounts = TableCounts()
    """Zeros in a join of two streams."""
    watermark_ms: int | None
    """Watermark during the batch, epoch milliseconds. None: there was no watermark yet."""
    is_replay: bool = False
    """Whether the batch read records again after a change of the join: they have no latency."""
    left: SideProgress
    right: SideProgress

    @property
    def input_records(self) -> int:
        return self.left.records + self.right.records

    @property
    def has_backlog(self) -> bool:
        """Whether more records of a side are unread than the batch read. False if unknown."""
        return any(
            (side.offsets_behind_latest_total or 0) > side.records
            for side in (self.left, self.right)
        )

    @property
    def ended_at(self) -> datetime:
        return self.started_at + timedelta(seconds=self.duration_seconds)

    def with_latest_offsets(self, latest: Mapping[Side, Mapping[int, int]]) -> Self:
        """`latest` may contain one side only; the other side keeps its offsets."""
        update: dict[str, Any] = {
            side: getattr(self, side).model_copy(update={"latest_offsets": dict(offsets)})
            for side, offsets in latest.items()
        }
        return self.model_copy(update=update)

    def without_pause(self, began_at: datetime, ended_at: datetime) -> Self:
        """The batch without a pause of the query. Spark's duration contains the pause: the trigger
        starts, and waits for the lock of the pause before it plans the batch."""
        paused = min(ended_at, self.ended_at) - max(began_at, self.started_at)
        if paused <= timedelta(0):
            return self
        phases = dict(self.phase_seconds)
        if WHOLE_BATCH in phases:
            phases[WHOLE_BATCH] = max(0.0, phases[WHOLE_BATCH] - paused.total_seconds())
        return self.model_copy(
            update={
                "started_at": self.started_at + paused,
                "duration_seconds": self.duration_seconds - paused.total_seconds(),
                "phase_seconds": phases,
            }
        )


def batch_progress(
    text: str,
    topics: Mapping[Side, SourceTopics] = ONE_TOPIC_EACH,
) -> BatchProgress:
    """Parses the JSON of a StreamingQueryProgress of Spark 4.3.0.
    `topics`: those of each side, in the order in which the query reads the sides.

    The integration tests compare this format with the running version.
    """
    progress = json.loads(text)
    (operator,) = progress["stateOperators"]
    observed = progress.get("observedMetrics", {})
    sources = dict(zip(topics, progress["sources"], strict=True))
    return BatchProgress(
        batch_id=progress["batchId"],
        query_id=progress["id"],
        run_id=progress["runId"],
        started_at=datetime.fromisoformat(progress["timestamp"]),
        duration_seconds=progress["batchDuration"] / 1000,
        phase_seconds={_snake(name): ms / 1000 for name, ms in progress["durationMs"].items()},
        output_records=_output_records(progress["sink"], observed.get("output", {})),
        **result_counts(observed),
        late_rows=operator["numRowsDroppedByWatermark"],
        state_rows_updated=operator["numRowsUpdated"],
        state_rows_removed=operator["numRowsRemoved"],
        state_memory_bytes=operator["memoryUsedBytes"],
        state_update_seconds=operator["allUpdatesTimeMs"] / 1000,
        state_removal_seconds=operator["allRemovalsTimeMs"] / 1000,
        state_commit_seconds=operator["commitTimeMs"] / 1000,
        state_custom=operator["customMetrics"],
        watermark_ms=_watermark_ms(progress.get("eventTime", {}).get("watermark")),
        left=_side_progress("left", observed, sources, topics),
        right=_side_progress("right", observed, sources, topics),
    )


def result_counts(observed: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Fields of BatchProgress that count results, from the metrics that the query observes."""
    output = observed.get("output", {})
    return {
        "unmatched_results": output.get("unmatched", 0),
        "filtered_results": _filtered_results(observed),
        "too_large_results": output.get("too_large", 0),
        "failed_results": output.get("failed", 0),
        "keyless_results": output.get("without_key", 0),
    }


def record_counts(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of SideProgress that count records, from the metrics of the side."""
    return {
        "records": observed.get("records", 0),
        "null_keys": observed.get("null_keys", 0),
        "filtered_records": observed.get("filtered", 0),
        "bad_records": {reason: observed.get(reason, 0) for reason in REASONS},
    }


def dead_letters_written(text: str) -> Mapping[tuple[str, str], int]:
    """Dead letters by side and reason, from the same JSON."""
    return dead_letter_counts(json.loads(text).get("observedMetrics", {}))


def dead_letter_counts(observed: Mapping[str, Mapping[str, int]]) -> Mapping[tuple[str, str], int]:
    """Dead letters by side and reason, from the metrics that the query observes.

    The query observes those that it writes with the results, as `<side>/<reason>`. With Spark's
    join these are the dead letters of results.
    """
    return {
        (side, reason): count
        for name, count in observed.get("written", {}).items()
        for side, reason in [name.split("/")]
        if count
    }


def kept_back_results(text: str) -> int:
    """Results of the batch that are kept back because the old query has emitted them before a
    change, from the same JSON."""
    observed = json.loads(text).get("observedMetrics", {}).get("kept_back", {})
    results: int = observed.get("results", 0)
    return results


def _output_records(sink: Mapping[str, Any], observed: Mapping[str, int]) -> int:
    """Results that were written. Spark's sink counts dead letters, too; -1: unknown."""
    if "records" not in observed:
        known: int = max(0, sink["numOutputRows"])
        return known
    return results_written(observed)


def _filtered_results(observed: Mapping[str, Mapping[str, int]]) -> int:
    if "joined" not in observed:
        return 0
    passed = observed.get("output", {}).get("records", 0)
    # The counts of a running interval are not of one moment.
    return max(0, observed["joined"].get("results", 0) - passed)


def results_written(observed: Mapping[str, int]) -> int:
    """Number of results that were written, from the metrics of the results."""
    left_out = (observed.get(name, 0) for name in ("too_large", "failed", "without_key"))
    return observed.get("records", 0) - sum(left_out)


def _side_progress(
    side: Side,
    all_observed: Mapping[str, Any],
    sources: Mapping[Side, Mapping[str, Any]],
    topics: Mapping[Side, SourceTopics],
) -> SideProgress:
    observed, source = all_observed.get(side, {}), sources[side]
    return SideProgress(
        **record_counts(observed),
        event_time_max_ms=observed.get("event_time_max_ms"),
        record_time_min_ms=observed.get("record_time_min_ms"),
        record_time_max_ms=observed.get("record_time_max_ms"),
        end_offsets=topics[side].numbered(source["endOffset"] or {}),
        latest_offsets=topics[side].numbered(source["latestOffset"] or {}),
    )


def _watermark_ms(text: str | None) -> int | None:
    """Spark reports 1970 until a row advances the watermark."""
    if text is None:
        return None
    milliseconds = to_epoch_ms(datetime.fromisoformat(text))
    return milliseconds or None


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)
