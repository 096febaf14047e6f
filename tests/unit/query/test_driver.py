"""Watermark and limits of the reading after each batch, and the phases of engine real_time."""

import pytest

from job.event_time.interval import Interval
from job.plan.real_time import (
    CATCH_UP_MIN,
    CAUGHT_UP_BATCHES,
    CAUGHT_UP_RECORDS,
    RECORDS_BEHIND_MAX,
)
from job.protocol.status import Phase
from job.query.driver import EndsRequested
from job.query.pacing import SHORT_INTERVAL, SHORT_INTERVALS, Pacing
from tests.unit.query.driven import NOW_MS, Driven, both, ends

HALF = CAUGHT_UP_RECORDS // 2
PER_MINUTE = 12 * RECORDS_BEHIND_MAX
CUT = Interval(batch_id=7, watermark_ms=5_000)


def test_watermark_is_raised_once_both_sides_have_an_event_time() -> None:
    run = Driven()
    run.batch(ends(5, 5), ends(5, 5), {"left": {0: 60_000}, "right": {}})
    assert [] == run.watermarks

    run.batch(ends(5, 9), ends(5, 9), {"left": {}, "right": {0: 90_000}})
    assert [50_000] == run.watermarks


def test_first_batches_are_small_and_the_ends_of_the_topics_are_kept() -> None:
    run = Driven()
    assert 2_000 == run.limit("left", 0, 9_000)
    assert run.limit("right", 0, 2_000) is None
    assert {"left": {0: 9_000}} == run.state.latest

    run.batch(ends(2_000, 2_000), ends(9_000, 2_000), both(60_000))
    assert {} == run.state.latest
    assert {"left", "right"} == run.limited
    assert 26_000 == run.limit("left", 2_000, 90_000)


def test_ends_of_a_plan_without_a_batch_are_dropped() -> None:
    run = Driven()
    run.limit("left", 0, 9_000)
    run.limit("left", 0, 1)
    assert {} == run.state.latest


def test_reading_is_released_once_everything_is_read() -> None:
    run = Driven()
    run.batch(ends(5, 5), ends(5, 9), both(60_000))
    assert run.limit("left", 5, 7) is None
    assert {"left", "right"} == run.limited

    run.batch(ends(7, 9), ends(7, 9), both(60_000))
    assert set() == run.limited


def test_topic_without_records_is_released() -> None:
    run = Driven()
    assert run.limit("left", 0, 0) is None
    assert {"right"} == run.limited


def test_even_backlog_is_released_after_the_first_batches() -> None:
    run = Driven()
    for end in range(10, 50, 10):
        run.batch(both(end), both(99), both(end * 1_000))
    assert set() == run.limited

    run.batch(both(60), both(99), ends(60_000, 3_660_000))
    assert {"left", "right"} == run.limited


def test_side_that_is_an_hour_ahead_waits() -> None:
    run = Driven()
    run.batch(both(5), both(9), ends(60_000, 3_660_000))
    assert 5 == run.limit("right", 5, 9)
    assert run.limit("left", 5, 9) is None


def test_sparse_partition_does_not_run_ahead_of_a_dense_one() -> None:
    run = Driven()
    for left, right in ((60_000, 60_000), (90_000, 1_260_000)):
        run.batch(both(5), both(9), ends(left, right))
    assert 5 == run.limit("right", 5, 9)


def test_catch_up_ends_after_the_batch_that_leaves_few_records() -> None:
    run = Driven(Phase.CATCH_UP)
    run.batch(both(10), both(10 + HALF + 1), both(NOW_MS))
    assert [] == run.next_phases

    run.batch(both(20), both(20 + HALF), both(NOW_MS))
    assert [Phase.REAL_TIME] == run.next_phases


def test_catch_up_ends_at_once_where_there_is_nothing_to_read() -> None:
    run = Driven(Phase.CATCH_UP)
    run.plan(both(10), both(10))
    assert [Phase.REAL_TIME] == run.next_phases


def test_catch_up_goes_on_while_its_batches_take_long() -> None:
    run = Driven(Phase.CATCH_UP)
    run.timed_batch(20, seconds=9.0)
    assert [] == run.next_phases

    run.timed_batch(30, seconds=1.0)
    assert [Phase.REAL_TIME] == run.next_phases


def test_catch_up_ends_once_its_small_batches_have_taken_long_enough() -> None:
    run = Driven(Phase.CATCH_UP)
    half = CAUGHT_UP_BATCHES.total_seconds() / 2
    run.timed_batch(10, seconds=60, unread=CAUGHT_UP_RECORDS)
    run.timed_batch(20, seconds=half)
    assert [] == run.next_phases

    run.timed_batch(30, seconds=half)
    assert [Phase.REAL_TIME] == run.next_phases


def test_catch_up_ends_after_a_long_batch_if_nothing_follows() -> None:
    run = Driven(Phase.CATCH_UP)
    run.timed_batch(20, seconds=9.0)

    # Spark may plan a batch without records here.
    run.plan(both(20), both(20))
    assert [] == run.next_phases

    run.plan(both(20), both(20))
    assert [Phase.REAL_TIME] == run.next_phases


