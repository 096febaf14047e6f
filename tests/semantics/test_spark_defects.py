"""Known defects of Spark's stream-stream join in the version of this project, without the dataflow.

A failure means that Spark has changed, and that a rule of the project may be obsolete.
"""

import json
import re
from collections.abc import Callable, Sequence

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from tests.semantics.memory_topic import MemoryTopic, PlainRecord, conf

SIDES = ("left", "right")
T = 1_700_000_000_000
WINDOW = "right_t >= left_t AND right_t <= left_t + INTERVAL 5 SECONDS"


class PlainJoin:
    """Spark's join alone; a row is (key, milliseconds)."""

    def __init__(
        self,
        spark: SparkSession,
        on: str,
        how: str,
        *,
        delay: str = "10 seconds",
        watermarked: Sequence[str] = SIDES,
        before: Callable[[DataFrame], DataFrame] = lambda rows: rows,
        after: Callable[[DataFrame], DataFrame] = lambda rows: rows,
    ) -> None:
        self._topics = {side: MemoryTopic(spark) for side in SIDES}
        left, right = (before(self._side(s, delay if s in watermarked else None)) for s in SIDES)
        self._rows = after(left.join(right, on=F.expr(on), how=how))
        self._out: list[tuple[object, ...]] = []
        self.progress: list[dict[str, int]] = []
        self.plan = ""

    def _side(self, side: str, delay: str | None) -> DataFrame:
        key = "cast(cast(key AS STRING) AS INT)"
        rows = self._topics[side].records()
        rows = rows.selectExpr(f"{key} AS {side}_k", f"timestamp AS {side}_t")
        return rows if delay is None else rows.withWatermark(f"{side}_t", delay)

    def run(self, *batches: tuple[list, list]) -> list[tuple[object, ...]]:
        """Keys (left, right) of the results of these batches and of those without data."""
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
            self.plan = query._jsq.streamingQuery().lastExecution().executedPlan().toString()
        finally:
            query.stop()
        return sorted(self._out, key=str)

    @staticmethod
    def _record(key: int | None, millis: int) -> PlainRecord:
        text = None if key is None else str(key)
        return PlainRecord((T + millis) * 1000, text)


PUSH = ([(9, 100_000)], [(9, 100_000)])


def test_full_outer_join_matches_null_keys_with_each_other(spark):
    """`=` with null is not true, but Spark looks up state by the bytes of the key."""
    rows = PlainJoin(spark, f"left_k = right_k AND {WINDOW}", "full_outer").run(
        ([(None, 0)], [(None, 1)]), PUSH
    )

    assert [(9, 9), (None, None)] == rows  # two unmatched rows would make three


def test_null_keys_do_not_match_if_on_requires_keys_that_are_not_null(spark):
    guard = "left_k IS NOT NULL AND right_k IS NOT NULL"
    join = PlainJoin(spark, f"left_k = right_k AND {guard} AND {WINDOW}", "full_outer")

    assert [(9, 9), (None, None), (None, None)] == join.run(([(None, 0)], [(None, 1)]), PUSH)


def test_key_that_hides_its_nulls_from_the_optimizer_matches_them_in_a_left_outer_join(spark):
    key = "if({0}_k IS NULL, NULL, {0}_k)"
    on = f"{key.format('left')} = {key.format('right')} AND {WINDOW}"
    join = PlainJoin(spark, on, "left_outer")
    join.run(([(None, 0)], [(None, 1)]), PUSH)

    assert 2 == len(join._out)
    assert 4 == join.progress[1]["numRowsTotal"]  # all were stored, those with null keys, too


def test_comparison_of_a_number_in_on_keeps_unmatched_rows_indefinitely(spark):
    """Spark takes `left_k > 0` for a bound on event time: 0 seconds after the epoch."""
    for condition, expected in (("left_k > 0 AND", [(9, 9)]), ("", [(1, None), (9, 9)])):
        on = f"left_k = right_k AND {condition} {WINDOW}"
        assert expected == PlainJoin(spark, on, "left_outer").run(([(1, 0)], [(2, 0)]), PUSH)


def test_left_semi_join_misses_a_right_row_of_the_batch_that_evicts_it(spark):
    """Right rows are first (SPARK-55973), and one that the batch evicts is not stored."""
    batches = (PUSH, ([(1, 50_000)], [(1, 50_000)]))
    on = f"left_k = right_k AND {WINDOW}"

    assert [(1, 1), (9, 9)] == PlainJoin(spark, on, "inner").run(*batches)
    assert [(9,)] == PlainJoin(spark, on, "left_semi").run(*batches)


def test_null_key_does_not_advance_the_watermark_of_an_inner_join(spark):
    """IS NOT NULL is pushed below the watermark, which ignores the dropped rows."""
    join = PlainJoin(spark, f"left_k = right_k AND {WINDOW}", "inner")
    join.run(([(1, 0)], [(2, 0)]), ([(None, 100_000)], [(None, 100_000)]))

    assert 0 == sum(report["numRowsRemoved"] for report in join.progress)


