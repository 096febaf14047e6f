"""The state watermark predicates, compared with the text of Spark's physical plans."""

import re
from functools import reduce

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from job.semantics.rows import SIDES
from job.semantics.watermark_predicates import JoinCondition, state_watermark_predicates
from tests.semantics.spark_runner import MemoryTopic

WATERMARK_MS = 1_700_000_000_000


def text(condition: JoinCondition) -> str:
    terms = []
    if condition.before_ms is not None:
        before = f"(interval '{condition.before_ms / 1000}' second)"
        terms.append(f"right.t >= left.t - {before}")
    if condition.after_ms is not None:
        terms.append(f"right.t <= left.t + (interval '{condition.after_ms / 1000}' second)")
    return " and ".join(terms)


KEY = "left.t = right.t"
CONDITIONS = {
    KEY: JoinCondition(has_time_in_key=True),
    "left.a = right.a": JoinCondition(),
    **{
        text(condition): condition
        for condition in (
            JoinCondition(before_ms=0),
            JoinCondition(after_ms=0),
            JoinCondition(before_ms=2_000, after_ms=5_000),
            JoinCondition(before_ms=-60_000, after_ms=90_000),
        )
    },
}
AT_ONCE = 6  # joins in one query, which share the cost of a batch


def chunks(conditions: list[str], how: str) -> list[tuple[str, list[str]]]:
    return [(how, conditions[at : at + AT_ONCE]) for at in range(0, len(conditions), AT_ONCE)]


def cleanups(spark: SparkSession, how: str, conditions: list[str]) -> list[str]:
    """The `state cleanup` of each join, in a batch whose watermark is WATERMARK_MS."""
    topics = {side: MemoryTopic(spark) for side in SIDES}
    joins = [joined(topics, how, condition) for condition in conditions]
    rows = reduce(DataFrame.unionAll, joins)
    query = rows.writeStream.format("noop").outputMode("append").start()
    try:
        for _ in range(3):  # the next batch uses the event times of this one
            for topic in topics.values():
                topic.add_timestamp(WATERMARK_MS * 1000 + 1_000)
            query.processAllAvailable()
        plan = str(query._jsq.streamingQuery().lastExecution().executedPlan().toString())
    finally:
        query.stop()
    return re.findall(r"state cleanup \[ (.*?) \]", plan)


def joined(topics: dict[str, MemoryTopic], how: str, condition: str) -> DataFrame:
    columns = ["timestamp AS t", "timestamp AS k", "partition AS a"]
    left, right = (
        topics[side]
        .records()
        .selectExpr(*columns)
        .withWatermark("t", "1 millisecond")
        .selectExpr(*(f"{name} AS {side}_{name}" for name in "tka"))
        for side in SIDES
    )
    on = re.sub(r"\b(left|right)\.", r"\1_", condition)
    rows = left.join(right, on=F.expr(f"left_a = right_a AND ({on})"), how=how)
    # A union of joins may have only one event-time column.
    return rows.select("left_a", "right_a")


def seen(cleanup: str, side: str) -> tuple[str, int] | None:
    """`left value predicate: (left_t#1-T1ms <= 1700…), right = null`."""
    left, _, right = cleanup.partition(", right ")
    text = left.removeprefix("left ") if side == "left" else right
    found = re.match(r"(key|value) predicate: \(.* <= (-?\d+)\)", text)
    return (found[1], int(found[2])) if found else None


def specified(condition: str) -> dict[str, tuple[str, int] | None]:
    join = CONDITIONS[condition]
    predicates = state_watermark_predicates(join, eviction_ms=WATERMARK_MS, late_ms=0)
    return {
        side: None
        if (found := predicates.of(side)) is None
        else (found.on, found.watermark_ms * 1000)
        for side in SIDES
    }


# Spark refuses an outer join whose unmatched rows never expire.
BOUNDED = [condition for condition in CONDITIONS if None not in specified(condition).values()]


@pytest.mark.parametrize(
    ("how", "conditions"),
    [*chunks(list(CONDITIONS), "inner"), *chunks(BOUNDED, "left_outer")],
)
def test_predicates_are_those_in_sparks_plan(spark: SparkSession, how, conditions):
    in_plan = cleanups(spark, how, conditions)

    assert len(conditions) == len(in_plan)
    for condition, cleanup in zip(conditions, in_plan, strict=True):
        expected = specified(condition)
        assert (condition, expected) == (condition, {side: seen(cleanup, side) for side in SIDES})
