"""What an interrupted interval has delivered is not delivered again by its repetition."""

from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.spark.java_classes import java_class
from job.spec.source_topics import SourceTopics
from tests.semantics.differential import specified
from tests.semantics.join_cases import Case, Data, Idle, Restart
from tests.semantics.planted_java import Plant, compile_plants, use_plant
from tests.semantics.real_time_runner import HEAPS, Heap, run_in_real_time_engine
from tests.semantics.test_differential import case, row
from tests.semantics.test_table_join import case as table_case
from tests.semantics.test_table_join import customer, order

PLANTED = {
    # Each task removes the second left row from the state with which it begins.
    "removing": Plant(
        "EvictingJoin.java",
        "state.remove(delivered);",
        'state.remove(new DeliveredRows(java.util.Set.of("l/0/1|"), Long.MAX_VALUE,'
        " rules.inputs));",
    ),
    # The repeated interval has delivered the dead letter of the second left row's result.
    "delivered": Plant(
        "DeliveredRows.java",
        "new DeliveredRows(Set.of(), Long.MIN_VALUE, Inputs.OF_ONE_TOPIC_EACH)",
        'new DeliveredRows(Set.of("l/0/1|/value_too_large"), Long.MAX_VALUE,'
        " Inputs.OF_ONE_TOPIC_EACH)",
    ),
}
STEPS = (
    Data([row(key, 0) for key in range(4)]),
    Restart(),
    Data([], [row(key, 1) for key in range(2)]),
    Data([row(9, 90_000)], [row(9, 90_000)]),
    Idle(),
)


@pytest.fixture(scope="module")
def planted() -> None:
    compile_plants(PLANTED)


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("heap", HEAPS)
def test_row_that_was_unmatched_is_in_no_pair_and_not_emitted_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, heap: Heap
) -> None:
    use_plant(monkeypatch, "removing")
    made = case("left_outer", steps=STEPS)

    _, phases = specified(made, processor="batch")

    batches = chain.from_iterable(run_in_real_time_engine(spark, made, phases, heap=heap))

    ids = Counter(row_id for batch in batches for row_id, *_ in batch.output.elements())
    # The second row is neither in the pair with its match, nor unmatched.
    assert Counter(["l/0/0|r/0/0", "l/0/2|", "l/0/3|", "l/0/4|r/0/2"]) == ids


# The repetition may find another match, with which the result could be written.
@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("plant", "made", "topic"),
    [
        ("removing", case("left_outer", steps=STEPS, pick="latest"), "l"),
        ("delivered", case("left_outer", steps=STEPS, pick="latest"), "l"),
        ("delivered", table_case([Data([order(k) for k in range(4)], [customer(1, 5)])]), "orders"),
    ],
    ids=["pick, in state", "pick, read again", "table"],
)
def test_left_row_whose_result_was_delivered_has_no_other_one(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, plant: str, made: Case, topic: str
) -> None:
    use_plant(monkeypatch, plant)
    _, phases = specified(made, processor="batch")

    batches = chain.from_iterable(run_in_real_time_engine(spark, made, phases))

    ids = Counter(row_id for batch in batches for row_id, *_ in batch.output.elements())
    assert Counter(f"{topic}/0/{offset}|" for offset in (0, 2, 3)) == ids


# The driver offers a watermark once all rows have arrived.
OFFERED_LAST = {
    "offered_last": Plant(
        "EvictingJoin.java",
        "return rules.liveRun == 0 ? LiveWatermark.NONE",
        "return isDataProcessed() ? 4_000_000_000_000L : rules.liveRun == 0 ? LiveWatermark.NONE",
    )
}


@pytest.fixture(scope="module")
def offered_last() -> None:
    compile_plants(OFFERED_LAST)


@pytest.mark.usefixtures("offered_last")
def test_interval_ends_with_the_last_watermark(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_plant(monkeypatch, "offered_last")
    made = case("left_outer", steps=(Data([row(key, 0) for key in range(4)]),))
    _, phases = specified(made, processor="interval")

    batches = chain.from_iterable(run_in_real_time_engine(spark, made, phases, interval=True))

    ids = Counter(row_id for batch in batches for row_id, *_ in batch.output.elements())
    assert Counter(f"l/0/{offset}|" for offset in range(4)) == ids


def inputs(spark: SparkSession, first: str, left: Sequence[str] = ()) -> Any:
    gateway: Any = spark.sparkContext._gateway
    topics = [gateway.new_array(gateway.jvm.java.lang.String, len(names)) for names in (left, ())]
    for index, name in enumerate(left):
        topics[0][index] = name
    return java_class(spark, "Inputs")(first, *topics)


def test_ids_name_rows_of_both_sides(spark: SparkSession) -> None:
    ids = spark._jvm.java.util.HashSet()  # type: ignore[union-attr]
    for each in ("a/1/17|", "|b/0/3", "a/0/5|b/0/6", "a/0/9|/value_too_large", "|b/0/4/null_key",
                 "left/281474976710658/late", "right/7/late", "right/8/null_key"):  # fmt: skip
        ids.add(each)
    found = java_class(spark, "DeliveredRows")(ids, 5, inputs(spark, "left"))
    of_second = java_class(spark, "DeliveredRows")(ids, 5, inputs(spark, "right"))
    several = java_class(spark, "DeliveredRows")(ids, 5, inputs(spark, "left", left=("z", "a")))

    partition_1 = 1 << 48
    assert [True, False] == [found.wasUnmatched(0, partition_1 + n) for n in (17, 18)]
    # The partitions of the second topic of a side have the numbers from 1024 on.
    second = SourceTopics(("z", "a")).number("a", 1) << 48
    assert [True, False] == [several.wasUnmatched(0, at + 17) for at in (second, partition_1)]
    assert [True, True] == [several.wasUnmatched(1, n) for n in (3, 4)]
    assert [False, True] == [found.wasUnmatched(0, n) for n in (5, 9)]
    assert [True, True, False] == [found.wasUnmatched(1, n) for n in (3, 4, 6)]
    assert [True, False] == [found.wasLate(side, partition_1 + 2) for side in (0, 1)]
    assert [True, False] == [found.wasLate(1, n) for n in (7, 8)]
    # The sides of a right semi join are exchanged.
    assert [True, False] == [of_second.wasLate(side, 7) for side in (0, 1)]
