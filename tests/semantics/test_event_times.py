"""The newest event times of partitions that a batch observes."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from job.dataflow.sides import _NEWEST_OBSERVED, _event_times
from job.event_time.partitions import OBSERVED_PARTITIONS_MAX
from job.plan.plan import JoinPlan
from tests.unit.specs import plan

T0 = 1_700_000_000_000


def reading(partitions: int) -> JoinPlan:
    return plan().reading({"left": (partitions,), "right": (1,)})


def observed(frame: DataFrame, made: JoinPlan) -> dict[int, int]:
    """Newest event time by partition, in milliseconds after T0."""
    [row] = frame.agg(F.expr(_event_times(made.left)).alias("times")).collect()
    newest: dict[int, int] = {}
    for entry in row.times:
        if entry.ms is not None:
            newest[entry.partition] = max(entry.ms - T0, newest.get(entry.partition, 0))
    return newest


def records(spark: SparkSession, *rows: tuple[int, int, int | None]) -> DataFrame:
    """Records of (partition, offset, event time after T0). Without event time: a bad record."""
    frame = spark.createDataFrame(list(rows), "partition INT, offset BIGINT, ms BIGINT")
    return frame.selectExpr(
        "partition AS left_record_partition",
        "offset AS left_record_offset",
        f"timestamp_millis({T0} + ms) AS left_shown_at",
    )


def test_partition_that_was_added_after_the_start_has_an_event_time_from_its_first_record(
    spark: SparkSession,
) -> None:
    made = reading(2)
    for offset in range(8):  # the sample has one record in 64
        frame = records(spark, (0, 7, 70), (2, offset, 5), (2, offset + 1, 4), (3, 0, None))
        assert {0: 70, 2: 5} == observed(frame, made)
    assert {} == observed(records(spark, (2, 0, None)), made)


def test_each_of_many_partitions_has_an_event_time_after_a_small_batch(spark: SparkSession) -> None:
    made = reading(OBSERVED_PARTITIONS_MAX + 1)
    rows = [(number, number, 100 - number) for number in range(_NEWEST_OBSERVED)]

    assert {number: 100 - number for number, *_ in rows} == observed(records(spark, *rows), made)
