"""Schedules of a model, and the search for violations.

A schedule is a string of bytes: each chooses who takes the next step, and whether it fails. After
the last byte nothing fails, and the run must end without an error.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any

QUERY = "q"


class ViolationError(AssertionError):
    """What must never be was seen."""


def run_worlds(
    world_of: Callable[[int], Any], count: int, counters: Sequence[str]
) -> tuple[dict[int, str], dict[str, int]]:
    """The violations of the worlds 0 to `count`, by number, and the sums of their `counters`."""
    wrong: dict[int, str] = {}
    made = dict.fromkeys(counters, 0)
    for number in range(count):
        world = world_of(number)
        try:
            world.run()
        except ViolationError as error:
            wrong[number] = str(error)
        for name in made:
            made[name] += getattr(world, name)
    return wrong, made


class Schedule:
    def __init__(self, tape: bytes) -> None:
        self._tape = iter(tape)
        self.is_over = False

    def choose(self) -> int:
        """0 to 255; 0, where nothing goes wrong, once it is used up."""
        value = next(self._tape, None)
        self.is_over = value is None
        return value or 0


def random_schedule(number: int, length_max: int) -> Schedule:
    chance = random.Random(number)
    return Schedule(chance.randbytes(chance.randrange(length_max)))
