"""Known defects of Spark's stream-stream join: which hold in the version used, and what of it.

The first part asks Spark itself, past the dataflow: a test that fails there means that Spark has
changed, and that a rule of ours may go. The second part asks the dataflow.
"""

import json
from collections import Counter

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from job.errors import SpecError
from job.expressions import SIDES
from job.planner import join_plan
from job.semantics.json_records import InputRecord
from job.spec import spec_from_document
from tests.semantics import differential
from tests.semantics.join_cases import STATE_STORES, Case, Data, Idle, Restart
from tests.semantics.spark_runner import MemoryTopic
from tests.semantics.test_differential import T, case, row

WINDOW = "right_t >= left_t AND right_t <= left_t + INTERVAL 5 SECONDS"


class PlainJoin:
    """Spark's join and nothing else; a row is (key, milliseconds)."""

    def __init__(self, spark: SparkSession, on: str, how: str, delay: str = "10 seconds") -> None:
        self._topics = {side: MemoryTopic(spark) for side in SIDES}
        left, right = (self._side(side, delay) for side in SIDES)
        self._rows = left.join(right, on=F.expr(on), how=how)
        self._out: list[tuple[object, ...]] = []
        self.progress: list[dict[str, int]] = []

    def _side(self, side: str, delay: str) -> DataFrame:
        rows = self._topics[side].records().withWatermark("timestamp", delay)
        key = "cast(cast(key AS STRING) AS INT)"
        return rows.selectExpr(f"{key} AS {side}_k", f"timestamp AS {side}_t")

    def run(self, *batches: tuple[list, list]) -> list[tuple[object, ...]]:
        """The keys (left, right) of all that comes out of these batches and those without data."""
        waiting = list(batches)
        columns = [name for name in ("left_k", "right_k") if name in self._rows.columns]

        def feed() -> None:
            for side, rows in zip(SIDES, waiting.pop(0) if waiting else ((), ()), strict=True):
                if rows:
                    self._topics[side].add([self._record(*each) for each in rows])

        def on_batch(rows: DataFrame, _: int) -> None:
            self._out += [tuple(found) for found in rows.select(*columns).collect()]
            feed()

        feed()
        query = self._rows.writeStream.foreachBatch(on_batch).start()
        try:
            query.processAllAvailable()
            reports = [json.loads(report.json()) for report in query._jsq.recentProgress()]
            self.progress = [r["stateOperators"][0] for r in reports if r["stateOperators"]]
        finally:
            query.stop()
        return sorted(self._out, key=str)

    @staticmethod
    def _record(key: int | None, millis: int) -> InputRecord:
        text = None if key is None else str(key)
        return InputRecord("{}", offset=0, key=text, timestamp_us=(T + millis) * 1000)


PUSH = ([(9, 100_000)], [(9, 100_000)])


def test_a_full_outer_join_lets_null_keys_match_each_other(spark):
    """`=` with null is not true; state is looked up by the bytes of the key."""
    rows = PlainJoin(spark, f"left_k = right_k AND {WINDOW}", "full_outer").run(
        ([(None, 0)], [(None, 1)]), PUSH
    )

    assert [(9, 9), (None, None)] == rows  # two unmatched rows would make three


def test_said_in_on_that_keys_are_not_null_they_do_not_match(spark):
    guard = "left_k IS NOT NULL AND right_k IS NOT NULL"
    join = PlainJoin(spark, f"left_k = right_k AND {guard} AND {WINDOW}", "full_outer")

    assert [(9, 9), (None, None), (None, None)] == join.run(([(None, 0)], [(None, 1)]), PUSH)


def test_a_key_that_hides_its_nulls_from_the_optimizer_matches_them_in_a_left_outer_join(spark):
    key = "if({0}_k IS NULL, NULL, {0}_k)"
    on = f"{key.format('left')} = {key.format('right')} AND {WINDOW}"
    join = PlainJoin(spark, on, "left_outer")
    join.run(([(None, 0)], [(None, 1)]), PUSH)

    assert 2 == len(join._out)
    assert 4 == join.progress[1]["numRowsTotal"]  # all were stored, those with null keys, too


def test_a_comparison_of_a_number_in_on_keeps_unmatched_rows_for_ever(spark):
    """`left_k > 0` is taken for a bound on event time: 0 seconds after the epoch."""
    for condition, expected in (("left_k > 0 AND", [(9, 9)]), ("", [(1, None), (9, 9)])):
        on = f"left_k = right_k AND {condition} {WINDOW}"
        assert expected == PlainJoin(spark, on, "left_outer").run(([(1, 0)], [(2, 0)]), PUSH)


def test_a_left_semi_join_misses_a_right_row_of_the_batch_that_evicts_it(spark):
    """Right rows go first, and one that the batch would evict is not stored."""
    batches = (PUSH, ([(1, 50_000)], [(1, 50_000)]))
    on = f"left_k = right_k AND {WINDOW}"

    assert [(1, 1), (9, 9)] == PlainJoin(spark, on, "inner").run(*batches)
    assert [(9,)] == PlainJoin(spark, on, "left_semi").run(*batches)


