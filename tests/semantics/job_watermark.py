"""Sets the watermark of a query without Kafka by the rule of the job."""

from collections.abc import Mapping
from concurrent.futures import Future

from pyspark.sql.streaming.query import StreamingQuery

from job.event_time.partitions import BatchRead, Partitions, RecordedEventTimes
from job.event_time.watermark import watermark_ms
from job.plan.plan import JoinPlan
from job.spark.batch_read import event_times, newest
from job.spark.observed_metrics import batch_metrics
from job.spark.watermark import raise_watermark
from job.spec.durations import milliseconds
from job.spec.sides import SIDES, Side

NOTHING_READ = Partitions.none()
_START_SECONDS = 60


class JobWatermark:
    """Watermark of one run of a query. Call `batch_ended` at the end of foreachBatch."""

    def __init__(self, plan: JoinPlan, partitions: Partitions = NOTHING_READ) -> None:
        self.query: Future[StreamingQuery] = Future()
        self.unread: Mapping[Side, Mapping[int, int]] = {side: {} for side in SIDES}
        """Number of unread records by partition; 0 for a missing partition."""
        self._delay_ms: dict[Side, int] = {
            side: milliseconds(plan.side(side).watermark_delay) for side in plan.streams
        }
        self._partitions = partitions

    def batch_ended(self) -> None:
        query = self.query.result(_START_SECONDS)
        observed = {side: batch_metrics(query, side) for side in SIDES}
        times = event_times(observed)
        known = {
            side: {*self._partitions.side(side), *times[side], *self.unread[side]} for side in SIDES
        }
        ends = {side: dict.fromkeys(known[side], 0) for side in SIDES}
        latest = {side: {**ends[side], **self.unread[side]} for side in SIDES}
        read = BatchRead(ends, latest, times, newest(observed))
        self._partitions = self._partitions.after_batch(read)
        to_ms = watermark_ms(self._partitions, self._delay_ms)
        if to_ms is not None:
            raise_watermark(query, to_ms)

    def read_again(self) -> Partitions:
        """Partitions as the job reads them from its checkpoint at a restart."""
        sides = {side: self._partitions.side(side) for side in SIDES}
        read = {s: {n: each.next_offset for n, each in sides[s].items()} for s in SIDES}
        text = self._partitions.recorded().model_dump_json()
        return Partitions.restored(RecordedEventTimes.model_validate_json(text), read)
