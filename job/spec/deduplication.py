"""Settings of the deduplication of a side."""

from typing import Annotated

from pydantic import Field

from job.spec.durations import PositiveDuration
from job.spec.field_types import Expression
from job.spec.frozen import Frozen


class DeduplicationSpec(Frozen):
    """Duplicates that a side drops before the join."""

    by: Annotated[list[Expression], Field(min_length=1)]
    """Columns or expressions that identify an event, e.g. `event_id`. Rows that agree in all of
    them and in the key of the join are duplicates. A row with a null in one of them is never a
    duplicate."""
    within: PositiveDuration
    """Largest distance of the event times of two duplicates. The job stores the id of a row until
    the watermark is this long after the event time of the row; with `join.window`, where duplicates
    are in one window, until the end of the window."""
