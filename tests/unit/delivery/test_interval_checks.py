"""A change stops the query of the real-time engine only if nothing is left to repeat."""

import pytest

from tests.unit.delivery.interval_checks import (
    BEFORE_THE_PLANNED_BATCH,
    CHECK_BUGS,
    checked_world,
    violation_of_a_check,
)
from tests.unit.delivery.schedules import run_worlds

# `python -m tests.unit.delivery.explore_intervals --checks` explores more.
SCHEDULES = 400
# Searched from the schedule that showed the bug when it was planted.
SCHEDULES_FOR_A_BUG = 1_000


def test_query_that_stops_after_the_check_of_a_change_has_repeated_everything() -> None:
    wrong, made = run_worlds(checked_world, SCHEDULES, ("stops", "waits", "hidden"))
    assert {} == wrong
    assert min(made.values()) > SCHEDULES // 10, made


@pytest.mark.parametrize(
    ("bug", "first"),
    [
        (BEFORE_THE_PLANNED_BATCH, 0),
        *((bug, first) for bug, (_, _, first) in CHECK_BUGS.items()),
    ],
)
def test_bug_in_the_check_is_seen(bug: str, first: int) -> None:
    numbers = range(first, first + SCHEDULES_FOR_A_BUG)
    assert any(violation_of_a_check(number, bug) for number in numbers)
