"""Raises the watermark of a running query, for which Spark has no public call.

Private API of Spark 4.3.0 (MicroBatchExecution): see the package docstring. The behaviour is tested
by tests/semantics/test_watermark.py.
"""

from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from job.spark.stream_execution import (
    batch_execution,
    plan_nodes,
    progress_lock,
    stream_execution,
)

WATERMARK_METADATA = "spark.watermarkDelayMs"
"""Key of the metadata of a column with a watermark; its value is the delay (EventTimeWatermark)."""
_ALL_BATCHES = 2**63 - 1
_LATE_WATERMARK = "streamjoin.late_watermark_ms"


def raise_watermark(query: StreamingQuery, to_ms: int) -> None:
    """Set the watermark of the next batch to at least `to_ms`. The watermark never goes back.

    MicroBatchExecution plans a batch with the watermark of its tracker and writes it to the offset
    log, so a batch that runs again has the same watermark. If the watermark has advanced, Spark
    runs a batch even without new records. The progress lock keeps Spark from raising the watermark
    between the comparison and the assignment.
    """
    with progress_lock(query) as execution:
        tracker = execution.watermarkTracker()
        # There is none before the query has read its checkpoint.
        if tracker is not None and to_ms > tracker.currentWatermark():
            if execution.noNewData():
                _forget_next_batch(execution)
            tracker.setWatermark(to_ms)


def current_watermark(query: StreamingQuery) -> int:
    """The watermark of the next batch, milliseconds since 1970; 0: there is none."""
    return int(stream_execution(query).watermarkTracker().currentWatermark())


def pass_late_watermark(query: StreamingQuery, spark: SparkSession, at_least_ms: int = 0) -> None:
    """Pass the watermark by which rows of the current micro-batch are late to the batch's tasks.

    `at_least_ms`: that of an interval before this run, which Spark does not know. To be called on
    the query's thread, before the batch is computed. LateWatermark.java reads it.
    """
    processor = next(plan_nodes(batch_execution(query).executedPlan(), "TransformWithStateExec"))
    watermark = processor.eventTimeWatermarkForLateEvents()
    ms = max(at_least_ms, watermark.get() if watermark.isDefined() else 0)
    spark.sparkContext.setLocalProperty(_LATE_WATERMARK, str(ms))


def _forget_next_batch(execution: Any) -> None:
    """Allow the next batch to have another watermark than Spark has computed for it.

    Each time Spark finds no new data it checks whether a batch without data is due, records the
    watermark of that batch, and fails the query if the batch later has another one. Spark computes
    the records of earlier batches again from the offset log. Not to be called while a batch runs:
    the batch needs its records, and there are none yet of the next one.
    """
    field = execution.getClass().getDeclaredField("watermarkPropagator")
    field.setAccessible(True)
    field.get(execution).purge(_ALL_BATCHES)
