"""Deduplication of a side before the join, as the spec describes it."""

from typing import Annotated

from pydantic import Field

from job.join_spec.durations import PositiveDuration
from job.join_spec.field_types import Expression
from job.join_spec.frozen import Frozen


class DeduplicationSpec(Frozen):
    """Copies of a row that a side drops before the join."""

    by: Annotated[list[Expression], Field(min_length=1)]
    """Columns or expressions that identify an event, e.g. `event_id`. Rows that agree in all of
    them are copies. A row with a null in one of them is never a copy."""
    within: PositiveDuration
    """Distance of the event times within which copies are detected. The job stores each id until
    the watermark is this long after the event time of its first row; with `join.window`, after the
    end of its window."""
