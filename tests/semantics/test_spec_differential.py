"""`validate` accepts what Spark accepts, on some hundred generated texts with a fixed seed.

More: `make spec-differential N=5000`.
"""

from itertools import islice

import pytest
from pyspark.sql import SparkSession

from job.join_spec.expressions import Scope
from job.join_spec.sides import SIDES
from job.join_spec.value_schema import value_schema
from tests.constants import COMPUTED, FILTERS, FILTERS_HIDDEN, HIDDEN
from tests.refusals import REFUSALS, Refusal
from tests.semantics import schema_fuzz, spec_differential, whole_specs
from tests.semantics.comparison import Result
from tests.semantics.spark_analyzer import DDL, SparkAnalyzer, set_plan_conf
from tests.semantics.spec_differential import compare

COUNT = 150

# Accepted by earlier versions, refused by Spark.
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
    ("column", "(1/0 = left.n) or true"), ("column", "coalesce(null, substr(left.s, 'abc'))"),
    ("column", "greatest(null, left.i + cast('q' as int))"),
    *(("column", text) for texts in COMPUTED.values() for text in texts),
    *(("filter", text) for text in FILTERS),
]  # fmt: skip

# Refused by earlier versions, accepted by Spark.
ONCE_REFUSED = [
    ("column", "null < substr(left.s, base64('('))"),
    ("condition", "date_format(left.t, 'yyyy') and true"),
    ("condition", "(left.s and left.b) and left.u"), ("filter", "left.b and (left.s)"),
    ("column", "case when left.b then cast('abc' as int) end"),
    ("column", "case null when cast('q' as int) then 1 end"),
    *(("column", text) for texts in HIDDEN.values() for text in texts),
    *(("filter", text) for text in FILTERS_HIDDEN),
]  # fmt: skip

SCHEMAS = 250
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


def test_texts_that_failed_in_spark_are_refused(analyzer: SparkAnalyzer) -> None:
    result = Result()
    scope = Scope(dict.fromkeys(SIDES, value_schema(DDL, "schema")))
    for kind, text in ONCE_ACCEPTED:
        compare(analyzer, scope, kind, text, result)

    assert ([], len(ONCE_ACCEPTED)) == (result.differences, result.counts["refused by both"])


def test_texts_that_spark_accepts_are_accepted(analyzer: SparkAnalyzer) -> None:
    result = Result()
    scope = Scope(dict.fromkeys(SIDES, value_schema(DDL, "schema")))
    for kind, text in ONCE_REFUSED:
        compare(analyzer, scope, kind, text, result)

    assert ([], len(ONCE_REFUSED)) == (result.differences, result.counts["accepted by both"])


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.example[:40])
def test_spark_accepts_what_is_refused_by_name(analyzer: SparkAnalyzer, refusal: Refusal) -> None:
    match refusal.kind:
        case "column":
            assert analyzer.as_written("column", refusal.example).type is not None
        case "schema":
            assert not isinstance(schema_fuzz.schema_of_spark(analyzer.spark, refusal.example), str)
        case _:
            assert analyzer.joins_on(*refusal.example.split(" = "))


def test_schemas_are_accepted_where_spark_accepts_them(spark: SparkSession) -> None:
    result = Result()
    for text in islice(schema_fuzz.schemas(seed=1), SCHEMAS):
        schema_fuzz.compare_schema(spark, text, result)

    assert [] == result.differences
    assert result.counts["schemas accepted by both"] > SCHEMAS / 10
    assert result.counts["schemas refused by both"] > SCHEMAS / 10


def test_dataflow_of_accepted_specs_is_accepted_by_spark(analyzer: SparkAnalyzer) -> None:
    result = Result()
    for document in islice(whole_specs.specs(seed=2), SPECS):
        whole_specs.compare_spec(analyzer, document, result)

    assert [] == result.differences
    assert result.counts["specs accepted by both"] > SPECS / 10
    assert result.counts["fields of specs refused by both"] > SPECS / 10
