"""Each row is out once, whenever the query of the real-time engine is changed."""

import pytest

from tests.unit.delivery.interval_changes import CHANGE_BUGS, changing_world, violation_of_a_change
from tests.unit.delivery.schedules import run_worlds

# `python -m tests.unit.delivery.explore_intervals --changes` explores more.
SCHEDULES = 400
# Searched from the schedule that showed the bug when it was planted.
SCHEDULES_FOR_A_BUG = 3_000


def test_each_row_is_out_once_if_changes_and_undos_are_killed_at_any_step() -> None:
    wrong, made = run_worlds(changing_world, SCHEDULES, ("changes", "refusals", "undone"))
    assert {} == wrong
    assert min(made.values()) > SCHEDULES // 20, made


@pytest.mark.parametrize("bug", CHANGE_BUGS)
def test_bug_in_the_change_is_seen(bug: str) -> None:
    first = CHANGE_BUGS[bug]
    numbers = range(first, first + SCHEDULES_FOR_A_BUG)
    assert any(violation_of_a_change(number, bug) for number in numbers)
