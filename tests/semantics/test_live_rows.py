"""Figures of the running interval of real-time mode."""

from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from job.join.processor import RowCounts
from job.spark.live_rows import LiveInterval
from tests.unit.specs import plan


def test_application_without_an_execution_has_no_running_interval(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    empty = jvm.org.apache.spark.util.kvstore.InMemoryStore()
    interval: Any = LiveInterval.__new__(LiveInterval)
    interval._store = jvm.org.apache.spark.sql.execution.ui.SQLAppStatusStore(
        empty, jvm.scala.Option.empty()
    )

    assert interval._id_of(execution=None) is None


def test_rows_are_counted_by_each_condition_that_they_meet(spark: SparkSession) -> None:
    tally = RowCounts(spark, plan(engine="real_time")).java.tally("numbers", 3)
    met = F.expr("1L | CASE WHEN id % 2 = 0 THEN 4L ELSE 0L END")
    numbers = spark.range(10).repartition(2)

    assert 10 == numbers.where(Column(tally.counted(met._jc))).count()

    assert [10, 0, 5] == list(tally.value())
