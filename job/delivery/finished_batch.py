"""A batch whose rows have all been computed: what it read, and what it counted.

`writable_results` adds the counts of results; dataflow.py adds those of the sides.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from job.dataflow.dataflow import UNKNOWN_IDS, count_where
from job.dataflow.real_time import TopicLimits
from job.dataflow.results import result_bytes
from job.join_spec.sides import Side
from job.plan.plan import JoinPlan
from job.plan.record_checks import FAILED_FIELD
from job.protocol.reasons import REASONS
from job.spark.executed_join import ExecutedJoin, executed_join
from job.spark.observed_metrics import batch_metrics

_OUTPUT = "output"


@dataclass(frozen=True)
class ObservedSide:
    bad_records: Mapping[str, int]
    """Count by reason, without zeros."""
    null_keys: int
    unknown_schema_ids: tuple[int, ...]
    """Schema ids that the registry did not have."""


@dataclass(frozen=True)
class SizedResult:
    id: str
    size: int
    """Bytes."""


@dataclass(frozen=True)
class FailedResult:
    id: str
    field: str
    """Field of the spec whose expression failed."""


@dataclass(frozen=True)
class ObservedOutput:
    results: int
    """All results, also those that are not written."""
    oversized: tuple[SizedResult, ...]
    failed: tuple[FailedResult, ...]
    without_key: tuple[SizedResult, ...]

    @property
    def written(self) -> int:
        return self.results - len(self.oversized) - len(self.failed) - len(self.without_key)


@dataclass(frozen=True)
class ObservedBatch:
    left: ObservedSide
    right: ObservedSide
    output: ObservedOutput

    def side(self, side: Side) -> ObservedSide:
        return self.left if side == "left" else self.right


@dataclass(frozen=True)
class FinishedBatch:
    join: ExecutedJoin
    observed: ObservedBatch


def writable_results(records: DataFrame, plan: JoinPlan, limits: TopicLimits) -> DataFrame:
    """(key, value, headers) of the results that can be written.

    Counts the others and collects their ids: results larger than the output topic accepts, those
    without a key that the topic requires, and those on which an expression fails.
    """
    size = result_bytes(plan)
    too_large = f"({size}) > {limits.result_bytes_max}"
    refused = [too_large]
    id_of = "cast(headers[0].value AS STRING) AS id"
    counts = [F.count(F.lit(1)).alias("records")]
    counts += _counts("too_large", too_large, f"struct({id_of}, {size} AS size)")
    if FAILED_FIELD in records.columns:
        failed = f"{FAILED_FIELD} IS NOT NULL"
        counts += _counts("failed", failed, f"struct({id_of}, {FAILED_FIELD} AS field)")
        refused.insert(0, failed)  # without a value, and so without a size
    if limits.requires_key:
        others = " AND ".join(f"NOT ({condition})" for condition in refused)
        no_key = f"key IS NULL AND {others}"
        counts += _counts("without_key", no_key, f"struct({id_of}, {size} AS size)")
        refused.append("key IS NULL")
    is_written = " AND ".join(f"NOT ({condition})" for condition in refused)
    return records.observe(_OUTPUT, *counts).where(is_written).drop(FAILED_FIELD)


def _counts(name: str, condition: str, entry: str) -> list[Column]:
    """Number of results that meet the condition, and an entry for each."""
    entries = F.expr(f"collect_list(CASE WHEN {condition} THEN {entry} END)")
    return [count_where(condition).alias(name), entries.alias(f"{name}_ids")]


def finished_batch(query: StreamingQuery, plan: JoinPlan) -> FinishedBatch:
    """The current batch. Call it when all rows of the batch have been computed."""
    observed = ObservedBatch(
        left=_observed_side(batch_metrics(query, "left")),
        right=_observed_side(batch_metrics(query, "right")),
        output=observed_output(query),
    )
    return FinishedBatch(executed_join(query, plan.inputs), observed)


def observed_output(query: StreamingQuery) -> ObservedOutput:
    metrics = batch_metrics(query, _OUTPUT)
    return ObservedOutput(
        results=metrics.get("records", 0),
        oversized=tuple(SizedResult(**entry) for entry in metrics.get("too_large_ids", ())),
        failed=tuple(FailedResult(**entry) for entry in metrics.get("failed_ids", ())),
        without_key=tuple(SizedResult(**entry) for entry in metrics.get("without_key_ids", ())),
    )


def _observed_side(metrics: Mapping[str, Any]) -> ObservedSide:
    return ObservedSide(
        bad_records={reason: metrics[reason] for reason in REASONS if metrics.get(reason)},
        null_keys=metrics.get("null_keys", 0),
        unknown_schema_ids=tuple(metrics.get(UNKNOWN_IDS, ())),
    )
