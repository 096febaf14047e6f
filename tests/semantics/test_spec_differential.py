"""What `validate` accepts runs, and has the values of a simulation: on generated SQL.

More: `make expression-differential N=5000`.
"""

import pytest
from pyspark.sql import SparkSession

from tests.refusals import REFUSALS, Refusal
from tests.semantics import expression_differential
from tests.semantics.spark_analyzer import SparkAnalyzer

TEXTS = 450


@pytest.fixture(scope="module")
def analyzer(spark: SparkSession) -> SparkAnalyzer:
    return SparkAnalyzer(spark)


def test_generated_expressions_are_in_a_simulation_as_in_spark(spark: SparkSession) -> None:
    result = expression_differential.run(spark, TEXTS, seed=1)

    assert [] == result.differences
    assert result.counts["compared"] > TEXTS / 5
    assert result.counts["failures"] > result.counts["compared"] / 5


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.example[:40])
def test_spark_accepts_what_is_refused_by_name(analyzer: SparkAnalyzer, refusal: Refusal) -> None:
    match refusal.kind:
        case "column":
            assert analyzer.accepts(refusal.example)
        case "schema":
            assert analyzer.spark.createDataFrame([], refusal.example).columns
        case _:
            assert analyzer.joins_on(*refusal.example.split(" = "))
