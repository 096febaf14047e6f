"""Rows in join state: GET /v1/query/state."""

from datetime import datetime
from typing import Any, Self

from job.protocol.answers import StateAnswer
from job.protocol.reports import PartitionCensus, StateCensus
from service.job_status import counted_rows, partition_counts, unmatched_rows
from service.schemas.view import Side, View


class PartitionRowsView(View):
    partition: int
    """State partition, not partition of the topic."""
    rows: int
    """Rows in join state."""
    unmatched_rows: int | None
    """Rows without a match so far; null if the join type does not emit unmatched rows."""
    event_time_min: datetime | None
    """Oldest event time; null if there is no row."""

    @classmethod
    def of(cls, part: PartitionCensus) -> Self:
        return cls(
            partition=part.partition,
            rows=part.rows,
            unmatched_rows=part.unmatched,
            event_time_min=part.event_time_min,
        )


class SideRowsView(View):
    rows: int
    """Rows in join state."""
    unmatched_rows: int | None
    """Rows without a match so far; null if the join type does not emit unmatched rows."""
    partitions: list[PartitionRowsView]
    """The same per state partition."""

    @classmethod
    def of(cls, census: StateCensus, side: Side) -> Self:
        return cls(
            rows=counted_rows(census, side) or 0,
            unmatched_rows=unmatched_rows(census, side),
            partitions=[PartitionRowsView.of(part) for part in partition_counts(census, side)],
        )


class StateView(View):
    batch_id: int
    """Batch at whose end the rows were counted."""
    counted_at: datetime
    """Time of the count."""
    seconds: float
    """Duration of the count."""
    left: SideRowsView
    """The left side."""
    right: SideRowsView
    """The right side."""

    @classmethod
    def of(cls, census: StateCensus) -> Self:
        return cls(
            batch_id=census.batch_id,
            counted_at=census.at,
            seconds=census.seconds,
            left=SideRowsView.of(census, "left"),
            right=SideRowsView.of(census, "right"),
        )


class StateRowView(View):
    row: dict[str, Any]
    """Columns of the row that the join state contains."""
    event_time: datetime
    """Event time of the row."""
    topic: str
    """Topic of its record."""
    partition: int
    """Partition of its record."""
    offset: int
    """Offset of its record."""
    matched: bool | None
    """Whether the row has matched so far; null if the join type does not emit unmatched rows."""
    leaves_after: datetime | None
    """The row is evicted once the watermark is later than this; null: never."""


class StateRowsView(View):
    side: Side
    """Side of the rows."""
    key: list[str]
    """Parts of the key, as in the request."""
    batch_id: int
    """Batch at whose end the rows were read."""
    rows: list[StateRowView]
    """Rows of the key, oldest event time first."""
    more: bool
    """Whether there are more rows than `limit`."""
    seconds: float
    """Duration of the lookup."""

    @classmethod
    def of(cls, answer: StateAnswer) -> Self:
        return cls.model_validate(answer.model_dump())
