"""`validate` accepts what Spark accepts: some hundred generated texts, the same every time.

More: `make spec-differential N=5000`.
"""

import pytest
from pyspark.sql import SparkSession

from job.errors import SpecError
from job.join_spec.expressions import SIDES, Scope
from job.join_spec.value_schema import value_schema
from tests.semantics import spec_differential
from tests.semantics.spec_differential import DDL, Result, SparkJudge, compare

COUNT = 400

# Each was accepted once, and failed in Spark.
ONCE_ACCEPTED = [
    ("filter", "left.s"), ("filter", "left.n"), ("filter", "null"),
    ("filter", "coalesce(left.s, 'x')"),
    ("filter", "interval 1 day"), ("condition", "left.s"), ("condition", "left.b and left.n"),
    ("column", "left.ai = 1"), ("column", "left.m = left.m"), ("column", "not left.n"),
    ("column", "left.n and true"), ("column", "size(left.n)"), ("column", "left.b[0]"),
    ("column", "left.st.nope"), ("column", "left.st.w.g.z"), ("column", "concat(left.ai, left.s)"),
    ("column", "substring(left.s)"), ("column", "left.n in ()"), ("column", "date'2026-02-30'"),
    ("column", "timestamp'abc'"), ("column", "cast('abc' as int)"), ("column", "1/0"),
    ("column", "interval 1 fortnight"), ("column", "1e400"), ("column", "1" * 44),
    ("column", "foo.abs(left.n)"), ("column", "cast(left.s as geography)"),
    ("column", "cast(left.s as json)"), ("column", "cast(left.s as bigint unsigned)"),
]  # fmt: skip

SCHEMAS = [
    "DECIMAL(50,2)", "DECIMAL(5,10)", "DECIMAL(5,2,1)", "DECIMAL(*)", "BOOLEAN(1)", "DOUBLE(1,2)",
    "BINARY(5)", "ARRAY", "MAP", "STRUCT", "MAP<STRING>", "ARRAY<INT, INT>", "TINYINT UNSIGNED",
    "JSON", "STRUCT<x>", "DECIMAL(38,38)", "ARRAY<ARRAY<INT>>", "MAP<STRING, STRUCT<x: INT>>",
    "STRUCT<`x y`: INT>", "LONG", "DECIMAL(10)", "INT COMMENT 'x''y'",
]  # fmt: skip


@pytest.fixture(scope="module")
def judge(spark: SparkSession) -> SparkJudge:
    spec_differential.with_plan_conf(spark)
    return SparkJudge(spark)


def test_generated_texts_are_accepted_where_spark_accepts_them(spark: SparkSession) -> None:
    result = spec_differential.run(spark, COUNT, seed=1)

    assert [] == result.differences
    assert result.counts["accepted by both"] > COUNT / 10
    assert result.counts["refused by both"] > COUNT / 10


def test_texts_that_failed_in_spark_are_refused(judge: SparkJudge) -> None:
    result = Result()
    scope = Scope(dict.fromkeys(SIDES, value_schema(DDL, "schema")))
    for kind, text in ONCE_ACCEPTED:
        compare(judge, scope, kind, text, result)

    assert ([], len(ONCE_ACCEPTED)) == (result.differences, result.counts["refused by both"])


@pytest.mark.parametrize("kind", SCHEMAS)
def test_schemas_are_accepted_where_spark_accepts_them(spark: SparkSession, kind: str) -> None:
    try:
        value_schema(f"a {kind}", "schema")
    except SpecError:
        with pytest.raises(Exception, match=r"\[|error"):
            spark.createDataFrame([], f"a {kind}")
    else:
        assert spark.createDataFrame([], f"a {kind}").columns == ["a"]
