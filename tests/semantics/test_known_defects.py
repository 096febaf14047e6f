"""Known defects of Spark's stream-stream join, in the dataflow, which avoids or counts them.

test_spark_defects.py shows them without the dataflow.
"""

import json
from collections import Counter
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from job.errors import SpecError
from job.plan.planner import join_plan
from job.spec.spec import spec_from_document
from tests.semantics import differential
from tests.semantics.join_cases import Case, Data, Idle, Restart
from tests.semantics.test_differential import case, row
from tests.sql_worker import SQL


def test_rows_of_one_key_and_instant_count_once(spark):
    steps = (Data([row(1, 0), row(1, 0, 1)], []),)

    assert 1 == differential.check(spark, case("inner", steps=steps))[0].state_rows


def output_of(spark: SparkSession, generated: Case) -> Counter[str]:
    batches = differential.check(spark, generated)
    return Counter(
        text
        for batch in batches
        for (_, _, text), count in batch.output.items()
        for _ in range(count)
    )


NULLS = (Data([row(None, 0)], [row(None, 1)]), Data([row(9, 100_000)], [row(9, 100_000)]), Idle())


def test_in_the_dataflow_null_keys_match_nothing(spark):
    for join_type in ("inner", "left_outer", "right_outer", "full_outer"):
        rows = output_of(spark, case(join_type, steps=NULLS))
        unmatched = {"inner": 0, "left_outer": 1, "right_outer": 1, "full_outer": 2}[join_type]
        assert (join_type, unmatched + 1) == (join_type, rows.total())


def test_in_the_dataflow_a_comparison_in_the_condition_keeps_no_unmatched_row_back(spark):
    steps = (Data([row(1, 0, 9)], []), Data([row(9, 100_000, 9)], [row(9, 100_000)]), Idle())
    rows = output_of(spark, case(steps=steps, condition="left.v > 5"))

    assert 2 == rows.total()


@pytest.mark.parametrize(
    "condition",
    ["left.v <=> right.v", "coalesce(left.v, 0) = coalesce(right.v, 0)", "left.v = right.v"],
)
def test_in_the_dataflow_an_equality_in_the_condition_becomes_no_part_of_the_key(spark, condition):
    """Format 4 stores rows of one key and event time as one entry, whatever their v."""
    steps = (Data([row(1, 0, 1), row(1, 0, 2)], [row(1, 0, 2)]),)

    batch, *_ = differential.check(spark, case("inner", steps=steps, condition=condition))

    assert (2, 1) == (batch.state_rows, batch.output.total())


def test_in_the_dataflow_unmatched_rows_of_one_key_are_emitted_each_with_its_own_values(spark):
    """SPARK-32148: the iterator of the state returned the same row object each time."""
    steps = (
        Data([row(1, 0, 1), row(1, 0, 2), row(1, 1, 3), row(1, 2, 4)], [row(1, 5_002, 5)]),
        Data([row(9, 100_000)], [row(9, 100_000)]),
        Idle(),
    )

    rows = output_of(spark, case(steps=steps))

    padded = Counter(json.loads(text)["lv"] for text in rows if '"rv": null' in text)
    assert Counter([1, 2, 3]) == padded


def test_in_the_dataflow_a_left_row_of_a_semi_join_leaves_state_with_its_first_match(spark):
    """SPARK-55973."""
    steps = (Data([row(1, 0)], []), Data([], [row(1, 1_000)]), Data([], [row(1, 2_000)]))
    semi = case("left_semi", steps=steps)
    del semi.spec["output"]["columns"]["rv"]

    batches = [b for b in differential.check(spark, semi) if b.updated_rows]

    assert [(1, 0), (1, 1), (2, 0)] == [(b.state_rows, b.output.total()) for b in batches]


def test_in_the_dataflow_rows_are_found_again_in_their_partition_after_a_restart(spark):
    """SPARK-38204."""
    keys = [row(k, 0) for k in range(6)]
    steps = (Data(keys, []), Restart(), Data([], [row(k, 1_000) for k in range(6)]))

    rows = output_of(spark, replace(case(steps=steps), partitions=3))

    assert 6 == rows.total()


def test_in_the_dataflow_a_row_matched_and_evicted_is_not_null_padded_too(spark):
    """SPARK-26154, 38320, 38684, 49829: a late match, after a restart."""
    steps = (
        Data([row(1, 0), row(2, 0)], []),
        Data([row(9, 100_000)], [row(9, 14_000)]),
        Restart(before_batch_without_data=True),
        Data([], [row(1, 5_000), row(9, 100_000)]),
        Idle(),
    )

    assert output_of(spark, case(steps=steps))


@pytest.mark.parametrize(
    ("part", "change", "named"),
    [
        ("left", {"watermark_delay": "0 seconds"}, "watermark_delay"),  # apache/spark#56043
        ("left", {"watermark_delay": None}, "watermark_delay"),  # SPARK-46350, SPARK-58904
        ("right", {"watermark_delay": None}, "watermark_delay"),
        ("left", {"key": []}, "key"),
        ("join", {"match_window": None}, "match_window"),
        ("join", {"match_window": None, "unbounded_state": True}, "requires a bound"),
    ],
)
def test_spec_refuses_what_spark_accepts_and_should_not(part, change, named):
    document = json.loads(json.dumps(case(steps=()).spec))
    document[part].update(change)
    document[part] = {name: value for name, value in document[part].items() if value is not None}

    with pytest.raises(SpecError, match=named):
        join_plan(spec_from_document(document), SQL, state_partitions=1)
