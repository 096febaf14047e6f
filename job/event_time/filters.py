"""The filters by which a query has read its records. Values only.

A restart may change the filters of a spec. `explain` judges a record by those with which it was
read, and `output verify` leaves it out.
"""

from pydantic import BaseModel, ConfigDict

from job.document import Document
from job.event_time.partitions import RecordedOffsets
from job.spec.sides import Side


class Filter(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    text: str
    """Text in the spec."""
    sql: str
    """Spark SQL over the columns of the dataflow."""


class EarlierFilters(BaseModel):
    """The filters of the records before `offsets`."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    until_ms: int
    """Clock when they were changed."""
    offsets: RecordedOffsets
    watermark_ms: int
    filters: dict[str, Filter | None]
    """By field of the spec."""

    def has_read(self, side: Side, partition: int, offset: int) -> bool:
        return offset < self.offsets[side].get(partition, 0)


class Filters(Document):
    file_name = "filters.json"
    if_damaged = "Delete the file: only `explain` reads it"
    present: dict[str, Filter | None]
    earlier: list[EarlierFilters]
    """Oldest first."""
