"""The calls between Spark and the control loop of one run of the query."""

from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager
from datetime import timedelta

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from job.delivery.sink import START_SECONDS, RunningQuery
from job.event_time.partitions import BatchRead, Offsets
from job.spark.batch_read import batch_read
from job.spark.before_first_batch import BeforeFirstBatch
from job.spark.between_batches import prevent_next_batch
from job.spark.interval_duration import set_interval_duration
from job.spark.interval_read import EndedInterval, ended_interval
from job.spark.kafka_reader import Limit, LimitedReading
from job.spark.watermark import current_watermark, raise_watermark
from job.spec.sides import Side
from job.spec.source_topics import SourceTopics


class QueryHooks:
    """Spark's side of the control loop. If `limit_reading` fails, Spark reads without calls and
    limits."""

    def __init__(self, spark: SparkSession, topics: Mapping[Side, SourceTopics]) -> None:
        self._spark = spark
        self._topics = topics
        self._started: Future[RunningQuery] = Future()
        self._limited: LimitedReading | None = None
        self._first: BeforeFirstBatch | None = None

    @property
    def _running(self) -> RunningQuery:
        return self._started.result(START_SECONDS)

    def before_first_batch(
        self, limit: Limit, ends_valid_seconds: float
    ) -> AbstractContextManager[None]:
        """Context in which the query is started. Spark calls `limit` before it plans the first
        batch. `ends_valid_seconds`: as for LimitedReading."""
        limited = self._limited_by(limit, ends_valid_seconds)
        self._first = BeforeFirstBatch(self._spark, limited.begin)
        self._limited = limited
        return self._first.active()

    def started(self, running: RunningQuery) -> None:
        self._started.set_result(running)

    def limit_reading(self, limit: Limit) -> None:
        """Let Spark call `limit` before each batch. Raises what Spark raises."""
        try:
            if self._first is not None:
                self._first.wait()
            else:
                self._limited = self._limited_by(limit)
                self._limited.begin(self._running.query)
        except Exception:
            self._limited = None
            raise

    def _limited_by(self, limit: Limit, ends_valid_seconds: float = 0.0) -> LimitedReading:
        return LimitedReading(
            self._spark, self._topics, limit, self._record_failure, ends_valid_seconds
        )

    def _record_failure(self, error: Py4JJavaError) -> None:
        self._running.record_failure(error)

    def limit_side(self, side: Side) -> None:
        if self._limited is not None:
            self._limited.put(side)

    def release_side(self, side: Side) -> None:
        """Let Spark read the side without calls."""
        if self._limited is not None:
            self._limited.remove(side)

    def batch_read(self, latest: Offsets) -> BatchRead:
        """What the current batch has read. `latest`: as in State of driver.py."""
        return batch_read(self._running.query, self._spark, self._topics, latest)

    def ended_interval(self, starts: Offsets, latest: Offsets) -> EndedInterval | None:
        return ended_interval(self._running.query, starts, latest)

    def watermark_ms(self) -> int:
        return current_watermark(self._running.query)

    def raise_watermark(self, to_ms: int) -> None:
        raise_watermark(self._running.query, to_ms)

    def set_interval_duration(self, duration: timedelta) -> None:
        set_interval_duration(self._running.query, self._spark, duration)

    def end_run(self) -> None:
        """End the run before the next batch."""
        prevent_next_batch(self._running.query)
