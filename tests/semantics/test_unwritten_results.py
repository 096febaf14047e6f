"""Results with a null key: a compacted output topic would refuse them."""

from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from job.dataflow.results import output_records
from job.dataflow.written import TopicLimits, written
from job.dead_letters.headers import dead_letter
from job.plan.plan import JoinPlan
from job.protocol.progress import results_written
from job.spark.observed_metrics import execution_metrics
from job.spark.try_eval import register_try_eval
from job.writer.transactions import COLUMNS
from tests.unit.specs import plan

COMPACTED = TopicLimits(600, 1_000_000, requires_key=True)
DEAD_LETTERS = {"on_bad_record": None, "dead_letter": {"topic": "dead"}}
COUNTS = {"records": 4, "too_large": 1, "failed": 1, "without_key": 1}
ID = "impressions/0/1|clicks/0/8"


def planned(**changes: Any) -> JoinPlan:
    """`rows` are one result with a key and three without: one that can be written otherwise, one
    that is too large, and one on which an expression fails."""
    return plan(
        output__key="CASE WHEN left.ad_id = 0 THEN 'x' END",
        output__columns={
            "c": "left.campaign",
            "n": "if(left.ad_id = 3, cast(left.campaign AS INT), 1)",
        },
        **changes,
    )


def rows(spark: SparkSession, made: JoinPlan) -> DataFrame:
    register_try_eval(spark)
    pairs = spark.range(4).selectExpr(
        "id AS left_ad_id",
        "CASE id WHEN 2 THEN repeat('9', 500) WHEN 3 THEN 'text' ELSE '7' END AS left_campaign",
        "id AS position_left",
        "id + 7 AS position_right",
    )
    return output_records(pairs, made)


def metrics(frame: DataFrame, name: str) -> Mapping[str, Any]:
    return execution_metrics(frame._jdf.queryExecution(), name)


def counts(frame: DataFrame) -> dict[str, int]:
    return {name: metrics(frame, "output")[name] for name in COUNTS}


def test_result_becomes_a_dead_letter(spark: SparkSession) -> None:
    made = planned(**DEAD_LETTERS)
    frame = written(rows(spark, made), made, COMPACTED)
    records = {row.id: row for row in frame.collect()}

    keyless = records[f"{ID}/null_key"]
    letter = dead_letter("", None, None, [(h.key, h.value) for h in keyless.headers])
    assert letter is not None
    assert ("dead", "output", "null_key", 1) == (
        keyless.topic,
        letter.side,
        letter.reason,
        letter.offset,
    )
    assert "topic attributed is compacted: it accepts no record without a key" in letter.message
    assert ["x"] == [bytes(row.key).decode() for row in records.values() if row.key is not None]
    assert COUNTS == counts(frame)
    assert 1 == results_written(metrics(frame, "output"))
    assert 1 == metrics(frame, "written")["output/null_key"]


def test_result_is_dropped_or_fails_the_query_without_a_dead_letter_topic(
    spark: SparkSession,
) -> None:
    made = planned()
    dropped = written(rows(spark, made), made, COMPACTED)
    assert list(COLUMNS) == dropped.columns
    assert [("attributed", b"x")] == [(row.topic, bytes(row.key)) for row in dropped.collect()]
    assert COUNTS == counts(dropped)

    failing = planned(on_bad_record="fail")
    keyless = rows(spark, failing).where('value LIKE \'%"c":"7"%\'')
    with pytest.raises(PySparkException, match=r"\(null_key\): output.key is null.* change output"):
        written(keyless, failing, COMPACTED).collect()
    large = rows(spark, failing).where("value LIKE '%9999%'")
    with pytest.raises(PySparkException, match=r"\(value_too_large\): .*attributed accepts 600"):
        written(large, failing, COMPACTED).collect()


def test_topic_that_is_not_compacted_gets_results_without_a_key(spark: SparkSession) -> None:
    made, limits = planned(), TopicLimits(600, 0)

    assert 2 == written(rows(spark, made), made, limits).count()
