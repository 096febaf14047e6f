"""The operator, rule by rule."""

import pytest

from job.semantics.events import Evicted, Late, NotStored, Stored
from job.semantics.operator import (
    UnsupportedJoinError,
)
from job.semantics.watermark_predicates import JoinCondition
from job.spec.join_conditions import JoinType
from tests.unit.semantics.join_builders import R, operator_plan, pairs, query

PUSH = R("push", 1000, "push")  # moves a side's watermark past everything before


def start(join_type, **options):
    observer = options.pop("observer", None)
    plan = operator_plan(join_type, **options)
    return query(plan, observer=observer) if observer else query(plan)


def run(join, left=(), right=()):
    return pairs(join.run_batch(list(left), list(right)))


def push(join):
    """A batch that moves the watermark, then the batch without data that follows it."""
    run(join, [PUSH], [PUSH._replace(key="other")])
    return run(join)


def test_rows_of_one_batch_meet_once():
    join = start(JoinType.INNER)

    assert [("l", "r")] == run(join, [R("a", 1, "l")], [R("a", 2, "r")])


def test_rows_of_different_batches_match_in_either_order_of_the_sides():
    join = start(JoinType.INNER)

    assert [] == run(join, [R("a", 1, "l1")])
    assert [("l1", "r1")] == run(join, (), [R("a", 2, "r1")])
    assert [("l2", "r1")] == run(join, [R("a", 2, "l2")])


def test_every_pair_within_the_window_is_emitted_and_no_other():
    join = start(JoinType.INNER)
    left = [R("a", at, f"l{at}") for at in (1, 2, 10)]
    right = [R("a", at, f"r{at}") for at in (1, 6, 7)]

    assert [("l1", "r1"), ("l1", "r6"), ("l2", "r6"), ("l2", "r7")] == run(join, left, right)


@pytest.mark.parametrize(
    ("join_type", "unmatched"),
    [
        (JoinType.INNER, []),
        (JoinType.LEFT_OUTER, [("l", None)]),
        (JoinType.RIGHT_OUTER, [(None, "r")]),
        (JoinType.FULL_OUTER, [("l", None), (None, "r")]),
        (JoinType.LEFT_SEMI, []),
    ],
)
def test_unmatched_rows_are_emitted_once_the_state_watermark_has_passed(join_type, unmatched):
    join = start(join_type)

    assert [] == run(join, [R("a", 1, "l")], [R("b", 1, "r")])
    assert unmatched == push(join)
    assert [] == push(join)


def test_matched_row_is_never_emitted_with_nulls():
    join = start(JoinType.FULL_OUTER)

    assert [("l", "r")] == run(join, [R("a", 1, "l")], [R("a", 1, "r")])
    assert [] == push(join)


def test_row_matched_in_the_batch_that_evicts_it_is_not_emitted_with_nulls():
    """SPARK-26154 and SPARK-38684: all matches first, then eviction."""
    join = start(JoinType.LEFT_OUTER)
    run(join, [R("a", 95, "l"), R("z", 200, "")], [R("z", 200, "")])

    # evicts left rows up to 184.999 s, while late rows are still judged by the watermark before
    assert [("l", "r")] == run(join, (), [R("a", 99, "r")])


def test_late_rows_are_dropped_and_counted_one_batch_after_the_watermark_moved():
    seen = []
    join = start(JoinType.LEFT_OUTER, observer=seen.append)
    run(join, [R("a", 100, "l")], [R("b", 100, "r")])

    second = join.run_batch([R("a", 90, "late by the new watermark only")], [])
    third = join.run_batch([R("a", 90, "late")], [R("b", 90.0001, "just in time")])

    assert (0, 90_000) == (second.watermarks.late, second.watermarks.eviction)
    assert 0 == second.output.metrics.num_dropped_by_watermark
    assert 1 == third.output.metrics.num_dropped_by_watermark
    assert ["late"] == [event.row.tag for event in seen if isinstance(event, Late)]


def test_row_failing_its_sides_filter_is_not_stored_and_is_emitted_at_once():
    join = start(JoinType.LEFT_OUTER, left_filter=lambda row: row.tag != "bad")

    batch = join.run_batch([R("a", 1, "bad")], [R("a", 1, "r")])

    assert [("bad", None)] == pairs(batch)
    assert 1 == batch.output.metrics.num_total_state_rows
    assert [] == run(join, (), [R("a", 1, "r2")])


def test_row_failing_the_filter_of_the_inner_side_just_goes():
    join = start(JoinType.LEFT_OUTER, right_filter=lambda row: row.tag != "bad")

    assert [] == run(join, [R("a", 1, "l")], [R("a", 1, "bad")])


def test_rows_that_fail_the_post_join_filter_are_not_marked_as_matched():
    join = start(JoinType.LEFT_OUTER, post=lambda _left, right: right.tag == "good")

    assert [] == run(join, [R("a", 1, "l")], [R("a", 1, "bad")])
    assert [("l", None)] == push(join)


