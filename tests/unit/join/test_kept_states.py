"""The rows on the heap are those of the version of the store that a task has loaded."""

import random
from collections.abc import Mapping
from typing import Any

import pytest

from tests.unit.join.kept_states_model import World, WrongContentError

SCHEDULES, STEPS = 20_000, 40

KEPT_BUGS: Mapping[str, dict[str, Any]] = {
    "kept state used without a check": {"is_content": lambda *_: True},
    "kept state checked by the number of its version": {
        "is_content": lambda kept, loaded: kept.number == loaded.number
    },
    "kept state not removed when it is used": {"takes": False},
    "kept state with the id that was loaded": {"keeps": lambda task: task.loaded.id},
}


def explored(**bug: Any) -> int:
    """How often a kept state was used, in all schedules."""
    reuses = 0
    for seed in range(SCHEDULES):
        world = World(random.Random(seed), **bug)
        for _ in range(STEPS):
            world.step()
        reuses += world.reuses
    return reuses


def test_task_has_the_rows_of_the_version_that_it_has_loaded() -> None:
    assert explored() > 1_000


@pytest.mark.parametrize("name", KEPT_BUGS)
def test_bug_planted_in_the_protocol_of_kept_states_is_caught(name: str) -> None:
    with pytest.raises(WrongContentError):
        explored(**KEPT_BUGS[name])
