"""What did not get into the join, or not into the output, and where it goes.

The query itself only counts such records. Where it has counted one, the offsets that the batch has
read of that side are read once more, by the same SQL: while all records are good this costs
nothing.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import structlog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from job.dataflow.dataflow import ID_HEADER, UNKNOWN_IDS, count_where, dataflow, decoded
from job.dead_letters import headers as names
from job.dead_letters import sql
from job.delivery.finished_batch import FinishedBatch, OffsetRange, entering
from job.errors import BadRecordError
from job.join_spec.expressions import SIDES, Side
from job.kafka.security import KafkaAccess, spark_options
from job.plan.plan import JoinPlan, window_end_column
from job.plan.position import position_column
from job.plan.record_checks import EXPRESSION_FAILED, FAILED_FIELD, quoted
from job.plan.result_checks import texts
from job.protocol.progress import Totals
from job.protocol.reasons import REASONS

# Of what Kafka adds to a record, and of our header.
_RESULT_OVERHEAD_BYTES = 200
_COUNTS = "dead_letters"

Counts = Mapping[tuple[str, str], int]
"""Per side and reason."""
Write = Callable[[DataFrame], Counts]
"""Writes a frame of (key, value, headers, side, reason) and says what was written: nothing where an
earlier attempt had."""

_log = structlog.get_logger()


def limited(records: DataFrame, bytes_max: int) -> DataFrame:
    """(key, value, headers) of the results that are written; the others are counted, and known by
    their ids: those larger than the output topic takes, and those on which an expression fails."""
    size = (
        "coalesce(octet_length(key), 0) + octet_length(value) "
        f"+ octet_length(headers[0].value) + {_RESULT_OVERHEAD_BYTES}"
    )
    too_large = f"({size}) > {bytes_max}"
    id_of = "cast(headers[0].value AS STRING) AS id"
    counted = [F.count(F.lit(1)).alias("records")]
    counted += _counted("too_large", too_large, f"struct({id_of}, {size} AS size)")
    if FAILED_FIELD not in records.columns:
        return records.observe("output", *counted).where(f"NOT ({too_large})")
    failed = f"{FAILED_FIELD} IS NOT NULL"
    counted += _counted("failed", failed, f"struct({id_of}, {FAILED_FIELD} AS field)")
    written = records.observe("output", *counted).where(f"NOT ({failed}) AND NOT ({too_large})")
    return written.drop(FAILED_FIELD)


def _counted(name: str, condition: str, of_one: str) -> list[Column]:
    """How many results are left out by the condition, and which."""
    which = F.expr(f"collect_list(CASE WHEN {condition} THEN {of_one} END)")
    return [count_where(condition).alias(name), which.alias(f"{name}_ids")]


def rows_written(output: Mapping[str, Any]) -> int:
    """Number of results of a batch that were written, from what it observed of its output."""
    left_out = output.get("too_large", 0) + output.get("failed", 0)
    written: int = output.get("records", 0) - left_out
    return written


@dataclass(frozen=True)
class _Result:
    """A result that is not written."""

    id: str
    reason: str
    message: str
    size: int
    """Bytes. 0: its value could not be made."""


@dataclass(frozen=True)
class DeadLetters:
    """Looks after one batch after the other."""

    plan: JoinPlan
    access: KafkaAccess
    bytes_max: int
    """How large a dead letter may be."""
    output_bytes_max: int

    def look_after(self, spark: SparkSession, batch: FinishedBatch, write: Write) -> Counts:
        """Hand what the batch has left out to `write`; what was written. BadRecordError where the
        spec says that the query fails."""
        if self.plan.fails_on_bad_records:
            self._fail_on_the_first(spark, batch)
            return {}
        frames = [
            self._of_side(spark, batch, side) for side in SIDES if self._concerns(batch, side)
        ]
        if left_out := self._results_left_out(batch):
            frames.append(self._of_results(spark, left_out))
        if not frames:
            return {}
        counts = write(reduce(DataFrame.unionByName, frames))
        self._compare_late_rows(batch, counts)
        return counts

    def _concerns(self, batch: FinishedBatch, side: Side) -> bool:
        """Whether the side may have something. Spark counts the late rows of both sides as one."""
        observed, wanted = batch.observed[side], self.plan.dead_letter
        if side not in batch.ranges:
            return False
        return (
            any(observed.get(reason) for reason in REASONS)
            or (wanted is not None and wanted.takes_null_keys and bool(observed.get("null_keys")))
            or self._takes_late_rows(batch)
        )

    def _takes_late_rows(self, batch: FinishedBatch) -> bool:
        wanted = self.plan.dead_letter
        return wanted is not None and wanted.takes_late_rows and batch.late_rows > 0

    def _of_side(self, spark: SparkSession, batch: FinishedBatch, side: Side) -> DataFrame:
        """(key, value, headers, side, reason)"""
        side_plan = self.plan.side(side)
        found = self._found(spark, batch, side)
        return found.selectExpr(*sql.written(self.plan, side_plan, bytes_max=self.bytes_max))

    def _found(self, spark: SparkSession, batch: FinishedBatch, side: Side) -> DataFrame:
        """The side's records of the batch that are dead, with `dead_reason` and `dead_message`."""
        side_plan = self.plan.side(side)
        records = self._records(spark, side, batch.ranges[side])
        rows = decoded(
            records,
            side_plan,
            self.access.registry,
            keep=sql.KEPT,
            unknown_ids=batch.observed[side].get(UNKNOWN_IDS, ()),
        )
        if self._takes_late_rows(batch):
            late = self._late_positions(spark, batch, side).withColumn("is_late", F.lit(True))
            rows = rows.join(late, position_column(side), "left")
        else:
            rows = rows.withColumn("is_late", F.lit(False))
        late_watermark = F.timestamp_millis(F.lit(batch.late_watermark_ms).cast("long"))
        return (
            rows.withColumn("late_watermark", late_watermark)
            .selectExpr(*sql.selected(self.plan, side_plan))
            .where("dead_reason IS NOT NULL")
            .selectExpr("*", f"{sql.message(side_plan)} AS dead_message")
        )

    def _records(self, spark: SparkSession, side: Side, offsets: OffsetRange | None) -> DataFrame:
        """What the batch has read of the side, with its headers; None: a frame for its shape."""
        source = self.plan.side(side).source_options
        options = {name: value for name, value in source.items() if not name.startswith("starting")}
        options.pop("maxOffsetsPerTrigger", None)
        if offsets is not None:
            options["startingOffsets"] = json.dumps(offsets.full_start)
            options["endingOffsets"] = json.dumps(offsets.end)
        options |= {**spark_options(self.access), "includeHeaders": "true"}
        return spark.read.format("kafka").options(**options).load()

    def _late_positions(self, spark: SparkSession, batch: FinishedBatch, side: Side) -> DataFrame:
        """Of the rows that Spark has dropped as late.

        Spark counts a row as late that has come as far as the join, and its optimizer pushes there
        what it can of the filters: so the same optimizer is asked what stands below the join.
        """
        sides = {name: self._records(spark, name, batch.ranges.get(name)) for name in SIDES}
        joined = dataflow(sides["left"], sides["right"], self.plan, self.access.registry)
        below = entering(joined._jdf.queryExecution().optimizedPlan(), side)
        jvm: Any = spark._jvm
        rows = DataFrame(
            jvm.org.apache.spark.sql.classic.Dataset.ofRows(spark._jsparkSession, below), spark
        )
        side_plan = self.plan.side(side)
        at = side_plan.event_time_column if self.plan.window is None else window_end_column(side)
        watermark = F.timestamp_millis(F.lit(batch.late_watermark_ms).cast("long"))
        return rows.where(F.col(f"`{at}`") <= watermark).select(position_column(side))

    def _results_left_out(self, batch: FinishedBatch) -> list[_Result]:
        output, written = batch.observed["output"], texts(self.plan)
        limit = f"topic {self.plan.output.topic} takes {self.output_bytes_max}"
        too_large = [
            _Result(
                one["id"],
                names.VALUE_TOO_LARGE,
                f"the result has {one['size']} bytes, and {limit}",
                one["size"],
            )
            for one in output.get("too_large_ids", ())
        ]
        failed = [
            _Result(
                one["id"],
                EXPRESSION_FAILED,
                f"{one['field']} cannot be evaluated on this result: "
                f"{written.get(one['field'], '')}",
                0,
            )
            for one in output.get("failed_ids", ())
        ]
        return [*too_large, *failed]

    def _of_results(self, spark: SparkSession, left_out: Sequence[_Result]) -> DataFrame:
        """Results that are not written: their ids say of which records they are made."""
        plan, left = self.plan, self.plan.left
        place = "split(split(id, '[|]')[0], '/')"
        contents = {
            names.TOPIC: quoted(left.topic),
            names.PARTITION: f"coalesce(try_element_at({place}, 2), '-1')",
            names.OFFSET: f"coalesce(try_element_at({place}, 3), '-1')",
            names.TIMESTAMP: "''",
            names.SIDE: "'output'",
            names.REASON: "reason",
            names.MESSAGE: "message",
            names.QUERY: quoted(plan.name),
            names.OMITTED_BYTES: "size",
            ID_HEADER: "id",
        }
        rows = [(one.id, one.reason, one.message, one.size) for one in left_out]
        shape = "id STRING, reason STRING, message STRING, size BIGINT"
        return spark.createDataFrame(rows, shape).selectExpr(
            "cast(NULL AS BINARY) AS key",
            "cast(NULL AS BINARY) AS value",
            f"{sql.headers_of(contents)} AS headers",
            "'output' AS side",
            "reason",
        )

    def _fail_on_the_first(self, spark: SparkSession, batch: FinishedBatch) -> None:
        for side in SIDES:
            if not self._concerns(batch, side):
                continue
            first = self._found(spark, batch, side).orderBy(position_column(side)).first()
            if first is not None:
                topic = self.plan.side(side).topic
                raise BadRecordError(
                    f"{side} record {topic}/{first[f'{side}_record_partition']}/"
                    f"{first[f'{side}_record_offset']} cannot be read ({first['dead_reason']}): "
                    f"{first['dead_message']}. To go on, write `on_bad_record: drop` or name a "
                    "dead_letter topic, then start again"
                )
        if left_out := self._results_left_out(batch):
            first_result = left_out[0]
            remedy = "change the expression"
            if first_result.reason == names.VALUE_TOO_LARGE:
                remedy = "raise the topic's max.message.bytes"
            raise BadRecordError(
                f"the result of {first_result.id} cannot be written ({first_result.reason}): "
                f"{first_result.message}. To go on, {remedy}, or write `on_bad_record: drop`, "
                "then start again"
            )

    def _compare_late_rows(self, batch: FinishedBatch, counts: Counts) -> None:
        if not (self._takes_late_rows(batch) and counts):
            return
        written = sum(count for (_, reason), count in counts.items() if reason == names.LATE)
        if written != batch.late_rows:
            _log.warning("late_rows_differ", dropped=batch.late_rows, dead_letters=written)


def observed(letters: DataFrame) -> DataFrame:
    """With the counts that `observed_counts` reads once all rows have been taken."""
    counts = [
        count_where(f"side = '{side}' AND reason = '{reason}'").alias(f"{side}/{reason}")
        for side, reasons in Totals().dead_letters.items()
        for reason in reasons
    ]
    return letters.observe(_COUNTS, *counts)


def observed_counts(taken: DataFrame) -> Counts:
    found = taken._jdf.queryExecution().observedMetrics().get(_COUNTS)
    counted = json.loads(found.get().json()) if found.isDefined() else {}
    return {
        (side, reason): count
        for name, count in counted.items()
        for side, reason in [name.split("/")]
        if count
    }
