"""Starts the query of the real-time engine, in micro-batches or in intervals of real-time mode.

Both write results and dead letters as one stream of records, with real_time_delivery.py.
"""

from pyspark.sql import DataFrame

from job.change.replay import Replay
from job.checkpoint.checkpoint import Checkpoint
from job.dataflow.real_time import OUTPUT, TopicLimits, without_failures
from job.delivery.kept_back import KeptBack
from job.delivery.real_time_delivery import RealTimeDelivery
from job.delivery.sink import (
    BatchEnded,
    BatchSink,
    DeliveryListener,
    FailureOfQuery,
    RunningQuery,
)
from job.errors import StreamjoinError
from job.join_spec.durations import milliseconds
from job.kafka.security import KafkaAccess
from job.plan.plan import JoinPlan
from job.protocol.progress import results_written
from job.spark.observed_metrics import batch_metrics
from job.spark.watermark import pass_late_watermark

_START_SECONDS = 60.0


def start_micro_batches(
    records: DataFrame,
    plan: JoinPlan,
    access: KafkaAccess,
    checkpoint: Checkpoint,
    limits: TopicLimits,
    delivery: RealTimeDelivery,
    listener: DeliveryListener,
    ended: BatchEnded,
    replay: Replay | None,
) -> RunningQuery:
    """`replay`: the replay after a change. None: the query replaces no other query."""
    sink = _EachMicroBatch(plan, access, limits, delivery, listener, ended)
    sink.kept_back = KeptBack(checkpoint, replay)
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
    records: DataFrame, plan: JoinPlan, checkpoint: Checkpoint, delivery: RealTimeDelivery
) -> RunningQuery:
    assert plan.real_time is not None
    interval_ms = milliseconds(plan.real_time.checkpoint_interval)
    query = (
        delivery.interval_writer(records)
        .queryName(plan.name)
        .outputMode("update")
        .trigger(realTime=f"{interval_ms} milliseconds")  # type: ignore[call-overload]  # new in 4.3
        .option("checkpointLocation", checkpoint.query_location)
        .start()
    )
    failure = _FailureOfIntervals(plan, delivery)
    return RunningQuery(
        query, failure, has_intervals=True, can_be_interrupted=delivery.can_be_interrupted
    )


class _FailureOfIntervals(FailureOfQuery):
    def __init__(self, plan: JoinPlan, delivery: RealTimeDelivery) -> None:
        super().__init__(plan)
        self._delivery = delivery

    def explained(self, error: Exception) -> StreamjoinError | None:
        return self._delivery.explained(error)


class _EachMicroBatch(BatchSink):
    def __init__(
        self,
        plan: JoinPlan,
        access: KafkaAccess,
        limits: TopicLimits,
        delivery: RealTimeDelivery,
        listener: DeliveryListener,
        ended: BatchEnded,
    ) -> None:
        super().__init__(plan, access, limits, listener, ended)
        self._delivery = delivery

    def explained(self, error: Exception) -> StreamjoinError | None:
        return self._delivery.explained(error)

    def _deliver(self, records: DataFrame, batch_id: int) -> None:
        query = self.query.result(_START_SECONDS)
        pass_late_watermark(query, records.sparkSession)
        fails = not self.kept_back.has_whole_batch
        self._delivery.write_batch(without_failures(records, fails=fails), batch_id)
        computed = results_written(batch_metrics(query, OUTPUT))
        if self.kept_back.has_whole_batch:
            computed = 0
        self._listener.delivered(batch_id, *self._delivery.delivered(computed))
