"""Delay before the next try of a query that failed for a temporary reason."""

from datetime import timedelta

_FIRST_SECONDS = 1.0
# More doublings than any maximum delay needs; without a bound, a day without Kafka overflows.
_DOUBLINGS_MAX = 20


def retry_delay(retries: int, max_seconds: float) -> timedelta:
    """Doubles with each of the `retries` since the last progress, up to `max_seconds`."""
    seconds = _FIRST_SECONDS * 2 ** min(retries, _DOUBLINGS_MAX)
    return timedelta(seconds=min(max_seconds, seconds))
