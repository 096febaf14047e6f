"""Offsets of both topics: GET /v1/query/offsets."""

from datetime import datetime
from typing import Self

from job.api.view import View
from job.protocol.reports import SideEventTimes
from job.protocol.status import JobStatus, utc_time
from job.spec.sides import Side


class PartitionOffsetsView(View):
    read: int | None
    """Next offset to read."""
    earliest: int | None
    """Offset of the oldest record that Kafka retains."""
    latest: int | None
    """Offset that the next committed record will have, at the last poll of the brokers; `read` if
    the job has read further since."""
    behind_latest: int | None
    """Unread offsets that Kafka retains: `latest` - `read`; from `earliest` on if records were
    deleted before they were read."""
    retention_headroom: int | None
    """`read` - `earliest`. Below 0: records were deleted before they were read."""
    event_time: datetime | None
    """Newest event time read from the partition."""


class SideOffsetsView(View):
    topic: str | None
    """Topic of the side, or its topics separated by commas."""
    partitions: dict[str, PartitionOffsetsView]
    """Offsets per partition; with several topics per `topic/partition`."""

    @classmethod
    def of(cls, side: Side, status: JobStatus) -> Self:
        offsets = status.brokers.side(side) if status.brokers else None
        event_times = status.event_times.get(side, SideEventTimes())
        if offsets is None:
            return cls(topic=None, partitions={})
        names = [name for name in PartitionOffsetsView.model_fields if name != "event_time"]
        columns = {name: dict(getattr(offsets, name) or {}) for name in names}
        for number, end in columns["latest"].items():
            columns["latest"][number] = max(end, columns["read"].get(number, end))
        partitions = sorted({number for column in columns.values() for number in column})
        return cls(
            topic=offsets.topic,
            partitions={
                status.partition_label(side, number): PartitionOffsetsView(
                    **{name: column.get(number) for name, column in columns.items()},
                    event_time=utc_time(event_times.partitions.get(number)),
                )
                for number in partitions
            },
        )


class OffsetsView(View):
    answered_at: datetime | None
    """Last answer of the brokers; `earliest` and `latest` are from that time."""
    error: str | None
    """Error of the last poll of the brokers."""
    left: SideOffsetsView
    """The left side."""
    right: SideOffsetsView
    """The right side."""

    @classmethod
    def of(cls, status: JobStatus) -> Self:
        report = status.brokers
        return cls(
            answered_at=report.answered_at if report else None,
            error=report.error if report else None,
            left=SideOffsetsView.of("left", status),
            right=SideOffsetsView.of("right", status),
        )

    def side(self, side: Side) -> SideOffsetsView:
        return self.left if side == "left" else self.right
