"""Starts the query of the real-time engine, in micro-batches or in intervals of real-time mode.

Both write at least once, by Spark's own Kafka writer, results and dead letters in one stream of
(topic, key, value, headers).
"""

from pyspark.sql import DataFrame

from job.checkpoint.checkpoint import Checkpoint
from job.dataflow.real_time import OUTPUT, Sizes, results_written
from job.delivery.sink import (
    BatchEnded,
    BatchSink,
    DeliveryListener,
    FailureOfQuery,
    RunningQuery,
    sink_options,
)
from job.join_spec.durations import milliseconds
from job.kafka.security import KafkaAccess
from job.plan import real_time
from job.plan.plan import JoinPlan
from job.spark.observed_metrics import batch_metrics
from job.spark.watermark import pass_late_watermark

_START_SECONDS = 60.0


def start_micro_batches(
    records: DataFrame,
    plan: JoinPlan,
    access: KafkaAccess,
    checkpoint: Checkpoint,
    sizes: Sizes,
    listener: DeliveryListener,
    ended: BatchEnded,
) -> RunningQuery:
    checkpoint.end_exactly_once()
    sink = _EachMicroBatch(plan, access, sizes, listener, ended)
    query = (
        records.writeStream.queryName(plan.name)
        .outputMode("update")
        .trigger(processingTime="0 seconds")
        .option("checkpointLocation", checkpoint.query_location)
        .foreachBatch(sink)
        .start()
    )
    sink.query.set_result(query)
    return RunningQuery(query, sink)


def start_intervals(
    records: DataFrame, plan: JoinPlan, access: KafkaAccess, checkpoint: Checkpoint, sizes: Sizes
) -> RunningQuery:
    assert plan.real_time is not None
    interval_ms = milliseconds(plan.real_time.checkpoint_interval)
    query = (
        records.writeStream.queryName(plan.name)
        .outputMode("update")
        .trigger(realTime=f"{interval_ms} milliseconds")  # type: ignore[call-overload]  # new in 4.3
        .option("checkpointLocation", checkpoint.query_location)
        .format("kafka")
        .options(**{**_options(plan, access, sizes), **real_time.SINK_OPTIONS})
        .start()
    )
    return RunningQuery(query, FailureOfQuery(plan), has_intervals=True)


class _EachMicroBatch(BatchSink):
    def _deliver(self, records: DataFrame, batch_id: int) -> None:
        query = self.query.result(_START_SECONDS)
        pass_late_watermark(query, records.sparkSession)
        options = _options(self._plan, self._access, self._sizes)
        records.write.format("kafka").options(**options).save()
        self._listener.delivered(batch_id, results_written(batch_metrics(query, OUTPUT)), {})


def _options(plan: JoinPlan, access: KafkaAccess, sizes: Sizes) -> dict[str, str]:
    return sink_options(plan, access, max(sizes.result_bytes_max, sizes.dead_letter_bytes_max))
