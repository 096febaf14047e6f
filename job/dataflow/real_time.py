"""From a JoinPlan to the records of the real-time engine: results, and dead letters between them.

The steps are those of dataflow/, with another join. Real-time mode reads each record once, so that
a bad record passes through the join as a separate row, with its dead letter.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from job.change.replay import Replay
from job.dataflow import dataflow, replay_sql
from job.dataflow.dataflow import count_where
from job.dataflow.output_columns import PARTITION, TIMESTAMP
from job.dataflow.replayed import without_kept_back, without_late_rows
from job.dataflow.results import output_records, result_bytes
from job.dead_letters import headers as names
from job.dead_letters import sql as dead_letter_sql
from job.dead_letters.failure_text import (
    BAD_RECORD,
    REMEDIES,
    UNWRITTEN_RESULT,
    as_sql,
    without_key,
)
from job.join_spec.expressions import column_name
from job.join_spec.sides import SIDES
from job.kafka.security import KafkaAccess
from job.plan.plan import JoinPlan, SidePlan
from job.plan.position import position_column
from job.plan.real_time import SOURCE_OPTIONS
from job.plan.record_checks import EXPRESSION_FAILED, FAILED_FIELD
from job.plan.result_checks import texts
from job.plan.result_id import ID_HEADER
from job.protocol.totals import Totals
from job.real_time.join import DEAD_LETTER, IS_DEAD, RowCounts, real_time_join
from job.real_time.transactions import COLUMNS, ID
from job.spark.try_eval import register_try_eval
from job.sql.literals import quoted

if TYPE_CHECKING:
    from job.formats.registry import RegistryAccess

OUTPUT = "output"
"""Name of the metrics of the results."""
WRITTEN = "written"
"""Name of the metrics of the dead letters: `<side>/<reason>` is a count."""

FAILURE = "failure"
"""Column of micro-batches after a change, with `on_bad_record: fail`: the message with which the
query fails. Null: the result can be written."""

# Stands in the message of a late row for the watermark, which the join inserts. No event time that
# can be read contains it.
_WATERMARK = "{watermark}"


@dataclass(frozen=True)
class TopicLimits:
    """The records that the topics accept."""

    result_bytes_max: int
    dead_letter_bytes_max: int
    """0: there is no dead-letter topic."""
    requires_key: bool = False
    """Whether the output topic accepts only results with a key, because it is compacted."""


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
        "*", "false AS is_late", f"{quoted(_WATERMARK)} AS late_watermark"
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
    passes = _fails("dead_reason", message)
    if replay is not None:
        passes = (
            f"CASE WHEN {replay_sql.is_before_cut(replay, side.side)} THEN true ELSE {passes} END"
        )
    return _with_reason(rows, side, plan).where(passes).select(rows.columns)


def _fails(reason: str, message: str) -> str:
    """A condition that is true without a reason. With one, the query fails with the message."""
    return f"CASE WHEN {reason} IS NULL THEN true ELSE raise_error({message}) END"


def without_failures(records: DataFrame, *, fails: bool) -> DataFrame:
    """The COLUMNS of a micro-batch. `fails`: the query fails at the first FAILURE."""
    if fails and FAILURE in records.columns:
        records = records.where(_fails(FAILURE, FAILURE))
    return records.select(*COLUMNS)


def written(
    rows: DataFrame, plan: JoinPlan, limits: TopicLimits, *, marks_failures: bool = False
) -> DataFrame:
    """The COLUMNS of results and dead letters, which are all counted. `marks_failures`: as for
    `records`."""
    letter = DEAD_LETTER if plan.dead_letter is not None else "null"
    size = result_bytes(plan)
    failed = f"{FAILED_FIELD} IS NOT NULL" if FAILED_FIELD in rows.columns else "false"
    no_key = "key IS NULL" if limits.requires_key else "false"
    rows = rows.selectExpr(
        "*",
        f"{letter} IS NOT NULL AS is_letter",
        f"CASE WHEN {letter} IS NOT NULL THEN NULL WHEN {failed} THEN '{EXPRESSION_FAILED}' "
        f"WHEN ({size}) > {limits.result_bytes_max} THEN '{names.VALUE_TOO_LARGE}' "
        f"WHEN {no_key} THEN '{names.NULL_KEY}' END AS reason",
        f"({size}) AS size",
        "cast(headers[0].value AS STRING) AS id",
    )
    rows = rows.observe(OUTPUT, *_result_counts())
    marked: list[str] = []
    if plan.fails_on_bad_records and marks_failures:
        failure = _failure(rows, plan, limits)
        marked = [f"CASE WHEN reason IS NOT NULL THEN {failure} END AS {FAILURE}"]
    elif plan.fails_on_bad_records:
        rows = rows.where(_fails("reason", _failure(rows, plan, limits)))
    if plan.dead_letter is None:
        return (rows if marked else rows.where("reason IS NULL")).selectExpr(
            f"{quoted(plan.output.topic)} AS topic",
            "cast(key AS BINARY) AS key",
            "cast(value AS BINARY) AS value",
            "headers",
            ID,
            f"{_optional(rows, TIMESTAMP, 'BIGINT')} AS {TIMESTAMP}",
            f"{_optional(rows, PARTITION, 'INT')} AS {PARTITION}",
            *marked,
        )
    return _with_letters(rows, plan, limits)


def _optional(rows: DataFrame, name: str, kind: str) -> str:
    """A column that only some specs add to results, or null."""
    return name if name in rows.columns else f"cast(null AS {kind})"


def _with_letters(rows: DataFrame, plan: JoinPlan, limits: TopicLimits) -> DataFrame:
    assert plan.dead_letter is not None
    is_result = "NOT is_letter AND reason IS NULL"
    headers = dead_letter_sql.result_headers(
        plan, ID_HEADER, message=_message(rows, plan, limits), size=_letter_size()
    )
    rows = rows.selectExpr(
        f"CASE WHEN {is_result} THEN {quoted(plan.output.topic)} "
        f"ELSE {quoted(plan.dead_letter.topic)} END AS topic",
        f"CASE WHEN is_letter THEN {DEAD_LETTER}.key "
        "WHEN reason IS NULL THEN cast(key AS BINARY) END AS key",
        f"CASE WHEN is_letter THEN {DEAD_LETTER}.value "
        "WHEN reason IS NULL THEN cast(value AS BINARY) END AS value",
        f"CASE WHEN is_letter THEN {_headers()} "
        f"WHEN reason IS NULL THEN headers ELSE {headers} END AS headers",
        f"CASE WHEN is_letter THEN {DEAD_LETTER}.side WHEN reason IS NOT NULL THEN 'output' END "
        "AS side",
        f"CASE WHEN is_letter THEN {DEAD_LETTER}.reason ELSE reason END AS reason",
        f"CASE WHEN is_letter THEN {DEAD_LETTER}.id WHEN reason IS NULL THEN id "
        f"ELSE concat(id, '/', reason) END AS {ID}",
        f"CASE WHEN {is_result} THEN {_optional(rows, TIMESTAMP, 'BIGINT')} END AS {TIMESTAMP}",
        f"CASE WHEN {is_result} THEN {_optional(rows, PARTITION, 'INT')} END AS {PARTITION}",
    )
    return rows.observe(WRITTEN, *_letter_counts()).select(*COLUMNS)


def _headers() -> str:
    """Headers of a dead letter. The message of a late row gets the watermark."""
    watermark = f"{DEAD_LETTER}.late_watermark"
    message = f"replace(cast(h.value AS STRING), {quoted(_WATERMARK)}, cast({watermark} AS STRING))"
    headers = (
        f"transform({DEAD_LETTER}.headers, h -> named_struct('key', h.key, 'value', "
        f"CASE WHEN h.key = '{names.MESSAGE}' THEN cast({message} AS BINARY) ELSE h.value END))"
    )
    return f"CASE WHEN {watermark} IS NULL THEN {DEAD_LETTER}.headers ELSE {headers} END"


def _letter_size() -> str:
    """Bytes of the value that a dead letter leaves out; 0: the result has no value."""
    return f"CASE WHEN reason = '{EXPRESSION_FAILED}' THEN 0 ELSE size END"


def _failure(rows: DataFrame, plan: JoinPlan, limits: TopicLimits) -> str:
    remedies = " ".join(
        f"WHEN {quoted(reason)} THEN {quoted(remedy)}" for reason, remedy in REMEDIES.items()
    )
    return as_sql(
        UNWRITTEN_RESULT,
        id="id",
        reason="reason",
        message=_message(rows, plan, limits),
        remedy=f"CASE reason {remedies} END",
    )


def _message(rows: DataFrame, plan: JoinPlan, limits: TopicLimits) -> str:
    unwritten = (
        f"CASE reason WHEN '{names.NULL_KEY}' THEN {quoted(without_key(plan.output.topic))} "
        f"ELSE {_too_large(plan, limits)} END"
    )
    if FAILED_FIELD not in rows.columns:
        return unwritten
    fields = " ".join(
        f"WHEN {quoted(field)} THEN {quoted(text)}" for field, text in texts(plan).items()
    )
    failed = (
        f"concat({FAILED_FIELD}, ' cannot be evaluated on this result: ', "
        f"coalesce(CASE {FAILED_FIELD} {fields} END, ''))"
    )
    return f"CASE WHEN {FAILED_FIELD} IS NOT NULL THEN {failed} ELSE {unwritten} END"


def _too_large(plan: JoinPlan, limits: TopicLimits) -> str:
    limit = f" bytes, and topic {plan.output.topic} accepts {limits.result_bytes_max}"
    return f"concat('the result has ', size, {quoted(limit)})"


def _result_counts() -> list[Column]:
    return [
        count_where("NOT is_letter").alias("records"),
        count_where(f"reason = '{names.VALUE_TOO_LARGE}'").alias("too_large"),
        count_where(f"reason = '{EXPRESSION_FAILED}'").alias("failed"),
        count_where(f"reason = '{names.NULL_KEY}'").alias("without_key"),
    ]


def _letter_counts() -> list[Column]:
    return [
        count_where(f"side = '{side}' AND reason = '{reason}'").alias(f"{side}/{reason}")
        for side, reasons in Totals().dead_letters.items()
        for reason in reasons
    ]