def test_a_null_key_does_not_move_the_watermark_of_an_inner_join(spark):
    """IS NOT NULL is pushed below the watermark: what it drops was never seen."""
    join = PlainJoin(spark, f"left_k = right_k AND {WINDOW}", "inner")
    join.run(([(1, 0)], [(2, 0)]), ([(None, 100_000)], [(None, 100_000)]))

    assert 0 == sum(report["numRowsRemoved"] for report in join.progress)


@pytest.mark.parametrize("watermarked", SIDES)
def test_a_left_outer_join_watermarked_on_one_side_only(spark, watermarked):
    """SPARK-58904: accepted where the right side has the watermark; left rows then never go."""
    topics = {side: MemoryTopic(spark) for side in SIDES}
    key = "cast(cast(key AS STRING) AS INT)"
    sides = {
        side: topics[side].records().selectExpr(f"{key} AS {side}_k", f"timestamp AS {side}_t")
        for side in SIDES
    }
    sides[watermarked] = sides[watermarked].withWatermark(f"{watermarked}_t", "1 second")
    on = F.expr(f"left_k = right_k AND {WINDOW}")
    rows = sides["left"].join(sides["right"], on=on, how="left_outer")
    refused = False
    try:
        rows.writeStream.format("noop").outputMode("append").start().stop()
    except AnalysisException:
        refused = True

    assert refused is (watermarked == "left")


def test_a_delay_of_nothing_drops_rows_equal_to_the_newest_event_time(spark):
    """apache/spark#56043."""
    join = PlainJoin(spark, f"left_k = right_k AND {WINDOW}", "inner", delay="0 seconds")
    rows = join.run(PUSH, ([], []), ([(1, 100_000)], [(1, 100_000)]), PUSH)

    assert 0 < sum(report["numRowsDroppedByWatermark"] for report in join.progress)
    assert (1, 1) not in rows


def test_a_left_anti_join_is_refused(spark):
    """SPARK-58611."""
    join = PlainJoin(spark, f"left_k = right_k AND {WINDOW}", "left_anti")
    with pytest.raises(AnalysisException, match=r"(?i)anti"):
        join.run(PUSH)


def test_format_4_counts_rows_of_one_key_and_instant_once(spark):
    steps = (Data([row(1, 0), row(1, 0, 1)], []),)
    totals = {
        store.version: differential.check(spark, case("inner", steps=steps, store=store))[0]
        for store in STATE_STORES[:2]
    }

    assert {4: 1, 2: 2} == {version: batch.state_rows for version, batch in totals.items()}


def output_of(spark: SparkSession, generated: Case) -> Counter[str]:
    batches = differential.check(spark, generated)
    return Counter(
        text
        for batch in batches
        for (_, _, text), count in batch.output.items()
        for _ in range(count)
    )


NULLS = (Data([row(None, 0)], [row(None, 1)]), Data([row(9, 100_000)], [row(9, 100_000)]), Idle())


@pytest.mark.parametrize("store", STATE_STORES, ids=str)
def test_in_the_dataflow_null_keys_match_nothing(spark, store):
    for join_type in ("inner", "left_outer", "right_outer", "full_outer"):
        rows = output_of(spark, case(join_type, steps=NULLS, store=store))
        unmatched = {"inner": 0, "left_outer": 1, "right_outer": 1, "full_outer": 2}[join_type]
        assert (join_type, unmatched + 1) == (join_type, rows.total())


def test_in_the_dataflow_a_comparison_in_the_condition_keeps_no_unmatched_row_back(spark):
    steps = (Data([row(1, 0, 9)], []), Data([row(9, 100_000, 9)], [row(9, 100_000)]), Idle())
    rows = output_of(spark, case(steps=steps, condition="left.v > 5"))

    assert 2 == rows.total()


@pytest.mark.parametrize("store", STATE_STORES, ids=str)
def test_in_the_dataflow_a_row_matched_and_evicted_is_not_null_padded_too(spark, store):
    """SPARK-26154, SPARK-38684, SPARK-49829: matched late in its life, over a restart."""
    steps = (
        Data([row(1, 0), row(2, 0)], []),
        Data([row(9, 100_000)], [row(9, 14_000)]),
        Restart(before_batch_without_data=True),
        Data([], [row(1, 5_000), row(9, 100_000)]),
        Idle(),
    )

    assert output_of(spark, case(steps=steps, store=store))


def test_the_spec_refuses_a_delay_below_a_millisecond_and_joins_without_a_bound():
    for path, value in (("left", "0 seconds"), ("join", {"type": "left_outer"})):
        document = json.loads(json.dumps(case(steps=()).spec))
        if path == "left":
            document["left"]["watermark_delay"] = value
        else:
            document["join"] = value
        with pytest.raises(SpecError):
            join_plan(spec_from_document(document), state_partitions=1)
