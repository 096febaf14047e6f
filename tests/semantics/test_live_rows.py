"""The running interval of real-time mode, before Spark has recorded an execution."""

from typing import Any

from pyspark.sql import SparkSession

from job.spark.live_rows import LiveInterval


def test_application_without_an_execution_has_no_running_interval(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    empty = jvm.org.apache.spark.util.kvstore.InMemoryStore()
    interval: Any = LiveInterval.__new__(LiveInterval)
    interval._store = jvm.org.apache.spark.sql.execution.ui.SQLAppStatusStore(
        empty, jvm.scala.Option.empty()
    )

    assert interval._id_of(execution=None) is None
