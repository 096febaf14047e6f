"""Times as people write them: "10 seconds", "1 hour 30 minutes", "2026-01-31T12:00:00Z"."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

_UNITS = {
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_SHORT = {"ms": "millisecond", "s": "second", "sec": "second", "min": "minute", "h": "hour"}
_LONGEST = timedelta(days=100_000_000)
"""An event time moved by more than this is beyond what a TIMESTAMP of Spark holds."""
_PART = re.compile(r"\s*(\d+)\s*([a-z]+)\s*")
_HINT = 'write a number with a unit, e.g. "10 seconds", "1 hour 30 minutes" or "500 milliseconds"'


def duration(text: str) -> timedelta:
    """`text` as a timedelta; a leading minus makes all of it negative. ValueError otherwise."""
    body = text.strip().lower()
    sign, body = (-1, body[1:]) if body.startswith("-") else (1, body)
    total, end = timedelta(0), 0
    while part := _PART.match(body, end):
        number, unit = part.groups()
        unit = _SHORT.get(unit, unit.removesuffix("s"))
        if unit not in _UNITS:
            raise ValueError(f"has an unknown unit {part[2]!r}: {_HINT}")
        # Python reads no integer of more than 4,300 digits.
        if len(number) > 20 or abs(total := total + _times(int(number), unit)) > _LONGEST:
            raise ValueError(f"is longer than {_LONGEST.days:,} days: write a shorter one")
        end = part.end()
    if end == 0 or end != len(body):
        raise ValueError(f"is not a duration: {_HINT}")
    return sign * total


def _times(number: int, unit: str) -> timedelta:
    """As many of the unit, or twice the longest duration where that is shorter."""
    most = 2 * _LONGEST // _UNITS[unit]
    return min(number, most) * _UNITS[unit]


def duration_text(value: timedelta) -> str:
    """`value` as `duration` reads it, in the largest units that fit, e.g. "1 hour 30 minutes"."""
    if value == timedelta(0):
        return "0 seconds"
    sign, rest, parts = ("-", -value, []) if value < timedelta(0) else ("", value, [])
    for unit, size in reversed(_UNITS.items()):
        if unit == "week":  # "8 days" reads better than "1 week 1 day"
            continue
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
    return sign + " ".join(parts)


def milliseconds(value: timedelta) -> int:
    return value // timedelta(milliseconds=1)


def instant(text: str) -> datetime | None:
    """`text` as a point in time, None where it is none or says no offset from UTC."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        return parsed.astimezone(UTC) if parsed.tzinfo else None
    except OverflowError:  # within a day of the first or the last time that Python supports
        return None


def _from_spec(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError(f"needs a unit: {_HINT}")
    return duration(value)


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be longer than nothing")
    return value


def _delay(value: timedelta) -> timedelta:
    if value < timedelta(milliseconds=1):
        raise ValueError("must be at least 1 millisecond")
    return value


Duration = Annotated[
    timedelta,
    BeforeValidator(_from_spec),
    PlainSerializer(duration_text),
    WithJsonSchema({"type": "string", "examples": ["10 seconds", "1 hour"]}),
]
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
# With a delay of 0 Spark drops rows whose event time equals the newest one (apache/spark#56043).
Delay = Annotated[Duration, AfterValidator(_delay)]
