"""Which state may go; tests/semantics/test_predicates_of_spark.py asks Spark's own plans."""

import pytest

from job.semantics.watermark_predicates import (
    JoinCondition,
    WatermarkPredicate,
    state_value_watermark,
    state_watermark_predicates,
)
from tests.unit.semantics.join_builders import conjuncts

W = 1_000_000
BOTH = {"left": "t", "right": "t"}

# condition, bound of the left side, bound of the right side, at watermark W
TABLE = [
    ("left.t < right.t", None, W),
    ("left.t <= right.t", None, W - 1),
    ("left.t > right.t", W, None),
    ("left.t >= right.t", W - 1, None),
    ("right.t > left.t", None, W),
    ("right.t >= left.t", None, W - 1),
    ("right.t <= left.t + interval 5 seconds", W - 5_001, None),
    ("right.t < left.t + interval 5 seconds", W - 5_000, None),
    ("left.t + interval 5 seconds >= right.t", W - 5_001, None),
    ("right.t - interval 5 seconds <= left.t", W - 5_001, None),
    ("interval 5 seconds + left.t > right.t", W - 5_000, None),
    ("right.t >= left.t - interval 2 seconds", None, W - 2_001),
    ("right.t - interval 1 day > left.t + interval 1 hour", None, W + 90_000_000),
    ("left.t > right.t - interval '1:30' minute to second", W - 90_000, None),
    ("left.t - -interval 5 seconds > right.t", W - 5_000, None),
    ("right.t <= left.t + interval 1 month", None, None),
    ("left.t = right.t", None, None),
    ("left.t <> right.t", None, None),
    ("left.t - right.t <= interval 5 seconds", None, None),
    ("date_trunc('HOUR', left.t) <= right.t", None, None),
    ("left.t + interval 1 millisecond * 2 > right.t", W - 2, None),
    ("cast(left.t as bigint) >= cast(right.t as bigint) - 5", W - 5_001, None),
    ("cast(left.t as double) > cast(right.t as double) + 1.5", W + 1_500, None),
    ("left.a < right.a + 1", None, None),
    ("cast(left.t as double) + cast(left.t as double) > cast(right.t as double)", None, None),
    ("right.t >= left.t and right.t <= left.t + interval 5 seconds", W - 5_001, W - 1),
    ("right.t > left.t and right.t > left.t - interval 9 seconds", None, W - 9_000),
    ("(right.t >= left.t)", None, W - 1),
    ("right.t >= left.t or right.t <= left.t", None, None),
]


@pytest.mark.parametrize(("condition", "left", "right"), TABLE)
def test_bound_on_each_side_at_a_watermark(condition, left, right):
    on = JoinCondition(BOTH, conjuncts=conjuncts(condition))

    assert (left, right) == tuple(state_value_watermark(on, side, W) for side in ("left", "right"))


def test_any_comparison_with_a_column_is_taken_for_a_bound_on_event_time():
    """Spark's defect, kept: 5 is five seconds after the epoch, and the lowest bound counts."""
    on = JoinCondition(
        BOTH, conjuncts=conjuncts("left.cost > 5 and right.t <= left.t + interval 5 seconds")
    )

    assert 5_000 == state_value_watermark(on, "left", W)


def test_bound_on_another_column_is_taken_for_one_on_the_event_time():
    """Spark's defect, kept: it says nothing of when right rows end, yet they go by it."""
    on = JoinCondition(BOTH, conjuncts=conjuncts("left.t < right.expires"))

    assert W == state_value_watermark(on, "right", W)


def test_key_that_carries_the_watermark_bounds_both_sides_by_the_key():
    on = JoinCondition(BOTH, {"left": 1})

    predicates = state_watermark_predicates(on, eviction_ms=W, late_ms=W - 7)

    assert WatermarkPredicate("key", W, W - 7) == predicates.left
    assert WatermarkPredicate("key", W, None) == predicates.right


def test_key_wins_over_a_range_condition():
    on = JoinCondition(BOTH, {"left": 0, "right": 0}, conjuncts("right.t >= left.t"))

    assert "key" == state_watermark_predicates(on, eviction_ms=W, late_ms=W).left.on


def test_without_a_bound_there_is_no_predicate():
    predicates = state_watermark_predicates(JoinCondition(BOTH), eviction_ms=W, late_ms=W)

    assert predicates.left is None
    assert predicates.right is None
    assert not predicates.any_defined


def test_side_is_bounded_by_the_other_sides_watermark_and_only_if_it_has_one_itself():
    condition = conjuncts("right.t >= left.t and right.t <= left.t + interval 5 seconds")
    left_only = JoinCondition({"left": "t"}, conjuncts=condition)

    predicates = state_watermark_predicates(left_only, eviction_ms=W, late_ms=W)

    assert predicates.left is None  # bounded by the right side, which has no watermark
    assert predicates.right is None  # bounded, but has no event time to evict by


def test_bound_ahead_of_the_late_watermark_does_not_mark_the_end_of_the_last_scan():
    """Rows between the two may still come in, and must be found by the next scan (format 4)."""
    ahead = JoinCondition(BOTH, conjuncts=conjuncts("right.t >= left.t + interval 60 seconds"))
    behind = JoinCondition(BOTH, conjuncts=conjuncts("right.t >= left.t - interval 60 seconds"))

    assert (
        WatermarkPredicate("value", W + 59_999, None)
        == state_watermark_predicates(ahead, eviction_ms=W, late_ms=W - 7).right
    )
    assert (
        WatermarkPredicate("value", W - 60_001, W - 60_008)
        == state_watermark_predicates(behind, eviction_ms=W, late_ms=W - 7).right
    )
