"""Waits for a condition, with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_SECONDS = 0.1


def wait_until(condition: Callable[[], T], seconds: float, describe: Callable[[], str]) -> T:
    """The first true value of `condition`. After `seconds`, raises AssertionError: `describe()`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s {describe()}")
        time.sleep(PAUSE_SECONDS)
    return value
