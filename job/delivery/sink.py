"""Writes results and dead letters to Kafka. Runs on the driver.

At least once uses Spark's Kafka sink. Exactly once passes each batch to the executors, which write
the rows of each state partition in a transaction (transactions.py), and collects their reports.
Dead letters follow the rows of a batch, before Spark commits the batch.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from job.change.replay import Replay
from job.checkpoint.checkpoint import Checkpoint
from job.dataflow.output_columns import PARTITION, TIMESTAMP
from job.dataflow.real_time import TopicLimits
from job.delivery.commit_protocol import Batch, Result
from job.delivery.dead_letter_writer import (
    Counts,
    DeadLetterWriter,
    counts_of,
    with_counts,
)
from job.delivery.exactly_once import (
    claim_name,
    dead_letter_slot,
    delivery_error,
    delivery_target,
    input_fingerprint,
)
from job.delivery.finished_batch import (
    FinishedBatch,
    finished_batch,
    observed_output,
    writable_results,
)
from job.delivery.kept_back import KeptBack
from job.delivery.topic_limits import read_limits
from job.delivery.transactions import (
    REPORT_DDL,
    Report,
    Write,
    slot_of,
)
from job.errors import DeliveryError, StreamjoinError
from job.join_spec.output import Delivery
from job.kafka.security import KafkaAccess, spark_options
from job.plan import tuning
from job.plan.plan import JoinPlan
from job.spark.arrow_map import map_in_arrow
from job.spark.between_batches import stop_gracefully
from job.spark.failures import failure_of
from job.spark.watermark import raise_watermark

# The first batch begins before start() has returned the query.
_START_SECONDS = 60.0


class DeliveryListener(Protocol):
    """Counts what is delivered."""

    def delivered(self, batch_id: int, rows: int, results: Mapping[str, int]) -> None:
        """`rows`: rows of the batch that were written. `results`: transactions by result."""

    def dead_letters(self, counts: Counts) -> None: ...

    def kept_back(self, batch_id: int, results: int) -> None:
        """All `results` and dead letters of the batch are kept back."""


BatchEnded = Callable[[StreamingQuery, int], None]
"""Called on the query's thread when a batch is delivered, before Spark commits it."""


@dataclass(frozen=True)
class RunningQuery:
    query: StreamingQuery
    _sink: "FailureOfQuery"
    has_intervals: bool = False
    """Whether the query runs in intervals of real-time mode, in which it cannot be paused."""
    can_be_interrupted: bool = False
    """Whether the query can be stopped at any moment without repeated results."""
    keeps_watermark: Callable[[], bool] = lambda: False
    """Whether the query repeats batches whose watermark must not advance."""

    def raise_watermark(self, to_ms: int) -> None:
        """For an idle side. Does nothing while the query keeps its watermark."""
        if not self.keeps_watermark():
            raise_watermark(self.query, to_ms)

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
            failure = self._sink.failure or self._sink.explained(error)
            if failure is not None:
                raise failure from None
            raise

    def record_failure(self, error: Py4JJavaError) -> None:
        """Record the failure of a call from Spark to Python, which Spark keeps only as text."""
        self._sink.record_failure(error)


def start_query(
    records: Callable[[], DataFrame],
    plan: JoinPlan,
    access: KafkaAccess,
    checkpoint: Checkpoint,
    listener: DeliveryListener,
    batch_ended: BatchEnded,
    *,
    new_query: bool,
    replay: Replay | None = None,
) -> RunningQuery:
    """Start a query that writes `records` to the output topic with the delivery of the plan.

    `records` builds the dataflow. It runs while a first start claims its name in the commit topic:
    each takes about two seconds. The commit topic of exactly-once delivery must exist. `new_query`:
    the user agrees to replace another query of the same name. `replay`: the replay after a
    change. None: the query replaces no other query.
    """
    limits = read_limits(plan, access)
    sink: BatchSink
    claim: Callable[[], None] | None = None
    if plan.output.delivery is Delivery.AT_LEAST_ONCE:
        # An interrupted batch is written again, also the part that was already written.
        checkpoint.end_exactly_once()
        sink = _AtLeastOnce(plan, access, limits, listener, batch_ended)
    else:
        since = checkpoint.begin_exactly_once()
        checkpoint.ensure_query_id()
        sink = _ExactlyOnce(plan, access, limits, listener, batch_ended, checkpoint, since)
        claim = partial(
            claim_name,
            *(plan, sink.target, checkpoint, replay),
            since=since,
            new_query=new_query,
        )
    with ThreadPoolExecutor(1, "ownership") as threads:
        claimed = threads.submit(claim) if claim is not None else None
        writer = (
            writable_results(records(), plan, limits)
            .writeStream.queryName(plan.name)
            .outputMode("append")
            .trigger(processingTime="0 seconds")
            .option("checkpointLocation", checkpoint.query_location)
        )
        if claimed is not None:
            claimed.result()
    sink.kept_back = KeptBack(checkpoint, replay)
    query = writer.foreachBatch(sink).start()
    sink.query.set_result(query)
    return RunningQuery(query, sink)


