"""From a JoinPlan to the records of the real-time engine: results, and dead letters between them.

The steps are those of dataflow/, with another join. Real-time mode reads each record once, so that
a bad record passes through the join as a separate row, with its dead letter.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from job.change.replay import Replay
from job.dataflow import dataflow, replay_sql
from job.dataflow.replayed import without_kept_back, without_late_rows
from job.dataflow.results import output_records
from job.dataflow.written import WATERMARK, TopicLimits, fails_query, written
from job.dead_letters import headers as names
from job.dead_letters import sql as dead_letter_sql
from job.dead_letters.failure_text import BAD_RECORD, as_sql
from job.join_spec.expressions import column_name
from job.join_spec.sides import SIDES
from job.kafka.security import KafkaAccess
from job.plan.plan import JoinPlan, SidePlan
from job.plan.position import position_column
from job.plan.real_time import SOURCE_OPTIONS
from job.real_time.join import DEAD_LETTER, IS_DEAD, RowCounts, real_time_join
from job.real_time.transactions import ID
from job.spark.try_eval import register_try_eval
from job.sql.literals import quoted

if TYPE_CHECKING:
    from job.formats.registry import RegistryAccess


def interval_records(
    spark: SparkSession,
    plan: JoinPlan,
    access: KafkaAccess,
    limits: TopicLimits,
    counts: RowCounts,
    replay: Replay | None = None,
) -> DataFrame:
    """The COLUMNS of records, read without a limit and by one task for each partition."""
    options: dict[str, str | None] = {"maxOffsetsPerTrigger": None, **SOURCE_OPTIONS}
    left, right = (
        dataflow.kafka_records(spark, _reading(plan.side(side), plan, options), access)
        for side in SIDES
    )
    return records(left, right, plan, limits, counts, access.registry, replay, real_time=True)


def micro_batch_records(
    spark: SparkSession,
    plan: JoinPlan,
    access: KafkaAccess,
    limits: TopicLimits,
    counts: RowCounts,
    replay: Replay | None = None,
    *,
    repeats_interval: bool,
) -> DataFrame:
    """The COLUMNS of records, read in micro-batches. After a change, maybe also FAILURE.

    `repeats_interval`: the watermark of the batch decides which rows are late, as in an interval.
    Spark itself uses the watermark of the previous batch.
    """
    tasks = max(plan.state_partitions, spark.sparkContext.defaultParallelism)
    left, right = (
        dataflow.kafka_records(spark, _reading(plan.side(side), plan, {}), access).coalesce(tasks)
        for side in SIDES
    )
    return records(
        *(left, right, plan, limits, counts, access.registry, replay),
        real_time=repeats_interval,
        marks_failures=replay is not None,
    )


def _reading(side: SidePlan, plan: JoinPlan, options: Mapping[str, str | None]) -> SidePlan:
    """The side with other options of its source. None removes an option."""
    changed = {**side.source_options, **options}
    return replace(
        side,
        source_options={name: value for name, value in changed.items() if value is not None},
        reads_headers=side.reads_headers or plan.dead_letter is not None,
    )


def records(
    left_records: DataFrame,
    right_records: DataFrame,
    plan: JoinPlan,
    limits: TopicLimits,
    counts: RowCounts,
    registry: "RegistryAccess | None" = None,
    replay: Replay | None = None,
    *,
    real_time: bool,
    marks_failures: bool = False,
) -> DataFrame:
    """As `interval_records`, from two streams with the columns of Spark's Kafka source.

    `replay`: the replay after a change. None: the query replaces no other query. `marks_failures`:
    a result that cannot be written does not fail the query, but gets a FAILURE.
    """
    if plan.checks.any:
        register_try_eval(left_records.sparkSession)
    left, right = (
        side_rows(of_side, plan.side(side), plan, limits, registry, replay)
        for side, of_side in zip(SIDES, (left_records, right_records), strict=True)
    )
    if replay is not None:
        left, right = without_late_rows(left, right, plan, replay)
    rows = real_time_join(left, right, plan, real_time=real_time, counts=counts)
    if replay is not None:
        rows = without_kept_back(rows, plan, replay)
    passed_on = None if plan.dead_letter is None else DEAD_LETTER
    results = output_records(rows, plan, passed_on)
    return written(results, plan, limits, marks_failures=marks_failures)


def side_rows(
    records: DataFrame,
    side: SidePlan,
    plan: JoinPlan,
    limits: TopicLimits,
    registry: "RegistryAccess | None",
    replay: Replay | None = None,
) -> DataFrame:
    """As dataflow.side_rows. With a dead-letter topic, also the rows that become dead letters, each
    with its dead letter."""
    if plan.dead_letter is None and not plan.fails_on_bad_records:
        return dataflow.side_rows(records, side, plan, registry)
    keep = dead_letter_sql.KEPT if plan.dead_letter is not None else dead_letter_sql.EXPLAINED
    decoded = dataflow.decoded(records, side, registry, keep=keep)
    if plan.fails_on_bad_records:
        decoded = _failing(decoded, side, plan, replay)
    counted = dataflow.watermarked(decoded, side).observe(
        side.side, *dataflow.observed_metrics(side)
    )
    if plan.dead_letter is None:
        return dataflow.with_window(dataflow.kept(counted, side, plan), side, plan)
    rows = _with_reason(counted, side, plan)
    rows = rows.selectExpr("*", f"dead_reason IS NOT NULL AS {IS_DEAD}")
    if plan.dead_letter.takes_late_rows:
        rows = rows.withColumn("dead_reason", F.expr(f"coalesce(dead_reason, '{names.LATE}')"))
    rows = rows.selectExpr("*", f"{dead_letter_sql.message(side)} AS dead_message")
    conditions = " AND ".join(f"({part})" for part in dataflow.row_conditions(side, plan))
    columns = [f"`{column_name(side.side, column.name)}`" for column in side.kept_columns]
    contents = ", ".join(
        dead_letter_sql.letters(plan, side, bytes_max=limits.dead_letter_bytes_max)
    )
    # The identity is the same when the record is read again.
    identity = f"concat({quoted(side.side)}, '/', {position_column(side.side)}, '/', dead_reason)"
    letter = f"struct({contents}, {identity} AS {ID}, cast(null AS TIMESTAMP) AS late_watermark)"
    rows = rows.where(f"{IS_DEAD} OR ({conditions})").selectExpr(
        *columns,
        position_column(side.side),
        f"CASE WHEN dead_reason IS NOT NULL THEN {letter} END AS {DEAD_LETTER}",
        IS_DEAD,
    )
    return dataflow.with_window(rows, side, plan)


def _with_reason(rows: DataFrame, side: SidePlan, plan: JoinPlan) -> DataFrame:
    """The rows with `dead_reason` and the columns of its message. No row is classified as late:
    the join decides that."""
    return rows.selectExpr(
        "*", "false AS is_late", f"{quoted(WATERMARK)} AS late_watermark"
    ).selectExpr(*dead_letter_sql.with_reason(plan, side))


def _failing(rows: DataFrame, side: SidePlan, plan: JoinPlan, replay: Replay | None) -> DataFrame:
    """The same rows. The query fails at the first bad record that the old query has not read.

    Below the observed metrics, through which Spark pushes no filter: another filter could drop the
    bad record.
    """
    message = as_sql(
        BAD_RECORD,
        side=quoted(side.side),
        topic=dead_letter_sql.topic_of_record(side),
        partition=f"`{column_name(side.side, 'record_partition')}`",
        offset=f"`{column_name(side.side, 'record_offset')}`",
        reason="dead_reason",
        message=dead_letter_sql.message(side),
    )
    passes = fails_query("dead_reason", message)
    if replay is not None:
        passes = (
            f"CASE WHEN {replay_sql.is_before_cut(replay, side.side)} THEN true ELSE {passes} END"
        )
    return _with_reason(rows, side, plan).where(passes).select(rows.columns)