def test_left_semi_emits_each_left_row_once_whichever_side_is_first():
    join = start(JoinType.LEFT_SEMI)

    left_of = lambda batch: sorted(row.left.tag for row in batch.output.rows)  # noqa: E731
    assert ["l"] == left_of(join.run_batch([R("a", 1, "l")], [R("a", 1, "r"), R("a", 2, "r2")]))
    assert [] == left_of(join.run_batch([], [R("a", 3, "r3")]))
    assert ["m"] == left_of(join.run_batch([R("a", 1, "m")], []))


def test_left_semi_keeps_no_left_row_that_was_emitted():
    join = start(JoinType.LEFT_SEMI)
    run(join, [R("a", 1, "l")])

    batch = join.run_batch([R("a", 2, "m")], [R("a", 3, "r")])

    assert 1 == batch.output.metrics.num_total_state_rows  # r
    assert 1 == batch.output.metrics.num_removed_state_rows  # l; m was never stored


def test_left_semi_misses_a_right_row_in_the_batch_that_would_evict_it():
    """Spark's defect, kept: right rows go first and are not stored if evictable."""
    outcomes = {}
    for join_type in (JoinType.INNER, JoinType.LEFT_SEMI):
        join = start(join_type)
        run(join, [R("x", 100, "")], [R("x", 100, "")])
        batch = join.run_batch([R("a", 50, "l")], [R("a", 50, "r")])
        outcomes[join_type] = [row.left.tag for row in batch.output.rows]

    assert {JoinType.INNER: ["l"], JoinType.LEFT_SEMI: []} == outcomes


def test_right_row_behind_the_state_watermark_is_not_stored_but_a_left_one_is():
    seen = []
    join = start(JoinType.INNER, observer=seen.append)
    run(join, [R("x", 100, "")], [R("x", 100, "")])
    seen.clear()

    # this batch evicts right rows at or before 89.999 s; the late-row watermark is still 0
    run(join, [R("a", 50, "l")], [R("a", 50, "r")])

    assert ["l"] == [event.row.tag for event in seen if isinstance(event, Stored)]
    assert ["r"] == [event.row.tag for event in seen if isinstance(event, NotStored)]


def test_right_row_behind_the_state_watermark_is_stored_where_eviction_emits_it():
    join = start(JoinType.RIGHT_OUTER)
    run(join, [R("x", 100, "")], [R("x", 100, "")])

    assert [(None, "r")] == run(join, (), [R("a", 50, "r")])


def test_state_is_evicted_by_the_key_if_the_key_holds_the_event_time():
    join = start(
        JoinType.LEFT_OUTER,
        condition=JoinCondition(),
        key_is_time=True,
        post=lambda _left, _right: True,
    )
    run(join, [R(1, 1, "l"), R(1000, 1000, "")], [R(1000, 1000, "")])

    assert [("l", None)] == run(join)


def test_without_a_bound_nothing_is_ever_evicted():
    join = start(JoinType.INNER, condition=JoinCondition(), post=lambda _left, _right: True)
    run(join, [R("a", 1, "l")], [R("b", 1, "r")])
    push(join)

    assert not join.needs_batch_without_data()
    assert [("l", "r9")] == run(join, (), [R("a", 999, "r9")])


def test_batch_without_data_is_due_when_the_watermark_has_moved_and_not_again():
    join = start(JoinType.INNER)
    assert not join.needs_batch_without_data()
    run(join, [R("a", 100, "")], [R("a", 100, "")])
    assert join.needs_batch_without_data()

    run(join)

    assert not join.needs_batch_without_data()


def test_restart_keeps_state_and_watermark_and_starts_no_batch():
    join = start(JoinType.LEFT_OUTER)
    run(join, [R("a", 1, "l"), PUSH], [R("a", 1, "r"), PUSH._replace(key="other")])

    join.restart()

    assert not join.needs_batch_without_data()
    batch = join.run_batch([], [])
    assert 990_000 == batch.watermarks.eviction
    assert [] == pairs(batch)


def test_evictions_tell_the_predicate_that_caused_them():
    seen = []
    join = start(JoinType.LEFT_OUTER, observer=seen.append)
    run(join, [R("a", 1, "l")], [])
    push(join)

    (evicted,) = [event for event in seen if isinstance(event, Evicted)]

    assert ("l", True, 984_999) == (
        evicted.row.tag,
        evicted.null_padded,
        evicted.predicate.watermark_ms,
    )


@pytest.mark.parametrize("join_type", [JoinType.LEFT_ANTI, JoinType.RIGHT_ANTI])
def test_other_join_types_are_refused_in_sparks_words(join_type):
    with pytest.raises(UnsupportedJoinError, match=f"should not take {join_type} as the JoinType"):
        operator_plan(join_type)
