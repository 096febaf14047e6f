"""The dataflow of the job, with the processor of the real-time engine in place of Spark's join."""

from pyspark.sql import DataFrame

from job.dataflow.dataflow import side_rows
from job.dataflow.results import output_records
from job.join_spec.sides import SIDES
from job.plan.plan import JoinPlan
from job.real_time.join import RowCounts, real_time_join
from job.spark.try_eval import register_try_eval


def in_processor(
    left: DataFrame,
    right: DataFrame,
    plan: JoinPlan,
    *,
    interval: bool = False,
    counts: RowCounts | None = None,
) -> DataFrame:
    """As `dataflow.dataflow`. `interval`: with the part of the processor for real time."""
    spark = left.sparkSession
    if plan.checks.any:
        register_try_eval(spark)
    rows = (
        side_rows(records, plan.side(side), plan, None)
        for side, records in zip(SIDES, (left, right), strict=True)
    )
    joined = real_time_join(
        *rows, plan, real_time=interval, counts=counts or RowCounts(spark, plan)
    )
    return output_records(joined, plan)
