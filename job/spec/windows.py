"""Tumbling windows: their size, and where they begin."""

from datetime import timedelta
from typing import Annotated, Any

from pydantic import Discriminator, Tag, ValidationInfo, field_validator

from job.spec.durations import Duration, PositiveDuration, duration_text, milliseconds
from job.spec.frozen import Frozen


class TumblingWindow(Frozen):
    """Windows of one size, which follow each other without a gap."""

    size: PositiveDuration
    """Length of a window."""
    offset: Duration = timedelta(0)
    """How much later than a multiple of `size` after 1970-01-01T00:00:00Z each window begins, as
    `startTime` of Spark's `window`. At least 0 and shorter than `size`."""

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

    def __str__(self) -> str:
        size = duration_text(self.size)
        return f"{size}, offset {duration_text(self.offset)}" if self.offset else size

    def end_ms(self, event_time_ms: int) -> int:
        """The end of the window that contains an event time, in epoch milliseconds."""
        size, offset = milliseconds(self.size), milliseconds(self.offset)
        return event_time_ms - (event_time_ms - offset) % size + size

    def end_sql(self, event_time_ms: str) -> str:
        """`end_ms` in Spark SQL, of a BIGINT expression."""
        size, offset = milliseconds(self.size), milliseconds(self.offset)
        return f"{event_time_ms} - pmod({event_time_ms} - {offset}, {size}) + {size}"


def _form(value: Any) -> str:
    return "[mapping]" if isinstance(value, dict | TumblingWindow) else "[duration]"


WindowField = Annotated[
    Annotated[PositiveDuration, Tag("[duration]")] | Annotated[TumblingWindow, Tag("[mapping]")],
    Discriminator(_form),
]
"""A size, or a mapping with size and offset."""
