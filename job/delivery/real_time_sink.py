"""Starts the query of the real-time engine, in micro-batches or in intervals of real-time mode.

Both write results and dead letters as one stream of records.
"""

from pyspark.sql import DataFrame

from job.checkpoint.checkpoint import Checkpoint
from job.delivery.kept_back import KeptBack
from job.delivery.record_writer import RecordWriter
from job.delivery.sink import (
    START_SECONDS,
    BatchEnded,
    BatchSink,
    DeliveryListener,
    FailureOfQuery,
    RunningQuery,
    start_micro_batches,
)
from job.join_spec.durations import milliseconds
from job.plan.plan import JoinPlan
from job.spark.watermark import pass_late_watermark


def start_catch_up(
    records: DataFrame,
    plan: JoinPlan,
    checkpoint: Checkpoint,
    writer: RecordWriter,
    listener: DeliveryListener,
    ended: BatchEnded,
    kept_back: KeptBack,
) -> RunningQuery:
    sink = _EachMicroBatch(plan, writer, listener, ended, kept_back)
    return start_micro_batches(records, plan, checkpoint, sink, output_mode="update")


def start_intervals(
    records: DataFrame, plan: JoinPlan, checkpoint: Checkpoint, writer: RecordWriter
) -> RunningQuery:
    assert plan.real_time is not None
    interval_ms = milliseconds(plan.real_time.checkpoint_interval)
    query = (
        writer.interval_writer(records)
        .queryName(plan.name)
        .outputMode("update")
        .trigger(realTime=f"{interval_ms} milliseconds")  # type: ignore[call-overload]  # new in 4.3
        .option("checkpointLocation", checkpoint.query_location)
        .start()
    )
    failure = FailureOfQuery(plan, writer)
    return RunningQuery(
        query, failure, has_intervals=True, can_be_interrupted=writer.can_be_interrupted
    )


class _EachMicroBatch(BatchSink):
    def _deliver(self, records: DataFrame, batch_id: int) -> None:
        query = self.query.result(START_SECONDS)
        pass_late_watermark(query, records.sparkSession)
        self._write(records, batch_id)
