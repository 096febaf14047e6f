"""Simulating a join that picks one match of each left row."""

import json

import pytest

from tests.unit.semantics.simulations import plan, row, run, values
from tests.unit.specs import plan as plan_of
from tests.unit.specs import problems

WINDOW = {"before": "5 s", "after": "5 s"}
CLOSING = [row(9, 100)]


def picked(pick, right, join_type="left_outer", left=None, **changes):
    made = plan(join={"type": join_type, "match_window": WINDOW, "pick": pick}, **changes)
    rows = left or [row(1, 10)]
    batches = run(made, [*rows, *CLOSING], [*right, *CLOSING])
    found = [each for batch in values(batches) for each in batch]
    return [each["rv"] for each in found if each["k"] == 1]


@pytest.mark.parametrize(("pick", "value"), [("latest", 14), ("earliest", 6), ("nearest", 9)])
def test_each_left_row_has_one_match(pick, value):
    right = [row(1, at, at) for at in (4, 6, 9, 12, 14, 16)]

    assert [value] == picked(pick, right)


def test_of_two_equally_near_the_earlier_one_is_picked():
    assert [8] == picked("nearest", [row(1, 12, 12), row(1, 8, 8)])


@pytest.mark.parametrize("pick", ["latest", "earliest", "nearest"])
def test_of_two_at_the_same_time_the_larger_offset_is_picked(pick):
    assert [2] == picked(pick, [row(1, 8, 1), row(1, 8, 2)])


def test_row_without_a_match_is_unmatched():
    assert [None] == picked("latest", [row(1, 16)])
    assert [] == picked("latest", [row(1, 16)], "inner")


def test_right_row_is_the_match_of_several_left_rows():
    assert [7, 7] == picked("latest", [row(1, 9, 7)], left=[row(1, 8), row(1, 10)])


def test_match_must_meet_the_condition():
    join = {"type": "inner", "match_window": WINDOW, "pick": "latest", "condition": "right.v < 9"}
    made = plan(join=join)
    batches = run(made, [row(1, 10), *CLOSING], [row(1, 9, 5), row(1, 12, 50), *CLOSING])

    assert [5] == [json.loads(each.value)["rv"] for batch in batches for each in batch.output]


def test_right_row_waits_for_left_rows_and_their_windows():
    join = {"type": "inner", "pick": "latest"}
    both = plan_of(join={**join, "match_window": {"before": "1 minute", "after": "1 hour"}})
    before = plan_of(join={**join, "match_window": {"before": "1 hour", "after": "-1 minute"}})

    assert both.right.retention is not None
    assert 3_660 == both.right.retention.total_seconds()
    assert before.right.retention is not None
    assert 3_600 == before.right.retention.total_seconds()


@pytest.mark.parametrize(
    ("join", "message"),
    [
        ({"type": "full_outer", "match_window": WINDOW}, "has pick and type full_outer"),
        ({"type": "inner", "window": "1 minute"}, "has pick and no match_window"),
        (
            {"type": "inner", "match_window": WINDOW, "operator": "spark"},
            "has pick and operator spark",
        ),
    ],
)
def test_join_that_cannot_pick_is_refused(join, message):
    assert problems(join={**join, "pick": "latest"})["join"].startswith(message)


def test_condition_that_can_fail_is_refused():
    join = {"type": "inner", "match_window": WINDOW, "pick": "latest"}
    condition = "left.cost / right.ad_id > 1"

    assert (
        "cannot report the pair"
        in problems(join={**join, "condition": condition})["join.condition"]
    )
