"""Writes the dead letters of a micro-batch whose join does not pass them on: bad records and late
rows.

The query only counts bad records. If a batch has counted one, the offsets that the batch has read
on that side are read again with the same SQL. While all records are good this costs nothing.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

import structlog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from job.dataflow.dataflow import dataflow
from job.dataflow.output_columns import PARTITION, TIMESTAMP
from job.dataflow.sides import decoded
from job.dead_letters import headers as names
from job.dead_letters import sql
from job.delivery.finished_batch import FinishedBatch
from job.join.join import SparkJoin
from job.kafka.security import KafkaAccess, spark_options
from job.plan.plan import DeadLetterPlan, JoinPlan, window_end_column
from job.plan.position import position_column
from job.plan.timestamp_sql import ISO_FORMAT
from job.spark.executed_join import OffsetRange
from job.spark.join_input import join_input
from job.spec.sides import SIDES, Side
from job.sql.literals import quoted
from job.writer.transactions import ID

Counts = Mapping[tuple[str, str], int]
"""Count by side and reason."""
Write = Callable[[DataFrame], bool]
"""Writes records (COLUMNS of writer/transactions.py). Returns False if an earlier attempt of the
batch has written them."""

_log = structlog.get_logger()


@dataclass(frozen=True)
class DeadLetterWriter:
    plan: JoinPlan
    letters: DeadLetterPlan
    access: KafkaAccess
    bytes_max: int
    """Largest record that the topic accepts."""

    def write_batch(self, spark: SparkSession, batch: FinishedBatch, write: Write) -> Counts:
        """Write the dead letters of the batch with `write`. Returns their counts."""
        frames = [
            self._of_side(spark, batch, side)
            for side in SIDES
            if self._may_have_letters(batch, side)
        ]
        if not frames:
            return {}
        counts = self._write(reduce(DataFrame.unionByName, frames), write)
        self._compare_late_rows(batch, counts)
        return counts

    def _write(self, letters: DataFrame, write: Write) -> Counts:
        """`letters`: (key, value, headers, side, reason). Empty counts if an earlier attempt of the
        batch has written them."""
        letters.persist()
        try:
            counts = letters.groupBy("side", "reason").count().collect()
            is_written = write(letters.selectExpr(*_record_columns(self.letters.topic)))
        finally:
            letters.unpersist()
        return {(side, reason): count for side, reason, count in counts} if is_written else {}

    def _may_have_letters(self, batch: FinishedBatch, side: Side) -> bool:
        """Whether the side may have dead letters. Spark counts late rows of both sides together."""
        observed = batch.observed.side(side)
        if side not in batch.join.ranges:
            return False
        return (
            bool(observed.bad_records)
            or (self.letters.takes_null_keys and observed.null_keys > 0)
            or self._takes_late_rows(batch)
        )

    def _takes_late_rows(self, batch: FinishedBatch) -> bool:
        return self.letters.takes_late_rows and batch.join.late_rows > 0

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
            rows.withColumn("late_watermark", F.date_format(_late_watermark(batch), ISO_FORMAT))
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
        moves below the join. So the same optimizer plans the same join here.
        """
        sides = {name: self._records(spark, name, batch.join.ranges.get(name)) for name in SIDES}
        joined = dataflow(
            sides["left"], sides["right"], self.plan, SparkJoin(), self.access.registry
        )
        rows = join_input(joined, side, self.plan.inputs)
        side_plan = self.plan.side(side)
        at = side_plan.event_time_column if self.plan.window is None else window_end_column(side)
        return rows.where(F.col(f"`{at}`") <= _late_watermark(batch)).select(position_column(side))

    def _compare_late_rows(self, batch: FinishedBatch, counts: Counts) -> None:
        if not (self._takes_late_rows(batch) and counts):
            return
        written = sum(count for (_, reason), count in counts.items() if reason == names.LATE)
        if written != batch.join.late_rows:
            _log.warning("late_rows_differ", dropped=batch.join.late_rows, dead_letters=written)


def _late_watermark(batch: FinishedBatch) -> Column:
    return F.timestamp_millis(F.lit(batch.join.late_watermark_ms).cast("long"))


def _record_columns(topic: str) -> list[str]:
    """The COLUMNS of records, from (key, value, headers)."""
    optional = (
        f"'' AS {ID}",
        f"cast(null AS BIGINT) AS {TIMESTAMP}",
        f"cast(null AS INT) AS {PARTITION}",
    )
    return [f"{quoted(topic)} AS topic", "key", "value", "headers", *optional]