def test_calls_before_each_batch_go_on_in_a_catch_up() -> None:
    run = Driven(Phase.CATCH_UP)
    assert run.limit("left", 0, 0) is None
    run.batch(both(7), both(7), both(60_000))
    assert {"left", "right"} == run.limited


def test_interval_is_recorded_with_a_later_watermark_that_an_idle_side_has_set() -> None:
    run = Driven(Phase.REAL_TIME)
    run.watermark = NOW_MS
    run.interval(both(10), both(12))
    assert [Interval(batch_id=8, watermark_ms=NOW_MS)] == run.recorded


def test_interval_has_no_planned_end() -> None:
    run = Driven(Phase.REAL_TIME)
    assert run.limit("left", 0, 90_000) is None
    assert {"left", "right"} == run.limited


def two_intervals(run: Driven, *, received: int, unread: int) -> None:
    """The first one takes a minute. In it the topics receive `received` records, half of them
    each, and it leaves the last `unread` of them."""
    run.interval(both(0), both(0))
    run.now += 60
    run.interval(both((received - unread) // 2), both(received // 2))


@pytest.mark.parametrize(
    ("received", "unread", "is_behind"),
    [
        (PER_MINUTE, RECORDS_BEHIND_MAX + 2, True),
        (PER_MINUTE, RECORDS_BEHIND_MAX, False),
        # More records, of a shorter time.
        (2 * PER_MINUTE, RECORDS_BEHIND_MAX + 2, False),
    ],
)
def test_catch_up_follows_an_interval_that_leaves_many_records(
    received: int, unread: int, is_behind: bool
) -> None:
    run = Driven(Phase.REAL_TIME)
    two_intervals(run, received=received, unread=unread)
    assert ([Phase.CATCH_UP] if is_behind else []) == run.next_phases
    # Spark may submit the tasks of the next interval before it stops.
    assert 2 == len(run.recorded)


def test_first_interval_of_a_run_is_not_followed_by_a_catch_up() -> None:
    run = Driven(Phase.REAL_TIME)
    run.interval(both(10), both(11 + RECORDS_BEHIND_MAX))
    assert [] == run.next_phases


def test_interval_ends_the_run_once_a_topic_has_more_partitions() -> None:
    run = Driven(Phase.REAL_TIME)
    run.interval(both(10), both(12))
    assert [] == run.next_phases

    run.interval(both(12), {"left": {0: 14}, "right": {0: 14, 1: 0}})
    assert [Phase.CATCH_UP] == run.next_phases


def test_catch_up_after_an_interval_that_fell_behind_has_a_shortest_time() -> None:
    intervals = Driven(Phase.REAL_TIME)
    two_intervals(intervals, received=PER_MINUTE, unread=PER_MINUTE)
    run = Driven(Phase.CATCH_UP, pacing=intervals.state.pacing, planned_at=intervals.now)
    run.now = intervals.now

    run.timed_batch(20, seconds=CATCH_UP_MIN.total_seconds() - 0.1)
    assert [] == run.next_phases

    run.timed_batch(30, seconds=0.2)
    assert [Phase.REAL_TIME] == run.next_phases


def test_duration_of_intervals_is_set_when_it_changes() -> None:
    pacing = Pacing().of_run(4 * SHORT_INTERVAL, new_jvm_records=1_000)
    run = Driven(Phase.REAL_TIME, pacing=pacing)
    for _ in range(SHORT_INTERVALS):
        run.interval(both(10), both(10))
    assert [SHORT_INTERVAL, 2 * SHORT_INTERVAL, 4 * SHORT_INTERVAL] == run.durations


def test_ends_of_a_repetition_that_is_interrupted_itself_stay() -> None:
    run = Driven(Phase.CATCH_UP, interrupted=CUT.repeated_until(both(20)))
    run.plan(both(15), both(90))
    run.batch(both(20), both(20), both(NOW_MS))
    assert ([], [Phase.REAL_TIME]) == (run.recorded, run.next_phases)


def test_intervals_follow_if_nothing_of_the_interrupted_interval_is_left() -> None:
    cut = Interval(batch_id=8, watermark_ms=NOW_MS)
    run = Driven(Phase.CATCH_UP, interrupted=cut)
    run.plan(both(10), both(10))
    assert [Phase.REAL_TIME] == run.next_phases

    # Event times that were lost with the crash would give an earlier watermark.
    run = Driven(Phase.REAL_TIME, recorded=cut, interrupted=cut)
    run.interval(both(10), both(12))
    assert [cut] == run.recorded
    assert not run.state.keeps_watermark


def test_micro_batch_engine_has_no_phases() -> None:
    run = Driven()
    assert not run.state.needs_calls
    run.plan(both(10), both(10))
    run.batch(both(10), both(10), both(NOW_MS))
    assert ([], []) == (run.next_phases, run.recorded)


def test_limit_is_that_of_all_partitions() -> None:
    run = Driven()
    limit = run.after(EndsRequested("left", {0: 0, 1: 0}, {0: 3_000, 1: 1_000}))
    assert {0: 1_500, 1: 500} == limit
