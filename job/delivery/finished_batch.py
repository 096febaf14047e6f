"""What a batch was made of and what became of it, once its rows have been taken.

Spark tells a query's progress only after the batch is committed, which is too late for whoever
wants to add something to the batch. So this is read off the executed plan itself: private API of
Spark 4.3.0, held against the running version by the integration tests.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from job.join_spec.expressions import SIDES, Side
from job.spark.batch_read import observed_metrics

Offsets = Mapping[str, Mapping[str, int]]
"""Per topic and partition, as Spark's Kafka source writes them."""


_EARLIEST = -2  # to Spark's Kafka source


@dataclass(frozen=True)
class OffsetRange:
    start: Offsets
    """Of each partition the first offset that was read; new partitions are missing."""
    end: Offsets
    """One past the last."""

    @property
    def full_start(self) -> Offsets:
        """With the new partitions, which Spark reads from their beginning."""
        return {
            topic: {p: self.start.get(topic, {}).get(p, _EARLIEST) for p in partitions}
            for topic, partitions in self.end.items()
        }


@dataclass(frozen=True)
class FinishedBatch:
    observed: Mapping[str, Mapping[str, Any]]
    """Per side, and of the output, what the dataflow has counted."""
    ranges: Mapping[Side, OffsetRange]
    """Of the sides that had something to read."""
    late_rows: int
    late_watermark_ms: int | None
    """A row whose time is not past it was late in this batch."""


def finished_batch(query: StreamingQuery) -> FinishedBatch:
    """Of the batch at work, whose rows have all been taken."""
    execution = query._jsq.streamingQuery().lastExecution()
    join = next(_nodes(execution.executedPlan(), "StreamingSymmetricHashJoinExec"))
    watermark = join.eventTimeWatermarkForLateEvents()
    return FinishedBatch(
        observed={name: observed_metrics(execution, name) for name in (*SIDES, "output")},
        ranges=dict(_ranges(join)),
        late_rows=join.metrics().apply("numRowsDroppedByWatermark").value(),
        late_watermark_ms=watermark.get() if watermark.isDefined() else None,
    )


def _nodes(plan: Any, name: str) -> Iterator[Any]:
    """The nodes of that class in a plan, top-down."""
    if plan.getClass().getSimpleName() == name:
        yield plan
    children = plan.children()
    for number in range(children.size()):
        yield from _nodes(children.apply(number), name)


def entering(plan: Any, side: Side) -> Any:
    """What stands right below the join on `side`, in a logical plan."""
    return next(_nodes(plan, "Join")).children().apply(SIDES.index(side))


def _ranges(join: Any) -> Iterator[tuple[Side, OffsetRange]]:
    for number, side in enumerate(SIDES):
        scan = next(_nodes(join.children().apply(number), "MicroBatchScanExec"), None)
        if scan is not None:
            start, end = (json.loads(offset.json()) for offset in (scan.start(), scan.end()))
            yield side, OffsetRange(start, end)
