"""From a JoinPlan to the records of its query: results, and maybe dead letters between them. Read
top-down: each step is below its caller."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession

from job.dataflow.replayed import without_kept_back, without_late_rows
from job.dataflow.results import output_records
from job.dataflow.sides import side_rows
from job.dataflow.written import TopicLimits, written
from job.join.join import Join
from job.join.processor import DEAD_LETTER
from job.kafka.security import KafkaAccess, spark_options
from job.plan.plan import JoinPlan
from job.plan.real_time import source_options
from job.plan.result_checks import is_unmatched
from job.plan.side_plan import SidePlan
from job.replay.replay import Replay
from job.spark.executors import core_count
from job.spark.try_eval import register_try_eval
from job.spec.sides import SIDES

if TYPE_CHECKING:
    from job.formats.registry import RegistryAccess


def kafka_dataflow(
    spark: SparkSession,
    plan: JoinPlan,
    access: KafkaAccess,
    limits: TopicLimits,
    join: Join,
    replay: Replay | None = None,
    *,
    in_intervals: bool = False,
) -> DataFrame:
    """The COLUMNS of records of `plan` (writer/transactions.py), read from its topics. In
    micro-batches after a change, maybe also FAILURE.

    `replay`: the replay after a change. None: the query replaces no other query.
    `in_intervals`: read without a limit and by one task for each partition.

    In micro-batches each side has as many tasks as there are cores, so a task may read several
    partitions. Each task generates code before its first record, only to find it in the compilation
    cache: with one task per partition that is a third of the tasks' CPU time in small batches.
    """
    options: Mapping[str, str | None] = {}
    if in_intervals:
        assert plan.real_time is not None
        waits = source_options(plan.output.delivery, plan.real_time)
        options = {"maxOffsetsPerTrigger": None, **waits}
    records = [
        kafka_records(spark, _reading(plan.side(side), plan, join, options), access)
        for side in SIDES
    ]
    if not in_intervals:
        tasks = max(plan.state_partitions, core_count(spark))
        records = [of_side.coalesce(tasks) for of_side in records]
    left, right = records
    results = dataflow(left, right, plan, join, access.registry, replay, limits)
    marks_failures = replay is not None and not in_intervals
    return written(results, plan, limits, marks_failures=marks_failures, counted=join.counted)


def _reading(
    side: SidePlan, plan: JoinPlan, join: Join, options: Mapping[str, str | None]
) -> SidePlan:
    """The side with other options of its source. None removes an option."""
    changed = {**side.source_options, **options}
    return replace(
        side,
        source_options={name: value for name, value in changed.items() if value is not None},
        reads_headers=side.reads_headers or _passes_letters(plan, join),
    )


def _passes_letters(plan: JoinPlan, join: Join) -> bool:
    return plan.dead_letter is not None and join.passes_dead_letters


def kafka_records(spark: SparkSession, side: SidePlan, access: KafkaAccess) -> DataFrame:
    options = {**side.source_options, **spark_options(access)}
    reader = spark.readStream.format("kafka").options(**options)
    return reader.option("includeHeaders", side.reads_headers).name(side.side).load()


def dataflow(
    left_records: DataFrame,
    right_records: DataFrame,
    plan: JoinPlan,
    join: Join,
    registry: "RegistryAccess | None" = None,
    replay: Replay | None = None,
    limits: TopicLimits | None = None,
) -> DataFrame:
    """The results, from two streams with the columns of Spark's Kafka source: rows of
    `output_records`. `replay`: as for `kafka_dataflow`. `limits` None: without dead letters."""
    if plan.checks.any:
        register_try_eval(left_records.sparkSession)
    letter_bytes_max = None
    if limits is not None and _passes_letters(plan, join):
        letter_bytes_max = limits.dead_letter_bytes_max
    left, right = (
        side_rows(
            *(records, plan.side(side), plan, registry, replay, letter_bytes_max),
            live=join.live,
            counted=join.counted,
        )
        for side, records in zip(SIDES, (left_records, right_records), strict=True)
    )
    if replay is not None:
        left, right = without_late_rows(left, right, plan, replay)
    rows = join.joined(left, right, plan)
    if plan.join_type.anti_side is not None:
        rows = rows.where(is_unmatched(plan, plan.join_type.anti_side))
    if replay is not None:
        rows = without_kept_back(rows, plan, replay)
    passed_on = None if letter_bytes_max is None else DEAD_LETTER
    return output_records(rows, plan, passed_on, join.counted)
