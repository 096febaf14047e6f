"""`validate` accepts what Spark accepts, on some hundred generated texts with a fixed seed.

More: `make spec-differential N=5000`.
"""

from itertools import islice

import pytest
from pyspark.sql import SparkSession

from tests.refusals import REFUSALS, Refusal
from tests.semantics import spec_differential, whole_specs
from tests.semantics.comparison import Result
from tests.semantics.spark_analyzer import SparkAnalyzer, set_plan_conf

COUNT = 150

SPECS = 12


@pytest.fixture(scope="module")
def analyzer(spark: SparkSession) -> SparkAnalyzer:
    set_plan_conf(spark)
    return SparkAnalyzer(spark)


def test_generated_texts_are_accepted_where_spark_accepts_them(spark: SparkSession) -> None:
    result = spec_differential.run(spark, COUNT, seed=1)

    assert [] == result.differences
    assert result.counts["accepted by both"] > COUNT / 10
    assert result.counts["refused by both"] > COUNT / 10


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.example[:40])
def test_spark_accepts_what_is_refused_by_name(analyzer: SparkAnalyzer, refusal: Refusal) -> None:
    match refusal.kind:
        case "column":
            assert analyzer.as_written("column", refusal.example).type is not None
        case "schema":
            assert analyzer.spark.createDataFrame([], refusal.example).columns
        case _:
            assert analyzer.joins_on(*refusal.example.split(" = "))


def test_dataflow_of_accepted_specs_is_accepted_by_spark(analyzer: SparkAnalyzer) -> None:
    result = Result()
    for document in islice(whole_specs.specs(seed=2), SPECS):
        whole_specs.compare_spec(analyzer, document, result)

    assert [] == result.differences
    assert result.counts["specs accepted by both"] > SPECS / 10
    assert result.counts["fields of specs refused by both"] > SPECS / 10
