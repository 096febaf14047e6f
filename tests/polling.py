"""The only place where tests wait: for a condition, never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_SECONDS = 0.05


def wait_until(condition: Callable[[], T], timeout: float, what: str) -> T:
    """Return the first true value of the condition; fail with `what` after `timeout` s."""
    deadline = time.monotonic() + timeout
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s in vain until {what}; last seen: {value!r}")
        time.sleep(PAUSE_SECONDS)
    return value