def sink_options(plan: JoinPlan, access: KafkaAccess, bytes_max: int) -> dict[str, str]:
    """Options of Spark's Kafka sink. Kafka's client refuses records above max.request.size or
    buffer.memory."""
    largest = {
        "kafka.max.request.size": str(max(bytes_max, tuning.REQUEST_BYTES)),
        "kafka.buffer.memory": str(max(bytes_max, tuning.BUFFER_BYTES)),
    }
    return {**plan.output.sink_options, **largest, **spark_options(access)}


class FailureOfQuery:
    """The failure of Python code that Spark calls. Spark keeps only its text."""

    def __init__(self, plan: JoinPlan) -> None:
        self.failure: StreamjoinError | None = None
        self._plan = plan

    def record_failure(self, error: Py4JJavaError) -> None:
        self.failure = self.explained(error) or failure_of(error, self._plan.bootstrap_servers)

    def explained(self, _: Exception) -> StreamjoinError | None:
        """The failure of a writer in the JVM as an error for users. None: the failure is another
        one."""
        return None


class BatchSink(FailureOfQuery, ABC):
    """The function that Spark calls with each batch, on the query's thread."""

    def __init__(
        self,
        plan: JoinPlan,
        access: KafkaAccess,
        limits: TopicLimits,
        listener: DeliveryListener,
        batch_ended: BatchEnded,
    ) -> None:
        super().__init__(plan)
        self.query: Future[StreamingQuery] = Future()
        self._access = access
        self._limits = limits
        self._listener = listener
        self._batch_ended = batch_ended
        self.kept_back = KeptBack()
        self._dead_letters = DeadLetterWriter(
            plan, access, limits.dead_letter_bytes_max, limits.result_bytes_max
        )

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        """Deliver one batch.

        The frame must be executed exactly once, to the last row of every partition: that commits
        the join's state, and a second execution would load the state again.
        """
        try:
            self._deliver(self.kept_back.to_deliver(records, batch_id), batch_id)
            query = self.query.result(_START_SECONDS)
            if self.kept_back.has_whole_batch:
                self._listener.kept_back(batch_id, self.kept_back.results(query))
            self._batch_ended(query, batch_id)
        except Py4JJavaError as error:
            self.record_failure(error)
            raise  # unchanged: Spark recognizes a stopped query by the text of the error
        except Exception as error:
            self.failure = failure_of(error, self._plan.bootstrap_servers)
            raise RuntimeError("the batch is not delivered") from None

    @property
    def _has_dead_letters(self) -> bool:
        uses = self._plan.dead_letter is not None or self._plan.fails_on_bad_records
        return uses and not self.kept_back.has_whole_batch

    @abstractmethod
    def _deliver(self, records: DataFrame, batch_id: int) -> None: ...

    def _finished(self) -> FinishedBatch:
        return finished_batch(self.query.result(_START_SECONDS), self._plan)


class _AtLeastOnce(BatchSink):
    """Delivery with Spark's Kafka sink: first the rows, then the dead letters."""

    def _deliver(self, records: DataFrame, batch_id: int) -> None:
        self._write(records, self._plan.output.topic, self._limits.result_bytes_max)
        output = observed_output(self.query.result(_START_SECONDS))
        written = 0 if self.kept_back.has_whole_batch else output.written
        self._listener.delivered(batch_id, written, {})
        if self._has_dead_letters:
            spark, finished = records.sparkSession, self._finished()
            counts = self._dead_letters.write_batch(spark, finished, self._write_dead_letters)
            self._listener.dead_letters(counts)

    def _write_dead_letters(self, letters: DataFrame) -> Counts:
        assert self._plan.dead_letter is not None
        letters.persist()
        try:
            counts = letters.groupBy("side", "reason").count().collect()
            records = letters.select("key", "value", "headers")
            self._write(records, self._plan.dead_letter.topic, self._limits.dead_letter_bytes_max)
        finally:
            letters.unpersist()
        return {(side, reason): count for side, reason, count in counts}

    def _write(self, records: DataFrame, topic: str, bytes_max: int) -> None:
        options = sink_options(self._plan, self._access, bytes_max)
        records.write.format("kafka").options(**options).option("topic", topic).save()


