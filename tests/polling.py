"""The only place where tests wait: for a condition, never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

PAUSE_SECONDS = 0.05
PAUSE_MAX_SECONDS = 0.25


def wait_until(condition: Callable[[], T], timeout: float, what: str) -> T:
    """Return the first true value of the condition; fail with `what` after `timeout` s.

    The pauses get longer, because each question takes CPU time from what the test waits for.
    """
    deadline = time.monotonic() + timeout
    pause = PAUSE_SECONDS
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout} s in vain until {what}; last seen: {value!r}")
        time.sleep(pause)
        pause = min(pause * 1.1, PAUSE_MAX_SECONDS)
    return value
