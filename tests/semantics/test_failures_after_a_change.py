"""Results that cannot be written, with `on_bad_record: fail`, in micro-batches after a change."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from job.dataflow.written import TopicLimits, without_failures, written
from job.writer.transactions import COLUMNS
from tests.unit.specs import plan

_RECORD = "key BINARY, value BINARY, headers ARRAY<STRUCT<key STRING, value BINARY>>"


def too_large(spark: SparkSession) -> DataFrame:
    results = spark.createDataFrame([(b"7", b"value", [("streamjoin-id", b"a|b")])], _RECORD)
    made = plan(on_bad_record="fail", engine="real_time")
    return written(results, made, TopicLimits(1, 0), marks_failures=True)


def test_result_that_cannot_be_written_fails_the_query_if_it_is_delivered(
    spark: SparkSession,
) -> None:
    with pytest.raises(PySparkException, match=r"the result has \d+ bytes"):
        without_failures(too_large(spark), fails=True).collect()


def test_result_that_is_kept_back_does_not_fail_the_query(spark: SparkSession) -> None:
    kept_back = too_large(spark).where("spark_partition_id() < 0")
    records = without_failures(kept_back, fails=False)
    assert (list(COLUMNS), []) == (records.columns, records.collect())
