"""Writes the dead letters of a batch: its bad records, late rows and unwritten results.

The query only counts bad records. If a batch has counted one, the offsets that the batch has read
on that side are read again with the same SQL. While all records are good this costs nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import structlog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from job.dataflow.dataflow import count_where, dataflow, decoded, side_rows
from job.dead_letters import headers as names
from job.dead_letters import sql
from job.dead_letters.failure_text import (
    BAD_RECORD,
    REMEDIES,
    UNWRITTEN_RESULT,
    without_key,
)
from job.delivery.finished_batch import FinishedBatch
from job.errors import BadRecordError
from job.join_spec.sides import SIDES, Side
from job.kafka.security import KafkaAccess, spark_options
from job.plan.plan import JoinPlan, window_end_column
from job.plan.position import partition_and_offset, position_column
from job.plan.record_checks import EXPRESSION_FAILED
from job.plan.result_checks import texts
from job.plan.result_id import ID_HEADER
from job.protocol.totals import Totals
from job.spark.executed_join import OffsetRange
from job.spark.join_input import join_input
from job.spark.observed_metrics import frame_metrics

_COUNTS = "dead_letters"

Counts = Mapping[tuple[str, str], int]
"""Count by side and reason."""
Write = Callable[[DataFrame], Counts]
"""Writes a frame of (key, value, headers, side, reason) and returns the counts of its rows. The
counts are empty if an earlier attempt wrote the rows."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class _Result:
    """A result that is not written."""

    id: str
    reason: str
    message: str
    size: int
    """Bytes. 0: its value could not be computed."""


