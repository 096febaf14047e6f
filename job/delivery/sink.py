"""Starts the query, and delivers its micro-batches on the query's thread.

The records of a micro-batch are written first (record_writer.py). If the join passes no dead
letters on, those of the input records follow, before Spark commits the batch. In intervals the
tasks write the records by themselves.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from job.checkpoint.checkpoint import Checkpoint
from job.dataflow.written import OUTPUT, without_failures
from job.delivery.dead_letter_writer import Counts, DeadLetterWriter
from job.delivery.finished_batch import finished_batch
from job.delivery.kept_back import KeptBack
from job.delivery.record_writer import RecordWriter
from job.errors import DeliveryError, StreamjoinError
from job.join.join import Join
from job.plan.plan import JoinPlan
from job.protocol.progress import results_written
from job.spark.between_batches import stop_gracefully
from job.spark.failures import failure_of
from job.spark.observed_metrics import batch_metrics
from job.spark.stopped_query import is_interruption, raise_if_interrupted, short_error
from job.spec.durations import milliseconds

_log = structlog.get_logger()

# The first batch begins before start() has returned the query.
START_SECONDS = 60.0


class DeliveryListener(Protocol):
    """Counts what is delivered."""

    def delivered(self, batch_id: int, rows: int, results: Mapping[str, int]) -> None:
        """`rows`: rows of the batch that were written. `results`: transactions by result."""

    def dead_letters(self, counts: Counts) -> None: ...

    def kept_back(self, batch_id: int, results: int) -> None:
        """All `results` and dead letters of the batch are kept back."""


@dataclass(frozen=True)
class RunningQuery:
    query: StreamingQuery
    _sink: "FailureOfQuery"
    has_intervals: bool = False
    """Whether the query runs in intervals of real-time mode, in which it cannot be paused."""
    can_be_interrupted: bool = False
    """Whether the query can be stopped at any moment without repeated results."""

    def end(self, grace: timedelta) -> None:
        """End the query between two batches if it still runs. Raises no error: the JVM may be
        gone."""
        with suppress(Exception):
            if self.query.isActive:
                stop_gracefully(self.query, grace)

    def await_end(self) -> None:
        """Block until the query has ended. Raises the failure of the query."""
        with self.raising_failure():
            self.query.awaitTermination()

    @contextmanager
    def raising_failure(self) -> Iterator[None]:
        """Raise the failure of the sink. The failure of the query contains only its text."""
        try:
            yield
        except Exception as error:
            failure = self._sink.failure or self._sink.error_of(error)
            if failure is not None:
                raise failure from None
            raise

    def stop(self, grace: timedelta) -> None:
        """Stop the query between two batches. If the last batch fails meanwhile, log why: Spark is
        silent about an error that it takes for the interruption of a query that is stopped."""
        stop_gracefully(self.query, grace)
        if self._sink.failure is not None:
            _log.warning("last_batch_failed", reason=str(self._sink.failure))

    def record_failure(self, error: Py4JJavaError) -> None:
        """Record the failure of a call from Spark to Python, which Spark keeps only as text."""
        if not is_interruption(error):
            self._sink.record_failure(error)


def start_micro_batches(
    records: DataFrame, plan: JoinPlan, join: Join, checkpoint: Checkpoint, sink: "BatchSink"
) -> RunningQuery:
    query = (
        records.writeStream.queryName(plan.name)
        .outputMode(join.output_mode)
        .trigger(processingTime="0 seconds")
        .option("checkpointLocation", checkpoint.query_location)
        .foreachBatch(sink)
        .start()
    )
    sink.query.set_result(query)
    return RunningQuery(query, sink)


def start_intervals(
    records: DataFrame, plan: JoinPlan, checkpoint: Checkpoint, writer: RecordWriter
) -> RunningQuery:
    """Start a query in intervals of real-time mode."""
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


class FailureOfQuery:
    """The failure of a run: of its writer, or of Python code that Spark calls. Spark keeps only the
    text of the latter."""

    def __init__(self, plan: JoinPlan, writer: RecordWriter) -> None:
        self.failure: StreamjoinError | None = None
        self._plan = plan
        self._writer = writer

    def record_failure(self, error: Py4JJavaError) -> None:
        self.failure = self.error_of(error) or failure_of(error, self._plan.bootstrap_servers)

    def error_of(self, error: Exception) -> StreamjoinError | None:
        """The failure of the writer as an error for users. None: the failure is another one."""
        return self._writer.error_of(error)


class BatchSink(FailureOfQuery):
    """The function that Spark calls with each batch, on the query's thread."""

    def __init__(
        self,
        plan: JoinPlan,
        writer: RecordWriter,
        join: Join,
        dead_letters: DeadLetterWriter | None,
        listener: DeliveryListener,
        batch_ended: Callable[[int], None],
        kept_back: KeptBack,
    ) -> None:
        """`batch_ended`: called when a batch is delivered, before Spark commits it.
        `dead_letters`: writer of the dead letters of input records. None: the join passes them
        on, or the spec has no dead-letter topic."""
        super().__init__(plan, writer)
        self.query: Future[StreamingQuery] = Future()
        self._join = join
        self._dead_letters = dead_letters
        self._listener = listener
        self._batch_ended = batch_ended
        self._kept_back = kept_back

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        """Deliver one batch.

        The frame must be executed exactly once, to the last row of every partition: that commits
        the join's state, and a second execution would load the state again.
        """
        raise_if_interrupted(records.sparkSession)
        try:
            self._deliver(self._kept_back.to_deliver(records, batch_id), batch_id)
            query = self.query.result(START_SECONDS)
            if self._kept_back.has_whole_batch:
                self._listener.kept_back(batch_id, self._kept_back.results(query))
            self._batch_ended(batch_id)
        except Py4JJavaError as error:
            self.record_failure(error)
            self._count_after_failure(batch_id)
            raise short_error(error) from None
        except Exception as error:
            self.failure = failure_of(error, self._plan.bootstrap_servers)
            raise RuntimeError("the batch is not delivered") from None

    def _deliver(self, records: DataFrame, batch_id: int) -> None:
        query, spark = self.query.result(START_SECONDS), records.sparkSession
        self._join.begin_batch(query, spark)
        self._write(records, batch_id)
        if self._dead_letters is None or self._kept_back.has_whole_batch:
            return
        counts = self._dead_letters.write_batch(
            spark,
            finished_batch(query, self._plan),
            lambda letters: self._writer.write_dead_letters(letters, batch_id),
        )
        self._listener.dead_letters(counts)

    def _write(self, records: DataFrame, batch_id: int) -> None:
        """Write the batch and count it."""
        is_kept_back = self._kept_back.has_whole_batch
        self._writer.write_batch(without_failures(records, fails=not is_kept_back), batch_id)
        observed = batch_metrics(self.query.result(START_SECONDS), OUTPUT)
        computed = 0 if is_kept_back else results_written(observed)
        results, transactions = self._writer.delivered(computed)
        self._listener.delivered(batch_id, results, transactions)
        partitions = sum(transactions.values())
        if transactions and partitions != self._plan.state_partitions:
            raise DeliveryError(
                f"batch {batch_id} ran in {partitions} partitions instead of "
                f"{self._plan.state_partitions}: Spark did not use the partitions of the state. "
                "`restart` runs the batch again, and nothing is lost",
                retryable=False,
            )

    def _count_after_failure(self, batch_id: int) -> None:
        """What other partitions have delivered is not written again. Spark counts only tasks that
        ended before the batch failed."""
        with suppress(Exception):  # the JVM may be gone
            self._listener.delivered(batch_id, *self._writer.delivered(0))
