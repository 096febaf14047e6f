"""Filters on a key column that also apply to the other side."""

import pytest

from job.plan.explain import explained
from tests.unit.specs import plan


def mirrored(side, **changes):
    is_right_only = changes.get("join__type") in {"right_semi", "right_anti"}
    both = {
        "left__schema": "k INT, g STRING, t TIMESTAMP, v INT",
        "left__key": ["k", "g"],
        "left__event_time": "t",
        "right__schema": "n INT, h STRING, t TIMESTAMP, v INT",
        "right__key": ["n", "h"],
        "right__event_time": "t",
        "output__columns": {"v": "right.v" if is_right_only else "left.v"},
    }
    made = plan(**{**both, **changes})
    return [part.sql for part in made.side(side).mirrored]


@pytest.mark.parametrize(
    ("join_type", "of_left", "of_right"),
    [
        ("inner", ["`left_k` < 5"], ["`right_n` = 7"]),
        ("left_semi", ["`left_k` < 5"], ["`right_n` = 7"]),
        ("left_outer", [], ["`right_n` = 7"]),
        ("left_anti", [], ["`right_n` = 7"]),
        ("right_semi", ["`left_k` < 5"], ["`right_n` = 7"]),
        ("right_anti", ["`left_k` < 5"], []),
        ("right_outer", ["`left_k` < 5"], []),
        ("full_outer", [], []),
    ],
)
def test_only_a_side_whose_rows_need_a_match_is_filtered(join_type, of_left, of_right):
    changes = {"join__type": join_type, "left__filter": "k = 7", "right__filter": "n < 5"}

    assert (of_left, of_right) == (mirrored("left", **changes), mirrored("right", **changes))


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("k = 7 and v > 3 and g <> 'x'", ["`right_n` = 7", "`right_h` <> 'x'"]),
        ("k between -1 and 5", ["`right_n` between -1 and 5"]),
        ("k in (1, 2)", ["`right_n` in (1, 2)"]),
        ("k = '7'", ["`right_n` = '7'"]),
        ("g > 5", []),
        ("k = v", []),
        ("k / v = 1", []),
        ("k = 1 or v = 2", []),
        ("v = 1", []),
    ],
)
def test_comparison_of_one_key_column_with_literals_is_mirrored(written, found):
    assert found == mirrored("right", join__type="inner", left__filter=written)


def test_filter_on_a_computed_key_is_not_mirrored():
    assert [] == mirrored("right", left__filter="k = 7", right__key=["n + 0", "h"])


def test_one_sided_condition_on_a_key_is_mirrored():
    assert ["`left_k` = 7"] == mirrored(
        "left", join__type="inner", join__condition="right.n = 7 and left.v < right.v"
    )


def test_plan_shows_the_mirrored_filter():
    text = explained(plan(left__filter="ad_id = 7"), None)

    assert "only rows that can match: right.ad_id = 7" in text
