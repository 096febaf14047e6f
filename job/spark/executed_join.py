"""Facts about the join of a batch, once all rows of the batch have been computed.

Spark reports the progress of a batch only after its commit. Dead letters are written before, so
these facts are read from the executed plan. Private API of Spark 4.3.0: see the package docstring.
The behaviour is tested by tests/integration/test_dead_letters.py.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from job.spark.stream_execution import batch_execution, plan_nodes
from job.spec.sides import Side

Offsets = Mapping[str, Mapping[str, int]]
"""Per topic and partition, as Spark's Kafka source writes them."""

_EARLIEST = -2  # to Spark's Kafka source


@dataclass(frozen=True)
class OffsetRange:
    start: Offsets
    """First offset that was read of each partition; new partitions are missing."""
    end: Offsets
    """Offset after the last record that was read."""

    @property
    def full_start(self) -> Offsets:
        """`start` with the new partitions, which Spark reads from their beginning."""
        return {
            topic: {p: self.start.get(topic, {}).get(p, _EARLIEST) for p in partitions}
            for topic, partitions in self.end.items()
        }


@dataclass(frozen=True)
class ExecutedJoin:
    ranges: Mapping[Side, OffsetRange]
    """Offsets that the batch has read. A side without new offsets is missing."""
    late_rows: int
    """Includes rows that a deduplication below the join has dropped."""
    late_watermark_ms: int | None
    """Rows of the batch were late if their event time was not after it. None: no watermark yet."""


def executed_join(query: StreamingQuery, inputs: Sequence[Side]) -> ExecutedJoin:
    """The join of the current batch. `inputs`: the sides in the order of the join's inputs."""
    plan = batch_execution(query).executedPlan()
    join = next(plan_nodes(plan, "StreamingSymmetricHashJoinExec"))
    watermark = join.eventTimeWatermarkForLateEvents()
    return ExecutedJoin(
        ranges=dict(_ranges(join, inputs)),
        late_rows=sum(
            node.metrics().apply("numRowsDroppedByWatermark").value()
            for node in [join, *plan_nodes(plan, "StreamingDeduplicateWithinWatermarkExec")]
        ),
        late_watermark_ms=watermark.get() if watermark.isDefined() else None,
    )


def _ranges(join: Any, inputs: Sequence[Side]) -> Iterator[tuple[Side, OffsetRange]]:
    for number, side in enumerate(inputs):
        scan = next(plan_nodes(join.children().apply(number), "MicroBatchScanExec"), None)
        if scan is not None:
            start, end = (json.loads(offset.json()) for offset in (scan.start(), scan.end()))
            yield side, OffsetRange(start, end)
