"""The state of Spark's stream-stream join as a DataFrame, read from the checkpoint.

Uses Spark's state data source with one partition, so that one task reads it and the query keeps the
other cores. The source loads its own copy of the state; it does not touch that of a running query.
"""

from datetime import timedelta

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from job.checkpoint.state_names import decoded
from job.errors import CheckpointError
from job.plan.plan import JoinPlan, window_end_column
from job.plan.position import position_column
from job.plan.side_plan import SidePlan
from job.spec.expressions import column_name
from job.spec.join_conditions import JoinOperator
from job.spec.sides import Side

EVENT_TIME = "__event_time_ms"
"""BIGINT, epoch milliseconds. Null: the join does not keep the event time in state."""
POSITION = "__position"
"""BIGINT: partition and offset of the record. Null: the join does not keep it, as on the right side
of a left_semi join, or the left side of a right_semi join."""
MATCHED = "__matched"
"""BOOLEAN. Null: the join does not keep whether the row has matched."""
LEAVES_AFTER = "__leaves_after_ms"
"""BIGINT, epoch milliseconds: the row leaves state once the watermark is later. Null: never."""
STATE_PARTITION = "__state_partition"
"""INT."""

# Name of the store with the rows of a side, of state format version 4. Its values end with a flag
# `matched`.
_STORE = "{side}-keyWithTsToValues"
# Class of the data source (job/join/StateSource.java).
_SOURCE = "streamjoin.StateSource"
_MILLISECOND = timedelta(milliseconds=1)
_IS_ALIVE = "expires_at > coalesce(evicted, expires_at - 1)"


def join_state(
    spark: SparkSession, plan: JoinPlan, location: str, side: Side, batch_id: int
) -> DataFrame:
    """Rows of a side after a batch: the columns in state, then the five columns above.

    `location`: Spark's checkpointLocation. Raises CheckpointError if the state cannot be read.
    """
    side_plan = plan.side(side)
    if plan.table_side not in {None, side} and not plan.stream_waits:
        state = _no_rows(spark, side_plan)
    else:
        state = _load(spark, plan, location, side, batch_id)
    hidden = {position_column(side), window_end_column(side), "matched", "partition_id"}
    nothing = F.lit(None).cast("bigint")
    # Spark keeps a column only if the join or the output uses it.
    event_time, position = nothing, nothing
    if side_plan.event_time_column in state.columns:
        event_time = F.unix_millis(F.col(f"`{side_plan.event_time_column}`"))
    if position_column(side) in state.columns:
        position = F.col(position_column(side))
    return state.select(
        *(F.col(f"`{name}`") for name in state.columns if name not in hidden),
        event_time.alias(EVENT_TIME),
        position.alias(POSITION),
        (F.col("matched") if plan.marks_matched(side) else F.lit(None).cast("boolean")).alias(
            MATCHED
        ),
        _leaves_after(plan, side_plan).alias(LEAVES_AFTER),
        F.col("partition_id").alias(STATE_PARTITION),
    )


def _no_rows(spark: SparkSession, side: SidePlan) -> DataFrame:
    """Of a stream that is joined with a table, and not stored."""
    columns = {column_name(side.side, each.name): str(each.type) for each in side.kept_columns}
    columns |= {position_column(side.side): "BIGINT", "matched": "BOOLEAN", "partition_id": "INT"}
    nulls = (f"cast(null AS {kind}) AS `{name}`" for name, kind in columns.items())
    return spark.range(0).selectExpr(*nulls)


def stored_ids(
    spark: SparkSession, plan: JoinPlan, location: str, side: Side, batch_id: int
) -> DataFrame:
    """The ids by which a side drops duplicates that are in state after a batch."""
    name = f"{plan.input_of(side)}_ids"
    entries = _read(spark, location, batch_id, "stateVarName", name).coalesce(1)
    ids = entries.select("list_element.expires_at", "partition_id")
    return ids.join(
        _evicted(spark, location, batch_id).hint("shuffle_hash"), "partition_id", "left"
    ).where(_IS_ALIVE)


def _load(
    spark: SparkSession, plan: JoinPlan, location: str, side: Side, batch_id: int
) -> DataFrame:
    if plan.operator is JoinOperator.STREAMJOIN:
        return _rows_of_processor(spark, plan, location, side, batch_id)
    store = _STORE.format(side=plan.input_of(side))
    state = _read(spark, location, batch_id, "storeName", store)
    return state.select("value.*", "partition_id").coalesce(1)


def _rows_of_processor(
    spark: SparkSession, plan: JoinPlan, location: str, side: Side, batch_id: int
) -> DataFrame:
    """The rows in the lists of job/join/SlotStore.java that have not expired."""
    entries = _read(spark, location, batch_id, "stateVarName", plan.input_of(side)).coalesce(1)
    rows = (
        entries.select("key", "list_element.*", "partition_id")
        .groupBy("partition_id", "key", "position", "event_time", "expires_at")
        .agg(
            F.first("row", ignorenulls=True).alias("row"),
            F.max("matched").alias("matched"),
            F.expr("bool_or(row IS NULL AND NOT matched)").alias("removed"),
        )
        .where("NOT removed")
        # Not broadcast: Spark reads a broadcast table on another thread, which a cancellation
        # interrupts.
        .join(_evicted(spark, location, batch_id).hint("shuffle_hash"), "partition_id", "left")
    )
    if plan.side(side).table is None:
        rows = rows.where(_IS_ALIVE)
    if plan.join_type.semi_side is not None:
        rows = rows.where("NOT matched")  # They have been emitted, and match no other row.
    rows = rows.withColumn("row", F.col("row").cast(decoded(rows.schema["row"].dataType)))
    return rows.select("row.*", "matched", "partition_id")


def _evicted(spark: SparkSession, location: str, batch_id: int) -> DataFrame:
    """The watermark of the last eviction of each partition: all rows that had expired then are
    evicted, also those in lists that have other rows."""
    clocks = _read(spark, location, batch_id, "stateVarName", "clock").coalesce(1)
    return clocks.select("partition_id", F.col("list_element.value").alias("evicted"))


def _read(spark: SparkSession, location: str, batch_id: int, option: str, name: str) -> DataFrame:
    try:
        return (
            spark.read.format(_SOURCE)
            .option("path", location)
            .option(option, name)
            .option("batchId", batch_id)
            .load()
        )
    except PySparkException as error:
        raise CheckpointError(
            f"the state at {location} cannot be read as of batch {batch_id}: "
            f"{str(error).splitlines()[0]}"
        ) from error


def _leaves_after(plan: JoinPlan, side: SidePlan) -> Column:
    if plan.window is not None:
        return F.unix_millis(F.col(window_end_column(side.side))) - 1
    if side.retention is None:
        return F.lit(None).cast("bigint")
    kept_ms = side.retention // _MILLISECOND
    if plan.event_time_in_key:
        kept_ms -= 1
    return F.unix_millis(F.col(f"`{side.event_time_column}`")) + F.lit(kept_ms)
