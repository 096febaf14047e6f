"""State stores of a query that has ended: closed before the next query uses the JVM."""

from pathlib import Path

from pyspark.sql import SparkSession

from job.plan.tuning import FROZEN_CONF
from job.spark.executors import running_task_count
from job.spark.state_stores import close_state_stores
from tests.polling import wait_until

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_MEMORY = "org.apache.spark.sql.execution.streaming.state.RocksDBMemoryManager"


def run_stateful_query(spark: SparkSession, checkpoint: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 3).load()
    counts = rows.groupBy("value").count().writeStream.format("noop").outputMode("update")
    query = counts.option("checkpointLocation", str(checkpoint)).start()
    try:
        wait_until(lambda: query.lastProgress, 60, "a batch has run")
    finally:
        query.stop()


def open_stores(spark: SparkSession) -> int:
    assert spark._jvm is not None
    memory = getattr(spark._jvm, _MEMORY)
    return int(memory.getNumRocksDBInstances(True) + memory.getNumRocksDBInstances(False))


def test_state_stores_are_closed_and_another_query_opens_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    before = spark.conf.get(_PROVIDER)
    close_state_stores(spark)
    others = open_stores(spark)  # of readers in other tests, which are not in StateStore
    spark.conf.set(_PROVIDER, FROZEN_CONF[_PROVIDER])
    try:
        run_stateful_query(spark, tmp_path / "first")
        wait_until(lambda: running_task_count(spark) == 0, 60, "no task runs")
        assert open_stores(spark) > others

        close_state_stores(spark)
        assert others == open_stores(spark)

        run_stateful_query(spark, tmp_path / "second")
        close_state_stores(spark)
    finally:
        assert before is not None
        spark.conf.set(_PROVIDER, before)
