"""Where the results go: on the driver's side.

At least once is Spark's own Kafka sink. Exactly once hands each batch to the executors, which write
each state partition's rows in a transaction (transactions.py), and collects what became of them.
Dead letters follow a batch's rows, before Spark commits the batch.
"""

import hashlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from job.checkpoint.checkpoint import Checkpoint
from job.dataflow.dataflow import ID_HEADER
from job.delivery.commit_protocol import Batch, Result
from job.delivery.commit_topic import dead_letter_partition
from job.delivery.dead_letter_writer import (
    Counts,
    DeadLetters,
    limited,
    observed,
    observed_counts,
    rows_written,
)
from job.delivery.finished_batch import FinishedBatch, finished_batch
from job.delivery.ownership import ensure_ownership
from job.delivery.topic_limits import record_bytes_max
from job.delivery.transactions import (
    REPORT_DDL,
    Report,
    Target,
    TransactionSlot,
    Write,
    lane_of,
    transactional_id,
)
from job.errors import CheckpointError, DeliveryError, FencedError, StreamjoinError
from job.join_spec.spec import Delivery
from job.kafka.security import KafkaAccess, librdkafka_settings, spark_options
from job.plan import tuning
from job.plan.plan import JoinPlan
from job.spark.batch_read import observed_metrics
from job.spark.failures import failure_of

# The first batch begins while the query's start is still being told.
_START_SECONDS = 60.0


class DeliveryListener(Protocol):
    """Who keeps the account."""

    def delivered(self, batch_id: int, rows: int, results: Mapping[str, int]) -> None:
        """The rows written of a batch, and how many transactions had which result."""

    def dead_letters(self, counts: Counts) -> None: ...


BatchEnded = Callable[[StreamingQuery, int], None]
"""Called on the query's thread after the rows of a batch are delivered, before Spark commits it."""


@dataclass(frozen=True)
class RunningQuery:
    query: StreamingQuery
    _sink: "_EachBatch"

    def await_end(self) -> None:
        """Block until the query has ended; raises what made it fail."""
        with self.telling_why():
            self.query.awaitTermination()

    @contextmanager
    def telling_why(self) -> Iterator[None]:
        """Raises the sink's failure in the place of the query's, which holds it as text."""
        try:
            yield
        except Exception:
            if self._sink.failure is not None:
                raise self._sink.failure from None
            raise

    def failed(self, error: Py4JJavaError) -> None:
        """Note the failure of a call that Spark has made to Python, and keeps as text only."""
        self._sink.failed(error)


def start_query(
    records: Callable[[], DataFrame],
    plan: JoinPlan,
    access: KafkaAccess,
    checkpoint: Checkpoint,
    told: DeliveryListener,
    ended: BatchEnded,
    *,
    new_query: bool,
) -> RunningQuery:
    """Start a query that writes `records` to the output topic with the delivery of the plan.

    `records` builds the dataflow. It runs while a first start claims its name in the commit topic:
    each takes about two seconds. The commit topic of exactly-once delivery must exist. `new_query`:
    the user agrees to replace another query of the same name.
    """
    sizes = _Sizes.asked(plan, access)
    sink: _EachBatch
    claim: Callable[[], None] | None = None
    if plan.output.delivery is Delivery.AT_LEAST_ONCE:
        # A batch that was cut short after it had written some of its records is written again.
        checkpoint.delivers_at_least_once()
        sink = _AtLeastOnce(plan, access, sizes, told, ended)
    else:
        since = checkpoint.delivers_exactly_once_since()
        checkpoint.ensure_query_id()
        sink = _ExactlyOnce(plan, access, sizes, told, ended, checkpoint, since)
        claim = partial(
            ensure_ownership,
            *(sink.target, checkpoint, dead_letter_lane(plan)),
            since=since,
            new_query=new_query,
        )
    with ThreadPoolExecutor(1, "ownership") as threads:
        claimed = threads.submit(claim) if claim is not None else None
        writer = (
            limited(records(), sizes.result_bytes_max)
            .writeStream.queryName(plan.name)
            .outputMode("append")
            .trigger(processingTime="0 seconds")
            .option("checkpointLocation", checkpoint.query_location)
        )
        if claimed is not None:
            claimed.result()
    query = writer.foreachBatch(sink).start()
    sink.query.set_result(query)
    return RunningQuery(query, sink)


@dataclass(frozen=True)
class _Sizes:
    """The largest records that the topics take."""

    result_bytes_max: int
    dead_letter_bytes_max: int

    @classmethod
    def asked(cls, plan: JoinPlan, access: KafkaAccess) -> "_Sizes":
        topics = (plan.output.topic, plan.dead_letter.topic if plan.dead_letter else None)
        return cls(*(0 if topic is None else record_bytes_max(access, topic) for topic in topics))


