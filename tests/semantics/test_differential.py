"""Spark and the specification agree on generated joins, and would not if either were wrong."""

import json
from collections.abc import Sequence

import pytest
from pyspark.sql import SparkSession

from job.semantics import (
    event_time,
    one_side_joiner,
    query,
    simulated_side,
    simulation_plan,
    state_manager_v4,
    watermark_predicates,
)
from job.semantics.event_time import BatchWatermarks
from tests.semantics import differential
from tests.semantics.case_generator import JOIN_TYPES
from tests.semantics.case_generator import event_time as written
from tests.semantics.changed_join import check_change
from tests.semantics.join_cases import Batch, Case, Data, Idle, Phase, Restart
from tests.semantics.planted_rules import WRONG_RULES
from tests.semantics.spark_runner import run_on_spark

CASES = 100
FIRST_SEED = 150
"""Before event times had microseconds, cases 150 to 249 made all 2,208 transitions between lines of
job/semantics and job/plan that cases 0 to 299 made. `make differential` runs more cases."""
CHANGES = 20
SECONDS = 150
"""No case starts after this time; a slow machine runs fewer."""

T = 1_700_000_000_000


@pytest.mark.timeout(SECONDS * 3)
def test_spark_and_the_specification_agree_on_generated_joins(spark: SparkSession):
    statistics = differential.Statistics()

    differential.run_many(
        spark, CASES, first_seed=FIRST_SEED, seconds=SECONDS, statistics=statistics
    )

    assert statistics.rows > 0


def row(k, at, v=0, *, micros=0, **more):
    return json.dumps({"k": k, "t": written(T + at, micros), "v": v, **more})


def case(join_type="left_outer", *, steps, **join):
    side = {"schema": "k INT, t TIMESTAMP, v INT", "key": ["k"], "event_time": "t"}
    columns = {"lk": "left.k", "lv": "left.v", "rv": "right.v"}
    spec = {
        "name": "planted",
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "left": {"topic": "l", **side, "watermark_delay": "10 seconds"},
        "right": {"topic": "r", **side, "watermark_delay": "10 seconds"},
        "join": {"type": join_type, "match_window": {"before": "0 s", "after": "5 s"}, **join},
        "output": {"topic": "o", "columns": columns, "delivery": "at_least_once"},
        "checkpoint": "./checkpoint",
        "on_bad_record": "drop",
    }
    return Case(spec, steps)


_RUNS: dict[str, list[Batch]] = {}


