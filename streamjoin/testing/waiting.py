"""The one place where the harness waits: for a condition, until a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_SECONDS = 0.1


def wait_until(condition: Callable[[], T], seconds: float, told: Callable[[], str]) -> T:
    """The condition's first true value; AssertionError with what `told` says after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"after {seconds:g} s {told()}")
        time.sleep(PAUSE_SECONDS)
    return value