def _sink_options(plan: JoinPlan, access: KafkaAccess, bytes_max: int) -> dict[str, str]:
    """Of Spark's Kafka writer; the Java client refuses what is larger than it has been told."""
    largest = {"kafka.max.request.size": str(max(bytes_max, tuning.REQUEST_BYTES))}
    return {**plan.output.sink_options, **largest, **spark_options(access)}


class _EachBatch(ABC):
    """What Spark calls with each batch, on a thread of its own."""

    def __init__(
        self,
        plan: JoinPlan,
        access: KafkaAccess,
        sizes: _Sizes,
        told: DeliveryListener,
        ended: BatchEnded,
    ) -> None:
        self.failure: StreamjoinError | None = None
        self.query: Future[StreamingQuery] = Future()
        self._plan = plan
        self._access = access
        self._sizes = sizes
        self._told = told
        self._ended = ended
        self._dead_letters = DeadLetters(
            plan, access, sizes.dead_letter_bytes_max, sizes.result_bytes_max
        )

    def __call__(self, records: DataFrame, batch_id: int) -> None:
        """Deliver one batch. The frame is executed once, to its last row, in every partition: the
        join's state is committed by that, and executed twice it would be loaded twice."""
        try:
            self._deliver(records, batch_id)
            self._ended(self.query.result(_START_SECONDS), batch_id)
        except Py4JJavaError as error:
            self.failed(error)
            raise  # as it is: Spark looks into its text for the sign that the query was stopped
        except Exception as error:
            self.failure = failure_of(error, self._plan.bootstrap_servers)
            raise RuntimeError("the batch is not delivered") from None

    def failed(self, error: Py4JJavaError) -> None:
        self.failure = failure_of(error, self._plan.bootstrap_servers)

    @property
    def _looks_after_dead_letters(self) -> bool:
        return self._plan.dead_letter is not None or self._plan.fails_on_bad_records

    @abstractmethod
    def _deliver(self, records: DataFrame, batch_id: int) -> None: ...

    def _finished(self) -> FinishedBatch:
        return finished_batch(self.query.result(_START_SECONDS))


class _AtLeastOnce(_EachBatch):
    """By Spark's own writer, the dead letters behind the rows."""

    def _deliver(self, records: DataFrame, batch_id: int) -> None:
        self._write(records, self._plan.output.topic, self._sizes.result_bytes_max)
        execution = self.query.result(_START_SECONDS)._jsq.streamingQuery().lastExecution()
        self._told.delivered(batch_id, rows_written(observed_metrics(execution, "output")), {})
        if self._looks_after_dead_letters:
            spark, finished = records.sparkSession, self._finished()
            counts = self._dead_letters.look_after(spark, finished, self._write_dead_letters)
            self._told.dead_letters(counts)

    def _write_dead_letters(self, letters: DataFrame) -> Counts:
        assert self._plan.dead_letter is not None
        letters.persist()
        try:
            counted = letters.groupBy("side", "reason").count().collect()
            records = letters.select("key", "value", "headers")
            self._write(records, self._plan.dead_letter.topic, self._sizes.dead_letter_bytes_max)
        finally:
            letters.unpersist()
        return {(side, reason): count for side, reason, count in counted}

    def _write(self, records: DataFrame, topic: str, bytes_max: int) -> None:
        options = _sink_options(self._plan, self._access, bytes_max)
        records.write.format("kafka").options(**options).option("topic", topic).save()