@pytest.mark.parametrize("watermarked", SIDES)
def test_left_outer_join_watermarked_on_one_side_only(spark, watermarked):
    """SPARK-58904: Spark accepts a watermark of the right side only, and never evicts left rows."""
    on = f"left_k = right_k AND {WINDOW}"
    refused = False
    try:
        PlainJoin(spark, on, "left_outer", watermarked=[watermarked]).run(([(1, 0)], []))
    except AnalysisException:
        refused = True

    assert refused is (watermarked == "left")


@pytest.mark.parametrize("watermarked", SIDES)
def test_inner_join_watermarked_on_one_side_keeps_its_state_indefinitely(spark, watermarked):
    """SPARK-46350: Spark does not evict the other side by the watermark of this side."""
    join = PlainJoin(spark, f"left_k = right_k AND {WINDOW}", "inner", watermarked=[watermarked])
    join.run(([(1, 0)], [(1, 0)]), PUSH, PUSH)

    assert 6 == join.progress[-1]["numRowsTotal"]
    assert "state cleanup [ left = null, right = null ]" in join.plan


def test_inner_join_without_watermarks_is_accepted_and_keeps_its_state_indefinitely(spark):
    join = PlainJoin(spark, f"left_k = right_k AND {WINDOW}", "inner", watermarked=[])
    join.run(([(1, 0)], [(1, 0)]), PUSH, PUSH)

    assert 6 == join.progress[-1]["numRowsTotal"]


def test_join_without_equality_is_refused_in_its_first_batch(spark):
    with pytest.raises(StreamingQueryException, match=r"(?i)equality predicate"):
        PlainJoin(spark, WINDOW, "inner").run(PUSH)


def test_what_removes_duplicates_after_a_join_sees_two_event_times_and_is_refused(spark):
    join = PlainJoin(
        spark,
        f"left_k = right_k AND {WINDOW}",
        "inner",
        after=lambda rows: rows.dropDuplicatesWithinWatermark(["left_k"]),
    )
    with pytest.raises(StreamingQueryException, match=r"(?i)multiple.event.time"):
        join.run(PUSH)


BEFORE = {
    "one partition (SPARK-23827)": lambda rows: rows.coalesce(1),
    "another number (SPARK-23827)": lambda rows: rows.repartition(5),
    "part of the key (SPARK-38124, SPARK-38204)": lambda rows: rows.repartition(3, rows[0]),
}


@pytest.mark.parametrize("before", BEFORE.values(), ids=BEFORE)
def test_rows_are_spread_by_the_whole_key_whatever_spread_them_before(spark, before):
    on = "left_k = right_k AND left_t = right_t"
    rows = [(k, at) for k in (1, 2) for at in (0, 1)]
    with conf(spark, {"spark.sql.shuffle.partitions": "3"}):
        join = PlainJoin(spark, on, "inner", before=before)
        found = join.run((rows, []), ([], rows))

    assert [(1, 1), (1, 1), (2, 2), (2, 2)] == found
    spread = re.findall(r"hashpartitioning\((.*?), (\d+)\), REQUIRED_BY_STATEFUL", join.plan)
    keys = [(re.findall(r"[a-z]+_[kt](?=#)", by), partitions) for by, partitions in spread]
    assert [([f"{side}_k", f"{side}_t"], "3") for side in SIDES] == keys


def test_windowed_counts_of_two_streams_can_be_joined(spark):
    """SPARK-45637. Specs have no aggregates."""
    topics = {side: MemoryTopic(spark) for side in SIDES}
    left, right = (
        topics[side]
        .records()
        .withWatermark("timestamp", "1 millisecond")
        .groupBy(F.window("timestamp", "5 seconds"))
        .agg(F.count("*").alias(f"{side}_count"))
        for side in SIDES
    )
    out: list[tuple[int, int]] = []

    def on_batch(rows: DataFrame, _: int) -> None:
        out.extend((row.left_count, row.right_count) for row in rows.collect())

    query = left.join(right, on="window").writeStream.foreachBatch(on_batch).start()
    try:
        for millis in (0, 100_000):
            for topic in topics.values():
                topic.add_timestamp((T + millis) * 1000)
            query.processAllAvailable()
    finally:
        query.stop()

    assert [(1, 1)] == out


def test_delay_of_nothing_drops_rows_equal_to_the_newest_event_time(spark):
    """apache/spark#56043."""
    join = PlainJoin(spark, f"left_k = right_k AND {WINDOW}", "inner", delay="0 seconds")
    rows = join.run(PUSH, ([], []), ([(1, 100_000)], [(1, 100_000)]), PUSH)

    assert 0 < sum(report["numRowsDroppedByWatermark"] for report in join.progress)
    assert (1, 1) not in rows


def test_left_anti_join_is_refused(spark):
    """SPARK-58611."""
    join = PlainJoin(spark, f"left_k = right_k AND {WINDOW}", "left_anti")
    with pytest.raises(AnalysisException, match=r"(?i)anti"):
        join.run(PUSH)
