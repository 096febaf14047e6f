"""Which state may go; tests/semantics/test_predicates_of_spark.py asks Spark's own plans."""

import pytest

from job.semantics.watermark_predicates import (
    JoinCondition,
    WatermarkPredicate,
    state_value_watermark,
    state_watermark_predicates,
)

W = 1_000_000

# left - before <= right <= left + after in ms, bound of the left side, of the right side, at W
TABLE = [
    (JoinCondition(before_ms=0), None, W - 1),
    (JoinCondition(after_ms=0), W - 1, None),
    (JoinCondition(before_ms=2_000, after_ms=5_000), W - 5_001, W - 2_001),
    (JoinCondition(before_ms=-60_000, after_ms=90_000), W - 90_001, W + 59_999),
    (JoinCondition(), None, None),
]


@pytest.mark.parametrize(("condition", "left", "right"), TABLE)
def test_bound_on_each_side_at_a_watermark(
    condition: JoinCondition, left: int | None, right: int | None
) -> None:
    bounds = [state_value_watermark(condition, side, W) for side in ("left", "right")]

    assert [left, right] == bounds


def test_key_that_carries_the_watermark_bounds_both_sides_by_the_key() -> None:
    condition = JoinCondition(has_time_in_key=True)

    predicates = state_watermark_predicates(condition, eviction_ms=W, late_ms=W - 7)

    assert WatermarkPredicate("key", W, W - 7) == predicates.left == predicates.right


def test_without_a_bound_there_is_no_predicate() -> None:
    predicates = state_watermark_predicates(JoinCondition(), eviction_ms=W, late_ms=W)

    assert predicates.left is None
    assert predicates.right is None
    assert not predicates.any_defined


def test_bound_ahead_of_the_late_watermark_does_not_mark_the_end_of_the_last_scan() -> None:
    """Rows between the two may still come in, and must be found by the next scan (format 4)."""
    ahead, behind = JoinCondition(before_ms=-60_000), JoinCondition(before_ms=60_000)

    assert (
        WatermarkPredicate("value", W + 59_999, None)
        == state_watermark_predicates(ahead, eviction_ms=W, late_ms=W - 7).right
    )
    assert (
        WatermarkPredicate("value", W - 60_001, W - 60_008)
        == state_watermark_predicates(behind, eviction_ms=W, late_ms=W - 7).right
    )
