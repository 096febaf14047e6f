"""A batch whose rows have all been computed: what it read, and what it counted.

dataflow/sides.py adds the counts of the sides.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from job.dataflow.sides import UNKNOWN_IDS
from job.plan.plan import JoinPlan
from job.protocol.reasons import REASONS
from job.spark.executed_join import ExecutedJoin, executed_join
from job.spark.observed_metrics import batch_metrics
from job.spec.sides import Side


@dataclass(frozen=True)
class ObservedSide:
    bad_records: Mapping[str, int]
    """Count by reason, without zeros."""
    null_keys: int
    unknown_schema_ids: tuple[int, ...]
    """Schema ids that the registry did not have."""


@dataclass(frozen=True)
class ObservedBatch:
    left: ObservedSide
    right: ObservedSide

    def side(self, side: Side) -> ObservedSide:
        return self.left if side == "left" else self.right


@dataclass(frozen=True)
class FinishedBatch:
    join: ExecutedJoin
    observed: ObservedBatch


def finished_batch(query: StreamingQuery, plan: JoinPlan) -> FinishedBatch:
    """The current batch. Call it when all rows of the batch have been computed."""
    observed = ObservedBatch(
        left=_observed_side(batch_metrics(query, "left")),
        right=_observed_side(batch_metrics(query, "right")),
    )
    return FinishedBatch(executed_join(query, plan.inputs), observed)


def _observed_side(metrics: Mapping[str, Any]) -> ObservedSide:
    return ObservedSide(
        bad_records={reason: metrics[reason] for reason in REASONS if metrics.get(reason)},
        null_keys=metrics.get("null_keys", 0),
        unknown_schema_ids=tuple(metrics.get(UNKNOWN_IDS, ())),
    )
