"""Delay before the retry of a query that failed with a temporary error."""

from datetime import timedelta

_FIRST_SECONDS = 1.0
# More than any maximum delay needs. Without a bound, a day without Kafka overflows the float.
_DOUBLINGS_MAX = 20


def retry_delay(retries: int, max_seconds: float) -> timedelta:
    """Doubles with each of the `retries` since the last progress, up to `max_seconds`."""
    seconds = _FIRST_SECONDS * 2 ** min(retries, _DOUBLINGS_MAX)
    return timedelta(seconds=min(max_seconds, seconds))
