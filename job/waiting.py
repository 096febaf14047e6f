"""Polling with a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value], seconds: float, pause_seconds: float) -> Value:
    """Call `condition` until it returns a true value or `seconds` have passed.

    Returns the last value. A false value: the deadline has passed.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()) and time.monotonic() < deadline:
        time.sleep(pause_seconds)
    return value
