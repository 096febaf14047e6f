"""Tumbling windows: their size, and where they begin.

Windows in a time zone are calendar days: each begins and ends at a local midnight, so a day on
which clocks change has 23 or 25 hours. If a day has no midnight, it begins with its first moment.
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Discriminator, Tag, ValidationInfo, field_validator

from job.spec.durations import Duration, PositiveDuration, duration_text, milliseconds
from job.spec.frozen import Frozen
from job.sql.time_zones import UTC, in_time_zone

_DAY = timedelta(days=1)


class TumblingWindow(Frozen):
    """Windows of one size, which follow each other without a gap."""

    size: PositiveDuration
    """Length of a window."""
    offset: Duration = timedelta(0)
    """How much later than a multiple of `size` after 1970-01-01T00:00:00Z each window begins, as
    `startTime` of Spark's `window`. At least 0 and shorter than `size`."""
    time_zone: str = UTC
    """Time zone of the windows, as in `left.time_zone`. In another zone than UTC, windows are
    calendar days of the zone, also when clocks change: `size` and `offset` are whole days."""

    @field_validator("offset")
    @classmethod
    def _within_a_window(cls, offset: timedelta, info: ValidationInfo) -> timedelta:
        size = info.data.get("size")
        if size is not None and not timedelta(0) <= offset < size:
            raise ValueError(
                f"must be at least 0 and shorter than the size, {duration_text(size)}: write "
                f"{duration_text(offset % size)}, which gives the same windows"
            )
        return offset

    def contradictions(self) -> Iterator[str]:
        if self.time_zone == UTC:
            return
        for name, duration in (("size", self.size), ("offset", self.offset)):
            if duration % _DAY:
                yield (
                    f"has the {name} {duration_text(duration)} and the time_zone {self.time_zone}, "
                    "whose windows are calendar days: write a whole number of days, or remove the "
                    "time_zone"
                )

    def __str__(self) -> str:
        offset = f", offset {duration_text(self.offset)}" if self.offset else ""
        zone = "" if self.time_zone == UTC else f", time zone {self.time_zone}"
        return f"{duration_text(self.size)}{offset}{zone}"

    def end_sql(self, event_time: str) -> str:
        """SQL of the end of the window that contains an event time, in epoch milliseconds."""
        size, offset = milliseconds(self.size), milliseconds(self.offset)
        return window_end_sql(event_time, size, offset, self.time_zone)


def window_end_sql(event_time: str, size_ms: int, offset_ms: int, time_zone: str) -> str:
    """`TumblingWindow.end_sql` of a window with these properties."""
    if time_zone == UTC:
        millis = f"unix_millis({event_time})"
        return f"{millis} - pmod({millis} - {offset_ms}, {size_ms}) + {size_ms}"
    size, offset = (timedelta(milliseconds=value) // _DAY for value in (size_ms, offset_ms))
    day = f"unix_date(cast({event_time} AS DATE))"
    next_day = f"date_from_unix_date({day} - pmod({day} - {offset}, {size}) + {size})"
    return in_time_zone(f"unix_millis(cast({next_day} AS TIMESTAMP))", time_zone)


def _form(value: Any) -> str:
    return "[mapping]" if isinstance(value, dict | TumblingWindow) else "[duration]"


WindowField = Annotated[
    Annotated[PositiveDuration, Tag("[duration]")] | Annotated[TumblingWindow, Tag("[mapping]")],
    Discriminator(_form),
]
"""A size, or a mapping with size, offset and time_zone."""