class _ExactlyOnce(_EachBatch):
    """By transactions on the executors, the dead letters in one of their own."""

    def __init__(
        self,
        plan: JoinPlan,
        access: KafkaAccess,
        sizes: _Sizes,
        told: DeliveryListener,
        ended: BatchEnded,
        checkpoint: Checkpoint,
        since: int,
    ) -> None:
        super().__init__(plan, access, sizes, told, ended)
        self._checkpoint = checkpoint
        self._since = since
        self.target = self._make_target()

    def _deliver(self, records: DataFrame, batch_id: int) -> None:
        batch = self._batch(batch_id)
        reports = self._reports(records, batch)
        self._account_for(batch_id, reports)
        if self._looks_after_dead_letters:
            self._look_after_dead_letters(records, batch)

    def _look_after_dead_letters(self, records: DataFrame, batch: Batch) -> None:
        """In a transaction with a marker of its own, which is left only by a batch that has some:
        the batch before need not have left one."""
        alone = replace(batch, since=batch.batch_id)

        def write(letters: DataFrame) -> Counts:
            assert self._plan.dead_letter is not None
            target = replace(
                self.target,
                output_topic=self._plan.dead_letter.topic,
                id_header=None,
                record_bytes_max=self._sizes.dead_letter_bytes_max,
            )
            lane = dead_letter_lane(self._plan)
            rows = observed(letters.coalesce(1)).select("key", "value", "headers")
            taken = _map_in_arrow(rows, Write(target, alone, lane))
            (report,) = (Report(**row.asDict()) for row in taken.collect())
            if report.message is not None:
                raise self._error(batch.batch_id, report, target, lane)
            return {} if report.result == Result.SKIPPED else observed_counts(taken)

        finished = self._finished()
        counts = self._dead_letters.look_after(records.sparkSession, finished, write)
        self._told.dead_letters(counts)

    def _reports(self, records: DataFrame, batch: Batch) -> list[Report]:
        rows = records.select(
            F.col("key").cast("binary"),
            F.col("value").cast("binary"),
            F.expr("headers[0].value").alias("id"),
        )
        write = Write(self.target, batch)
        return [Report(**row.asDict()) for row in _map_in_arrow(rows, write).collect()]

    def _batch(self, batch_id: int) -> Batch:
        """With the fingerprint of what it is made from: offsets, watermark, time of the batch.

        Spark has written all of it to the offset log before the batch begins, and reads it there
        when the batch is run again.
        """
        text = self._checkpoint.planned(batch_id)
        return Batch(
            batch_id,
            hashlib.sha256(text.encode()).hexdigest()[:32],
            self._since,
            self.target.query_id,
        )

    def _make_target(self) -> Target:
        output = self._plan.output
        return Target(
            client=tuple(librdkafka_settings(self._access).items()),
            name=self._plan.name,
            query_id=self._checkpoint.query_id,
            output_topic=output.topic,
            id_header=ID_HEADER,
            commit_topic=output.commit_topic,
            transaction_timeout_seconds=tuning.TRANSACTION_TIMEOUT_SECONDS,
            record_bytes_max=self._sizes.result_bytes_max,
        )

    def _account_for(self, batch_id: int, reports: list[Report]) -> None:
        results = Counter(report.result for report in reports)
        # The answer was lost, and the transaction committed: it is one of both.
        results["unknown"] += results[Result.SETTLED.value]
        results[Result.COMMITTED.value] += results.pop(Result.SETTLED.value, 0)
        self._told.delivered(batch_id, sum(report.rows for report in reports), results)
        if len(reports) != self._plan.state_partitions:
            raise DeliveryError(
                f"batch {batch_id} ran in {len(reports)} partitions instead of "
                f"{self._plan.state_partitions}: Spark split it otherwise than the state",
                retryable=False,
            )
        failed = [report for report in reports if report.message is not None]
        if failed:
            worst = self._worst(failed)
            raise self._error(batch_id, worst, self.target, lane_of(worst.partition))

    def _worst(self, failed: list[Report]) -> Report:
        """The one to tell of: where one cannot be tried again, trying does not help."""
        return min(failed, key=lambda report: (report.retryable, report.partition))

    def _error(
        self, batch_id: int, report: Report, target: Target, lane: TransactionSlot
    ) -> StreamjoinError:
        if report.result == "disagreement":
            return CheckpointError(
                f"checkpoint and commit topic {target.commit_topic} disagree: {report.message}"
            )
        if report.result == "taken_over":
            return FencedError(
                f"another query has taken over the name {target.name} in the commit topic "
                f"{target.commit_topic}: {report.message}. Two queries of one name cannot both "
                "run: end one of the jobs, or give this one another `name`"
            )
        identity = transactional_id(self._plan.name, lane.name)
        if report.result == "fenced":
            return FencedError(
                f"another job has taken over this query: it writes as {identity} now. Two jobs of "
                f"one name cannot both run: end one of them, and `restart` the other"
            )
        return DeliveryError(
            f"batch {batch_id} could not be delivered to {target.output_topic} as {identity} "
            f"({report.result}): {report.message}",
            retryable=report.retryable,
        )


def dead_letter_lane(plan: JoinPlan) -> TransactionSlot:
    return TransactionSlot("dead-letters", dead_letter_partition(plan))


def _map_in_arrow(rows: DataFrame, write: Write) -> DataFrame:
    """rows.mapInArrow(write, REPORT_DDL), which asks for pandas and makes no use of it."""
    function = UserDefinedFunction(
        write,
        returnType=REPORT_DDL,
        name="write",
        evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF,
    )
    column = function(*(rows[name] for name in rows.columns))
    return DataFrame(rows._jdf.mapInArrow(column._jc, False, None), rows.sparkSession)
