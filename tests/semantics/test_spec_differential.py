"""What `validate` accepts runs, and has the values of a simulation: on generated SQL.

More: `make expression-differential N=5000`.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.errors import SpecError
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.spec.spec import spec_from_document
from tests.refusals import REFUSALS, Refusal
from tests.semantics import expression_differential, whole_specs
from tests.semantics.spark_analyzer import SparkAnalyzer
from tests.sql_worker import SQL

TEXTS = 450
SPECS = 200
"""At most. `validate` accepts about every tenth."""
ACCEPTED = 6


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


def test_spark_plans_the_dataflow_of_accepted_specs(analyzer: SparkAnalyzer) -> None:
    accepted = list(islice(accepted_specs(), ACCEPTED))

    assert len(accepted) == ACCEPTED
    for document, plan in accepted:
        assert not (failure := analyzer.dataflow_fails(plan)), (document, failure)


def accepted_specs() -> Iterator[tuple[dict[str, Any], JoinPlan]]:
    for document in islice(whole_specs.specs(seed=2), SPECS):
        with suppress(SpecError):
            yield document, join_plan(spec_from_document(document), SQL, state_partitions=2)
