"""Expressions that fail on a record, on Spark: private API, and code generation.

The session of these tests interprets expressions. The job generates code, where Spark evaluates
what two expressions have in common before both: outside of a try_eval, unless it is guarded.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.dataflow.results import output_records
from job.dataflow.written import TopicLimits, written
from job.plan.plan import JoinPlan
from job.spark.try_eval import register_try_eval
from tests.semantics import differential
from tests.semantics.join_cases import Case, Data, Idle
from tests.semantics.spark_runner import conf
from tests.semantics.test_differential import case, row
from tests.unit.specs import plan


@pytest.fixture
def generated_code(spark: SparkSession) -> Iterator[None]:
    """As in the job: Spark compiles expressions."""
    settings = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    with conf(spark, settings):
        yield


def test_try_eval_gives_null_for_a_failure_alone(spark: SparkSession) -> None:
    register_try_eval(spark)
    rows = spark.createDataFrame([("1",), ("x",), (None,)], "v STRING")

    found = rows.selectExpr("v", "try_eval(struct(cast(v AS INT) AS i)) AS tried").collect()

    assert [("1", (1,)), ("x", None), (None, (None,))] == [(v, tried) for v, tried in found]


FAILING: dict[str, dict[str, Any]] = {
    "key": {"key": ["cast(s as int)", "cast(s as int) + 1"]},
    "filter": {"filter": "cast(s as int) > 0 and cast(s as int) < 9"},
    "condition of a side": {"condition": "cast(left.s as int) > 6 and cast(right.s as int) > 6"},
    "condition": {"condition": "cast(left.s as int) + right.v > 7 and 2 / right.v > 0"},
    "columns": {"columns": {"a": "cast(left.s as int)", "b": "cast(left.s as int) + right.v"}},
    "output filter": {"output_filter": "cast(left.s as int) > 6 and left.v / left.v > 0"},
    "output key": {"output_key": "6 div left.v"},
}
STEPS = (
    Data(
        [
            row(1, 0, 1, s="7"),
            row(1, 0, 2, s="x"),
            row(2, 0, 0, s="7"),
            row(3, 1, 1, s=None),
            row(4, 0, 0, s="z"),
        ],
        [row(1, 1, 1, s="7"), row(1, 1, 0, s="7"), row(2, 1, 3, s="y"), row(3, 1, 1, s="8")],
    ),
    Data([row(9, 30_000, 1, s="1")], [row(9, 30_000, 1, s="1")]),
    Idle(),
    Data([row(9, 60_000, 1, s="2")], [row(9, 60_000, 1, s="2")]),
)


def failing_case(name: str, join_type: str) -> Case:
    made = case(join_type, steps=STEPS)
    changes = FAILING[name]
    for side in ("left", "right"):
        made.spec[side] |= {"schema": "k INT, t TIMESTAMP, v INT, s STRING"}
        made.spec[side] |= {part: changes[part] for part in ("key", "filter") if part in changes}
    made.spec["join"] |= {"condition": changes["condition"]} if "condition" in changes else {}
    output = made.spec["output"]
    output["columns"] = changes.get("columns", {"lk": "left.k", "lv": "left.v"})
    if join_type == "left_anti":
        output["columns"] = {
            name: text for name, text in output["columns"].items() if "right" not in text
        }
    output |= {
        part[7:]: changes[part] for part in ("output_filter", "output_key") if part in changes
    }
    return made


@pytest.mark.usefixtures("generated_code")
@pytest.mark.parametrize("join_type", ["inner", "left_outer", "left_anti"])
@pytest.mark.parametrize("name", FAILING)
def test_compiled_plan_omits_failing_rows_as_the_specification_does(
    spark: SparkSession, name: str, join_type: str
) -> None:
    batches = differential.check(spark, failing_case(name, join_type))

    failed = sum((batch.failed_results for batch in batches), Counter[tuple[str, str]]())
    records = sum(
        reasons["expression_failed"] for batch in batches for reasons in batch.bad_records.values()
    )
    assert 0 < failed.total() + records


def joined(spark: SparkSession, made: JoinPlan) -> Any:
    """The results of one row on each side, of which no expression is evaluated yet."""
    rows = spark.range(1).selectExpr(
        "id AS left_ad_id",
        "concat('x', id) AS left_campaign",
        "id * 2D AS left_cost",
        "id + 5 AS position_left",
        "id + 7 AS position_right",
        "'ann' AS right_user",
    )
    register_try_eval(spark)
    return written(output_records(rows, made), made, TopicLimits(1_000_000, 0))


def test_plan_without_an_expression_that_can_fail_has_no_trace_of_it(spark: SparkSession) -> None:
    text = joined(spark, plan())._jdf.queryExecution().optimizedPlan().toString()

    assert "tryeval" not in text.lower()
    assert "failed_field" not in text


def test_failed_result_is_counted_and_not_written(
    spark: SparkSession,
) -> None:
    made = plan(output__columns={"n": "cast(left.campaign as int)"})
    frame = joined(spark, made)

    assert [] == frame.collect()
    observed = frame._jdf.queryExecution().observedMetrics().get("output").get().json()
    assert '"failed":1' in observed
