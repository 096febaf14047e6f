"""A batch that Spark begins after the query was stopped."""

import threading
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from job.jvm_class import jvm_class
from job.spark.between_batches import prevent_next_batch
from job.spark.stopped_query import is_interruption, raise_if_interrupted
from job.spark.stream_execution import stream_execution
from tests.polling import wait_until

SECONDS = 60


def test_batch_that_begins_after_the_stop_runs_no_task_and_runs_at_the_next_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    stopped, written = threading.Event(), tmp_path / "written"
    queries: list[Any] = []

    def deliver(batch: DataFrame, _: int) -> None:
        if not stopped.is_set():
            wait_until(lambda: queries, SECONDS, "the query is known")
            stopped.set()
            # As Spark does in runBatch, once the query is stopped.
            prevent_next_batch(queries[0])
            stream_execution(queries[0]).queryExecutionThread().interrupt()
            raise_if_interrupted(spark)
        batch.write.mode("append").json(str(written))

    def start() -> Any:
        source = spark.readStream.schema("n INT").json(str(tmp_path / "in"))
        checkpoint = str(tmp_path / "checkpoint")
        return (
            source.writeStream.option("checkpointLocation", checkpoint)
            .foreachBatch(deliver)
            .start()
        )

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"n": 7}')
    queries.append(start())
    assert queries[0].awaitTermination(SECONDS)
    assert queries[0].exception() is None
    assert not written.exists()

    again = start()
    again.processAllAvailable()
    again.stop()
    assert [7] == [row.n for row in spark.read.json(str(written)).collect()]


def test_interruption_is_not_another_failure(spark: SparkSession) -> None:
    thread = jvm_class(spark._jvm, "java.lang.Thread")
    thread.currentThread().interrupt()
    with pytest.raises(Py4JJavaError) as interrupted:
        thread.sleep(0)
    with pytest.raises(Py4JJavaError) as failed:
        jvm_class(spark._jvm, "java.util.Optional").empty().get()
    assert is_interruption(interrupted.value)
    assert not is_interruption(failed.value)
