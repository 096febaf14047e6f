"""The dataflow of a query that replaces another one (job/replay/replay.py)."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from job.dataflow import replay_sql
from job.plan.plan import JoinPlan
from job.replay.replay import Replay
from job.spark.in_time_zone import register_in_time_zone

KEPT_BACK = "kept_back"
"""Name of the observed metrics of results that are kept back after the replay."""


def without_late_rows(
    left: DataFrame, right: DataFrame, plan: JoinPlan, replay: Replay
) -> tuple[DataFrame, DataFrame]:
    """The rows without those that the old query has dropped as late."""
    return (
        left.where(replay_sql.was_not_late(replay, plan, "left")),
        right.where(replay_sql.was_not_late(replay, plan, "right")),
    )


def without_kept_back(rows: DataFrame, plan: JoinPlan, replay: Replay) -> DataFrame:
    """The results without those that the old query has emitted as unmatched. These are counted."""
    kept_back = replay_sql.kept_back(replay, plan)
    if kept_back is None:
        return rows
    for expired in replay.expired:
        register_in_time_zone(rows.sparkSession, expired.window_time_zone)
    counted = F.expr(f"count(CASE WHEN {kept_back} THEN 1 END)").alias("results")
    return rows.observe(KEPT_BACK, counted).where(f"NOT ({kept_back})")