@dataclass(frozen=True)
class DeadLetterWriter:
    plan: JoinPlan
    access: KafkaAccess
    bytes_max: int
    """Largest record that the dead-letter topic accepts; 0 without a topic."""
    output_bytes_max: int
    """Largest record that the output topic accepts."""

    def write_batch(self, spark: SparkSession, batch: FinishedBatch, write: Write) -> Counts:
        """Write the dead letters of the batch with `write`. Returns their counts.

        Raises BadRecordError if there is a bad record and the spec has `on_bad_record: fail`.
        """
        if self.plan.fails_on_bad_records:
            self._fail_on_first(spark, batch)
            return {}
        frames = [
            self._of_side(spark, batch, side)
            for side in SIDES
            if self._may_have_letters(batch, side)
        ]
        if unwritten := self._unwritten_results(batch):
            frames.append(self._of_results(spark, unwritten))
        if not frames:
            return {}
        counts = write(reduce(DataFrame.unionByName, frames))
        self._compare_late_rows(batch, counts)
        return counts

    def _may_have_letters(self, batch: FinishedBatch, side: Side) -> bool:
        """Whether the side may have dead letters. Spark counts late rows of both sides together."""
        observed, topic = batch.observed.side(side), self.plan.dead_letter
        if side not in batch.join.ranges:
            return False
        return (
            bool(observed.bad_records)
            or (topic is not None and topic.takes_null_keys and observed.null_keys > 0)
            or self._takes_late_rows(batch)
        )

    def _takes_late_rows(self, batch: FinishedBatch) -> bool:
        topic = self.plan.dead_letter
        return topic is not None and topic.takes_late_rows and batch.join.late_rows > 0

    def _of_side(self, spark: SparkSession, batch: FinishedBatch, side: Side) -> DataFrame:
        """(key, value, headers, side, reason)"""
        side_plan = self.plan.side(side)
        bad = self._bad_records(spark, batch, side)
        return bad.selectExpr(*sql.letters(self.plan, side_plan, bytes_max=self.bytes_max))

    def _bad_records(self, spark: SparkSession, batch: FinishedBatch, side: Side) -> DataFrame:
        """The side's records that become dead letters, with `dead_reason` and `dead_message`."""
        side_plan = self.plan.side(side)
        records = self._records(spark, side, batch.join.ranges[side])
        rows = decoded(
            records,
            side_plan,
            self.access.registry,
            keep=sql.KEPT,
            unknown_ids=batch.observed.side(side).unknown_schema_ids,
        )
        if self._takes_late_rows(batch):
            late = self._late_positions(spark, batch, side).withColumn("is_late", F.lit(True))
            rows = rows.join(late, position_column(side), "left")
        else:
            rows = rows.withColumn("is_late", F.lit(False))
        return (
            rows.withColumn("late_watermark", _late_watermark(batch))
            .selectExpr(*sql.with_reason(self.plan, side_plan))
            .where("dead_reason IS NOT NULL")
            .selectExpr("*", f"{sql.message(side_plan)} AS dead_message")
        )

    def _records(self, spark: SparkSession, side: Side, offsets: OffsetRange | None) -> DataFrame:
        """The records of the offsets, with headers. `offsets` None: a frame only for its schema."""
        source = self.plan.side(side).source_options
        options = {name: value for name, value in source.items() if not name.startswith("starting")}
        options.pop("maxOffsetsPerTrigger", None)
        if offsets is not None:
            # Spark requires offsets of all partitions that it reads. With `subscribe` these include
            # partitions that were added after the batch was planned.
            del options["subscribe"]
            options["assign"] = json.dumps(
                {topic: sorted(map(int, ends)) for topic, ends in offsets.end.items()}
            )
            options["startingOffsets"] = json.dumps(offsets.full_start)
            options["endingOffsets"] = json.dumps(offsets.end)
        options |= {**spark_options(self.access), "includeHeaders": "true"}
        return spark.read.format("kafka").options(**options).load()

    def _late_positions(self, spark: SparkSession, batch: FinishedBatch, side: Side) -> DataFrame:
        """Positions of the rows that Spark has dropped as late.

        Spark counts late rows among those that reach the join, after the filters that its optimizer
        moves below the join. So the same optimizer plans the same join here. On a deduplicated side
        Spark counts late rows before it drops duplicates, and moves no filter below that operator.
        """
        sides = {name: self._records(spark, name, batch.join.ranges.get(name)) for name in SIDES}
        plan = self.plan.without_deduplication()
        if self.plan.side(side).deduplication is None:
            joined = dataflow(sides["left"], sides["right"], plan, self.access.registry)
            rows = join_input(joined, side, plan.inputs)
        else:
            rows = side_rows(sides[side], plan.side(side), plan, self.access.registry)
        side_plan = self.plan.side(side)
        at = side_plan.event_time_column if self.plan.window is None else window_end_column(side)
        return rows.where(F.col(f"`{at}`") <= _late_watermark(batch)).select(position_column(side))

    def _unwritten_results(self, batch: FinishedBatch) -> list[_Result]:
        output, expressions = batch.observed.output, texts(self.plan)
        limit = f"topic {self.plan.output.topic} accepts {self.output_bytes_max}"
        oversized = [
            _Result(
                result.id,
                names.VALUE_TOO_LARGE,
                f"the result has {result.size} bytes, and {limit}",
                result.size,
            )
            for result in output.oversized
        ]
        why = without_key(self.plan.output.topic)
        keyless = [
            _Result(result.id, names.NULL_KEY, why, result.size) for result in output.without_key
        ]
        failed = [
            _Result(
                result.id,
                EXPRESSION_FAILED,
                f"{result.field} cannot be evaluated on this result: "
                f"{expressions.get(result.field, '')}",
                0,
            )
            for result in output.failed
        ]
        return [*oversized, *keyless, *failed]

    def _of_results(self, spark: SparkSession, unwritten: Sequence[_Result]) -> DataFrame:
        """Dead letters without value; their id names the records of the result."""
        headers = sql.result_headers(self.plan, ID_HEADER, message="message", size="size")
        rows = [(result.id, result.reason, result.message, result.size) for result in unwritten]
        shape = "id STRING, reason STRING, message STRING, size BIGINT"
        return spark.createDataFrame(rows, shape).selectExpr(
            "cast(NULL AS BINARY) AS key",
            "cast(NULL AS BINARY) AS value",
            f"{headers} AS headers",
            "'output' AS side",
            "reason",
        )

    def _fail_on_first(self, spark: SparkSession, batch: FinishedBatch) -> None:
        for side in SIDES:
            if not self._may_have_letters(batch, side):
                continue
            first = self._bad_records(spark, batch, side).orderBy(position_column(side)).first()
            if first is not None:
                message = BAD_RECORD.format(
                    side=side,
                    topic=self._topic(side, first[position_column(side)]),
                    partition=first[f"{side}_record_partition"],
                    offset=first[f"{side}_record_offset"],
                    reason=first["dead_reason"],
                    message=first["dead_message"],
                )
                raise BadRecordError(message)
        for result in self._unwritten_results(batch):
            raise BadRecordError(
                UNWRITTEN_RESULT.format(
                    id=result.id,
                    reason=result.reason,
                    message=result.message,
                    remedy=REMEDIES[result.reason],
                )
            )

    def _topic(self, side: Side, position: int) -> str:
        number, _ = partition_and_offset(position)
        return self.plan.side(side).topics.place(number)[0]

    def _compare_late_rows(self, batch: FinishedBatch, counts: Counts) -> None:
        if not (self._takes_late_rows(batch) and counts):
            return
        written = sum(count for (_, reason), count in counts.items() if reason == names.LATE)
        if written != batch.join.late_rows:
            _log.warning("late_rows_differ", dropped=batch.join.late_rows, dead_letters=written)


def _late_watermark(batch: FinishedBatch) -> Column:
    return F.timestamp_millis(F.lit(batch.join.late_watermark_ms).cast("long"))


def with_counts(letters: DataFrame) -> DataFrame:
    """Adds the counts that `counts_of` returns once all rows have been computed."""
    counts = [
        count_where(f"side = '{side}' AND reason = '{reason}'").alias(f"{side}/{reason}")
        for side, reasons in Totals().dead_letters.items()
        for reason in reasons
    ]
    return letters.observe(_COUNTS, *counts)


def counts_of(written: DataFrame) -> Counts:
    return {
        (side, reason): count
        for name, count in frame_metrics(written, _COUNTS).items()
        for side, reason in [name.split("/")]
        if count
    }
