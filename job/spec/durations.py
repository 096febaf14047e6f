"""Durations such as "10 seconds" or "1 hour 30 minutes", and ISO-8601 times."""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, PlainSerializer, WithJsonSchema

from job.instants import EPOCH

_UNITS = {
    "millisecond": timedelta(milliseconds=1),
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
    "week": timedelta(weeks=1),
}
_ROUNDED = {"d": 86_400, "h": 3_600, "min": 60, "s": 1}
_SHORT = {"ms": "millisecond", "s": "second", "sec": "second", "min": "minute", "h": "hour"}
_LONGEST = timedelta(days=100_000_000)
"""An event time shifted by more than this is outside the range of Spark's TIMESTAMP."""
_PART = re.compile(r"\s*(\d+)\s*([a-z]+)\s*")
_HINT = 'write a number with a unit, e.g. "10 seconds", "1 hour 30 minutes" or "500 milliseconds"'


def duration(text: str) -> timedelta:
    """`text` as a timedelta. A leading minus negates all parts. ValueError if `text` is invalid."""
    body = text.strip().lower()
    sign, body = (-1, body[1:]) if body.startswith("-") else (1, body)
    total, end = timedelta(0), 0
    while part := _PART.match(body, end):
        number, unit = part.groups()
        unit = _SHORT.get(unit, unit.removesuffix("s"))
        if unit not in _UNITS:
            raise ValueError(f"has an unknown unit {part[2]!r}: {_HINT}")
        # int() refuses more than 4,300 digits.
        if len(number) > 20 or abs(total := total + _times(int(number), unit)) > _LONGEST:
            raise ValueError(f"is longer than {_LONGEST.days:,} days: use a shorter duration")
        end = part.end()
    if end == 0 or end != len(body):
        raise ValueError(f"is not a duration: {_HINT}")
    return sign * total


def _times(number: int, unit: str) -> timedelta:
    """`number` units, but at most twice the longest duration, to avoid an overflow."""
    most = 2 * _LONGEST // _UNITS[unit]
    return min(number, most) * _UNITS[unit]


def duration_text(value: timedelta) -> str:
    """`value` in the notation of `duration`, in the largest units that fit."""
    if value == timedelta(0):
        return "0 seconds"
    sign, rest, parts = ("-", -value, []) if value < timedelta(0) else ("", value, [])
    for unit, size in reversed(_UNITS.items()):
        if unit == "week":  # "8 days" is clearer than "1 week 1 day"
            continue
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count} {unit}{'' if count == 1 else 's'}")
    return sign + " ".join(parts)


def rounded_text(value: timedelta) -> str:
    """`value` in at most two units, for a sentence: `12.3 s`, `4 min 5 s`, `3 h`, `2 d 3 h`. The
    sign is dropped."""
    seconds = abs(value.total_seconds())
    if round(seconds, 1) < 60:
        return f"{seconds:.1f} s"
    smallest = 1 if seconds < 3_600 else 60 if seconds < 86_400 else 3_600
    rest, parts = round(seconds / smallest) * smallest, []
    for unit, size in _ROUNDED.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count:,} {unit}")
    return " ".join(parts)


def milliseconds(value: timedelta) -> int:
    return value // timedelta(milliseconds=1)


def instant(text: str) -> datetime | None:
    """`text` as a time in UTC. None: `text` is not ISO-8601 or has no offset from UTC."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    try:
        return parsed.astimezone(UTC) if parsed.tzinfo else None
    except OverflowError:  # within a day of the minimum or maximum of datetime
        return None


def instant_text(time: datetime) -> str:
    """ISO-8601 in UTC, as short as possible."""
    return time.astimezone(UTC).isoformat().replace("+00:00", "Z")


def _from_spec(value: Any) -> Any:
    if isinstance(value, timedelta):
        return value
    if not isinstance(value, str):
        raise ValueError(f"needs a unit: {_HINT}")
    return duration(value)


def _positive(value: timedelta) -> timedelta:
    if value <= timedelta(0):
        raise ValueError("must be positive")
    return value


def _delay(value: timedelta) -> timedelta:
    if value < timedelta(milliseconds=1):
        raise ValueError("must be at least 1 millisecond")
    return value


def _event_time(value: Any) -> datetime:
    time = value if isinstance(value, datetime) else instant(str(value))
    if time is None:
        raise ValueError("must be an ISO-8601 time with an offset: write e.g. 1980-01-01T00:00:00Z")
    if time <= EPOCH:
        raise ValueError(
            "must be later than 1970-01-01T00:00:00Z, where Spark's watermark begins: write e.g. "
            "1970-01-01T00:00:00.001Z"
        )
    return time


Duration = Annotated[
    timedelta,
    BeforeValidator(_from_spec),
    PlainSerializer(duration_text),
    WithJsonSchema({"type": "string", "examples": ["10 seconds", "1 hour"]}),
]
PositiveDuration = Annotated[Duration, AfterValidator(_positive)]
# With a delay of 0 Spark drops rows whose event time equals the newest one (apache/spark#56043).
Delay = Annotated[Duration, AfterValidator(_delay)]
EventTime = Annotated[
    datetime,
    BeforeValidator(_event_time),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
