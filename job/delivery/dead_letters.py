"""What did not get into the join, or not into the output, and where it goes.

The query itself only counts such records. Where it has counted one, the offsets that the batch has
read of that side are read once more, by the same SQL: while all records are good this costs
nothing.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from job.dataflow import ID_HEADER, UNKNOWN_IDS, count_where, dataflow, decoded
from job.dead_letters import headers as names
from job.dead_letters import selection
from job.delivery.finished_batch import FinishedBatch, OffsetRange, entering
from job.errors import BadRecordError
from job.join_spec.expressions import SIDES, Side
from job.kafka.security import KafkaAccess, spark_options
from job.plan.model import JoinPlan, position_column, window_end_column
from job.protocol.progress import REASONS, Totals

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
    """The results that the output topic takes; the others are counted, and known by their ids."""
    size = (
        "coalesce(octet_length(key), 0) + octet_length(value) "
        f"+ octet_length(headers[0].value) + {_RESULT_OVERHEAD_BYTES}"
    )
    too_large = f"({size}) > {bytes_max}"
    of_one = f"struct(cast(headers[0].value AS STRING) AS id, {size} AS size)"
    return records.observe(
        "output",
        F.count(F.lit(1)).alias("records"),
        count_where(too_large).alias("too_large"),
        F.expr(f"collect_list(CASE WHEN {too_large} THEN {of_one} END)").alias("too_large_ids"),
    ).where(f"NOT ({too_large})")


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
        if batch.observed["output"].get("too_large"):
            frames.append(self._of_results(spark, batch))
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
        return found.selectExpr(*selection.written(self.plan, side_plan, bytes_max=self.bytes_max))

    def _found(self, spark: SparkSession, batch: FinishedBatch, side: Side) -> DataFrame:
        """The side's records of the batch that are dead, with `dead_reason` and `dead_message`."""
        side_plan = self.plan.side(side)
        records = self._records(spark, side, batch.ranges[side])
        rows = decoded(
            records,
            side_plan,
            self.access.registry,
            keep=selection.KEPT,
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
            .selectExpr(*selection.selected(self.plan, side_plan))
            .where("dead_reason IS NOT NULL")
            .selectExpr("*", f"{selection.message(side_plan)} AS dead_message")
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

    def _of_results(self, spark: SparkSession, batch: FinishedBatch) -> DataFrame:
        """Results that are too large: their ids say of which records they are made."""
        plan, left = self.plan, self.plan.left
        limit = f" bytes, and topic {plan.output.topic} takes {self.output_bytes_max}"
        rows = [(one["id"], one["size"]) for one in batch.observed["output"]["too_large_ids"]]
        place = "split(split(id, '[|]')[0], '/')"
        contents = {
            names.TOPIC: selection.quoted(left.topic),
            names.PARTITION: f"coalesce(try_element_at({place}, 2), '-1')",
            names.OFFSET: f"coalesce(try_element_at({place}, 3), '-1')",
            names.TIMESTAMP: "''",
            names.SIDE: "'output'",
            names.REASON: selection.quoted(names.VALUE_TOO_LARGE),
            names.MESSAGE: f"concat('the result has ', size, {selection.quoted(limit)})",
            names.QUERY: selection.quoted(plan.name),
            names.OMITTED_BYTES: "size",
            ID_HEADER: "id",
        }
        return spark.createDataFrame(rows, "id STRING, size BIGINT").selectExpr(
            "cast(NULL AS BINARY) AS key",
            "cast(NULL AS BINARY) AS value",
            f"{selection.headers_of(contents)} AS headers",
            "'output' AS side",
            f"{selection.quoted(names.VALUE_TOO_LARGE)} AS reason",
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
        if batch.observed["output"].get("too_large"):
            one = batch.observed["output"]["too_large_ids"][0]
            raise BadRecordError(
                f"the result of {one['id']} has {one['size']} bytes, and topic "
                f"{self.plan.output.topic} takes {self.output_bytes_max}: raise its "
                "max.message.bytes, or write `on_bad_record: drop`, then start again"
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
