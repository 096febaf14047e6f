"""Offsets that an interval of real-time mode has read, when Spark plans the next interval.

Private API of Spark 4.3.0, pinned by tests/integration/test_real_time.py.
"""

from dataclasses import dataclass

from pyspark.sql.streaming.query import StreamingQuery

from job.event_time.partitions import BatchRead, Offsets
from job.spark.batch_read import event_times, newest
from job.spark.observed_metrics import execution_metrics
from job.spark.stream_execution import stream_execution
from job.spec.sides import SIDES


@dataclass(frozen=True)
class EndedInterval:
    next_batch_id: int
    read: BatchRead


def ended_interval(query: StreamingQuery, starts: Offsets, latest: Offsets) -> EndedInterval | None:
    """The interval before the one that is planned; None: Spark does not plan one.

    `starts`: the offsets that the next interval begins with. `latest`: the ends of the topics.
    Called on the query's thread while Spark requests the ends of the topics. Spark also requests
    them when an interval has ended.
    """
    context = stream_execution(query).getLatestExecutionContext()
    if context.isCurrentBatchConstructed():
        return None
    previous = context.previousContext()
    execution = previous.get().executionPlan() if previous.isDefined() else None
    observed = {
        side: {} if execution is None else execution_metrics(execution, side) for side in SIDES
    }
    read = BatchRead(starts, latest, event_times(observed), newest(observed))
    return EndedInterval(context.batchId(), read)