class _ExactlyOnce(BatchSink):
    """Delivery in transactions on the executors, with one more transaction for dead letters."""

    def __init__(
        self,
        plan: JoinPlan,
        access: KafkaAccess,
        limits: TopicLimits,
        listener: DeliveryListener,
        batch_ended: BatchEnded,
        checkpoint: Checkpoint,
        since: int,
    ) -> None:
        super().__init__(plan, access, limits, listener, batch_ended)
        self._checkpoint = checkpoint
        self._since = since
        self.target = delivery_target(
            plan, access, checkpoint, record_bytes_max=limits.result_bytes_max
        )

    def _deliver(self, records: DataFrame, batch_id: int) -> None:
        batch = self._batch(batch_id)
        reports = self._write_results(records, batch)
        self._report_delivery(batch_id, reports)
        if self._has_dead_letters:
            self._write_dead_letters(records, batch)

    def _write_dead_letters(self, records: DataFrame, batch: Batch) -> None:
        """Write the dead letters in one transaction.

        Only a batch with dead letters writes a marker in their slot, so a missing marker of the
        previous batch is not an error.
        """
        alone = replace(batch, since=batch.batch_id)

        def write(letters: DataFrame) -> Counts:
            assert self._plan.dead_letter is not None
            target = replace(
                self.target,
                output_topic=self._plan.dead_letter.topic,
                id_header=None,
                record_bytes_max=self._limits.dead_letter_bytes_max,
            )
            slot = dead_letter_slot(self._plan)
            rows = with_counts(letters.coalesce(1)).select("key", "value", "headers")
            reports = map_in_arrow(rows, Write(target, alone, slot), REPORT_DDL)
            (report,) = (Report(**row.asDict()) for row in reports.collect())
            if report.message is not None:
                raise delivery_error(batch.batch_id, report, target, slot)
            return {} if report.result == Result.SKIPPED else counts_of(reports)

        finished = self._finished()
        counts = self._dead_letters.write_batch(records.sparkSession, finished, write)
        self._listener.dead_letters(counts)

    def _write_results(self, records: DataFrame, batch: Batch) -> list[Report]:
        optional = [F.col(name) for name in (TIMESTAMP, PARTITION) if name in records.columns]
        rows = records.select(
            F.col("key").cast("binary"),
            F.col("value").cast("binary"),
            F.expr("headers[0].value").alias("id") if self.target.id_header else F.col("headers"),
            *optional,
        )
        write = Write(self.target, batch)
        return [Report(**row.asDict()) for row in map_in_arrow(rows, write, REPORT_DDL).collect()]

    def _batch(self, batch_id: int) -> Batch:
        fingerprint = input_fingerprint(self._checkpoint, batch_id)
        return Batch(batch_id, fingerprint, self._since, self.target.query_id)

    def _report_delivery(self, batch_id: int, reports: list[Report]) -> None:
        results = Counter(report.result for report in reports)
        # SETTLED counts as unknown and as committed: the response was lost, and the transaction was
        # committed.
        results["unknown"] += results[Result.SETTLED.value]
        results[Result.COMMITTED.value] += results.pop(Result.SETTLED.value, 0)
        self._listener.delivered(batch_id, sum(report.rows for report in reports), results)
        if len(reports) != self._plan.state_partitions:
            raise DeliveryError(
                f"batch {batch_id} ran in {len(reports)} partitions instead of "
                f"{self._plan.state_partitions}: Spark did not use the partitions of the state. "
                "`restart` runs the batch again, and nothing is lost",
                retryable=False,
            )
        failed = [report for report in reports if report.message is not None]
        if failed:
            worst = self._worst(failed)
            raise delivery_error(batch_id, worst, self.target, slot_of(worst.partition))

    def _worst(self, failed: list[Report]) -> Report:
        """The failure to raise: one that a retry does not fix, if there is one."""
        return min(failed, key=lambda report: (report.retryable, report.partition))