@pytest.fixture
def one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark runs the same batches of a case once: a bug in the specification does not change what
    it does with them. The bug changes the batches if it changes after which batch none is left to
    run without data."""

    def run(spark: SparkSession, case: Case, phases: Sequence[Phase]) -> list[Batch]:
        key = f"{case.spec}: {phases}"
        if key not in _RUNS:
            _RUNS[key] = run_on_spark(spark, case, phases)
        return _RUNS[key]

    monkeypatch.setattr(differential, "run_on_spark", run)


# The rows at 0 are evicted once the watermark has passed 5,001 ms: the last row of a window, the
# first late one, a row a microsecond later, a matched row that must not be emitted again, null keys
# on both sides.
STEPS = (
    Data([row(1, 0), row(2, 0), row(None, 0)], [row(1, 5_000), row(None, 1)]),
    Data([row(7, 15_000)], [row(7, 15_001)]),
    Idle(),
    Data([row(8, 15_001)], [row(8, 15_001), row(2, 5_000), row(2, 4_999)]),
    Restart(),
    Data([row(9, 16_000), row(3, 5_000), row(3, 5_001), row(3, 5_001, micros=1)], [row(9, 16_000)]),
    Data([row(3, 5_001), row(3, 6_000)], [row(3, 6_001)]),
)


@pytest.mark.usefixtures("one_run")
def test_without_a_planted_bug_the_scenario_agrees(spark: SparkSession):
    batches = differential.check(spark, case(steps=STEPS))

    assert sum(batch.late_rows for batch in batches) > 0


# Two left rows of one key and time are stored. The first right row matches one of them, the second
# right row both.
SEMI_STEPS = (
    Data([row(1, 0, 1), row(1, 0, 5)], []),
    Data([], [row(1, 1_000, 3)]),
    Data([], [row(1, 2_000, 9)]),
)


def strict_bound_for_a_non_strict_one(monkeypatch):
    bounds_later(monkeypatch, 1)


def evicted_a_millisecond_late(monkeypatch):
    bounds_later(monkeypatch, -1)


def bounds_later(monkeypatch, milliseconds):
    bound = watermark_predicates.state_value_watermark
    monkeypatch.setattr(
        watermark_predicates,
        "state_value_watermark",
        lambda *arguments: None if (w := bound(*arguments)) is None else w + milliseconds,
    )


def matched_semi_row_stays_in_state(monkeypatch):
    manager = state_manager_v4.SymmetricHashJoinStateManagerV4
    monkeypatch.setattr(manager, "get_joined_rows_and_remove_matched", manager.get_joined_rows)


def matched_flag_lost(monkeypatch):
    append = state_manager_v4.SymmetricHashJoinStateManagerV4.append
    pair = state_manager_v4.ValueAndMatchPair
    monkeypatch.setattr(
        pair, "_replace", lambda self, **_: pair(self.value, matched=False), raising=False
    )
    monkeypatch.setattr(
        state_manager_v4.SymmetricHashJoinStateManagerV4,
        "append",
        lambda self, key, value, *, matched: append(self, key, value, matched=matched and False),
    )


def late_rows_dropped_one_batch_too_early(monkeypatch):
    monkeypatch.setattr(
        BatchWatermarks,
        "next",
        lambda _, watermark_ms: BatchWatermarks(late=watermark_ms, eviction=watermark_ms),
    )


def late_rows_kept_if_at_the_watermark(monkeypatch):
    monkeypatch.setattr(
        one_side_joiner,
        "is_behind",
        lambda at, watermark_ms: at is not None and at < watermark_ms * 1000,
    )


def other_rows_of_its_time_leave_with_a_matched_semi_row(monkeypatch):
    manager = state_manager_v4.SymmetricHashJoinStateManagerV4
    look_up = manager.get_joined_rows_and_remove_matched

    def remove_all(self, key, *functions):
        rows = list(look_up(self, key, *functions))
        for timestamp, _ in self._candidates(key) if rows else ():
            self._remove(key, timestamp)
        return rows

    monkeypatch.setattr(manager, "get_joined_rows_and_remove_matched", remove_all)


def late_rows_compared_by_the_millisecond(monkeypatch):
    monkeypatch.setattr(
        one_side_joiner,
        "is_behind",
        lambda at, watermark_ms: at is not None and at // 1000 <= watermark_ms,
    )


def null_keys_match(monkeypatch):
    answer_always(monkeypatch, "has_unequal_null", sql="false")


def answer_always(monkeypatch, fact, *, sql):
    facts = simulated_side._facts
    monkeypatch.setattr(
        simulated_side, "_facts", lambda plan, side: {**facts(plan, side), fact: sql}
    )


def event_times_lost_by_each_restart(monkeypatch):
    restart = query.JoinQuery.restart
    monkeypatch.setattr(
        query.JoinQuery, "restart", lambda self, **_: restart(self, times_lost=True)
    )


def event_times_kept_by_each_restart(monkeypatch):
    monkeypatch.setattr(event_time.WatermarkTracker, "forget_sides", lambda _: None)


def filter_of_the_other_side_forgotten(monkeypatch):
    answer_always(monkeypatch, "mirrored", sql="true")


def duplicates_further_apart_than_within(monkeypatch):
    plan = simulation_plan.DeduplicationPlan
    monkeypatch.setattr(
        simulation_plan,
        "DeduplicationPlan",
        lambda id_of, event_time, late_time, within_us, kept_us: plan(
            id_of, event_time, late_time, within_us + 1_000_000, kept_us
        ),
    )


PLANTED = {
    strict_bound_for_a_non_strict_one: "state_rows|output|removed_rows",
    evicted_a_millisecond_late: "state_rows|output|removed_rows",
    matched_semi_row_stays_in_state: "state_rows|output|removed_rows",
    other_rows_of_its_time_leave_with_a_matched_semi_row: "state_rows|output|removed_rows",
    matched_flag_lost: "output",
    late_rows_dropped_one_batch_too_early: "late_rows",
    late_rows_kept_if_at_the_watermark: "late_rows",
    late_rows_compared_by_the_millisecond: "late_rows",
    null_keys_match: "output|state_rows",
    event_times_lost_by_each_restart: "watermark_ms",
    event_times_kept_by_each_restart: "watermark_ms",
    filter_of_the_other_side_forgotten: "late_rows|state_rows",
    duplicates_further_apart_than_within: "duplicates",
}


RESTARTS = {
    event_times_lost_by_each_restart: Restart(),
    event_times_kept_by_each_restart: Restart(times_lost=True),
}


@pytest.mark.usefixtures("one_run")
@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_bug_planted_in_the_specification_is_caught(spark: SparkSession, monkeypatch, plant):
    steps = STEPS
    if plant in RESTARTS:
        ahead = Data([row(9, 15_000)], [row(9, 50_000)])
        one_side = Data([row(9, 99_000)], [])
        steps = (ahead, RESTARTS[plant], one_side, one_side)
    made = case(steps=steps)
    if "semi_row" in plant.__name__:
        made = case("left_semi", steps=SEMI_STEPS, condition="left.v < right.v")
        del made.spec["output"]["columns"]["rv"]
    if plant is filter_of_the_other_side_forgotten:
        made.spec["left"]["filter"] = "k <> 2"
    processor = None
    if plant is duplicates_further_apart_than_within:
        processor = "batch"
        made = case(steps=[Data([row(1, 10_000), row(1, 15_500)], [])])
        made.spec["left"]["deduplicate"] = {"by": ["k"], "within": "5 seconds"}
    plant(monkeypatch)

    with pytest.raises(differential.DifferenceError, match=rf"batch \d+, ({PLANTED[plant]}): "):
        differential.check(spark, made, processor=processor)


def of_partition(number, *rows):
    return [json.dumps({"value": each, "partition": number}) for each in rows]


# A backlog of two partitions of the left topic: while partition 1 is unread nothing advances; then
# it is the slowest, until it is read.
BACKLOG = (
    Data([row(1, 40_000), row(2, 60_000)], [row(9, 70_000)], ahead=3),
    Data([row(3, 61_000)]),
    Data(of_partition(1, row(4, 30_000), row(2, 55_000))),
    Data([row(5, 90_000), *of_partition(1, row(6, 62_000))], [row(9, 91_000)]),
    Data([row(7, 91_000)], [row(9, 92_000)]),
)


@pytest.mark.usefixtures("one_run")
def test_without_a_wrong_rule_the_backlog_agrees(spark: SparkSession):
    batches = differential.check(spark, case(steps=BACKLOG))

    watermarks = [0, 0, 0, T + 45_000, T + 80_000, T + 81_000]
    assert watermarks == [batch.watermark_ms for batch in batches][: len(watermarks)]
    assert 0 == sum(batch.late_rows for batch in batches)


@pytest.mark.usefixtures("one_run")
@pytest.mark.parametrize("wrong", WRONG_RULES, ids=lambda rule: rule.__name__)
def test_wrong_rule_in_the_specification_is_caught(spark: SparkSession, monkeypatch, wrong):
    monkeypatch.setattr(event_time, "watermark_ms", wrong)

    with pytest.raises(differential.DifferenceError, match=r"batch \d+, watermark_ms: "):
        differential.check(spark, case(steps=BACKLOG))


# Before a cut after the third or fourth batch, at a watermark of 15,000 ms: rows that have expired,
# with and without a match; rows that have not, and whose partners are before or after the cut, or
# are missing; a late row, whose partner is after the cut; rows out of order.
AROUND_A_CUT = (
    Data(
        [row(1, 6_000), row(13, 6_000), row(5, 12_000), row(3, 20_000)],
        [row(1, 7_000), row(3, 10_000)],
    ),
    Data([row(4, 25_000)], [row(4, 25_000), row(6, 16_000)]),
    Data([row(7, 14_000), row(8, 16_000), row(6, 15_500)], [row(7, 15_000), row(9, 17_000)]),
    Data([row(10, 16_000), row(12, 14_000)], [row(8, 18_000), row(14, 15_500), row(15, 15_000)]),
    Data([row(9, 15_001), row(5, 17_000)], [row(12, 16_000), row(10, 16_500), row(7, 16_000)]),
    Data([row(11, 60_000)], [row(3, 24_000), row(11, 60_000)]),
    Idle(),
)


@pytest.mark.parametrize("join_type", JOIN_TYPES)
def test_changed_join_gives_the_results_of_the_uninterrupted_one(spark: SparkSession, join_type):
    changed = case(join_type, steps=AROUND_A_CUT)
    if join_type in {"right_semi", "right_anti"}:
        changed.spec["output"]["columns"] = {"rk": "right.k", "rv": "right.v"}
    elif join_type.endswith(("_semi", "_anti")):
        del changed.spec["output"]["columns"]["rv"]

    for last in (2, 3):
        assert any(batch.output for batch in check_change(spark, changed, last))


@pytest.mark.timeout(SECONDS)
def test_changed_generated_joins_give_the_results_of_the_uninterrupted_ones(spark: SparkSession):
    statistics = differential.Statistics()

    differential.run_many(
        spark, CHANGES, seconds=SECONDS / 8, statistics=statistics, check_case=check_change
    )

    assert statistics.rows > 0
