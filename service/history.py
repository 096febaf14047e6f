"""What the HTTP API says of batches, failures, offsets and the plan. Null means unknown."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Self

from job.join_spec.sides import SIDES
from job.protocol.progress import BatchProgress, SideProgress
from job.protocol.reports import SideEventTimes, SideOffsets
from job.protocol.status import Failure, JobStatus
from service.views import BatchView, FailureView, View, moment


class PlanView(View):
    text: str
    """As `streamjoin plan` prints it."""
    facts: dict[str, Any]
    """As `streamjoin plan --json` prints it."""


class SideBatchView(View):
    records: int
    """Read from the topic, readable or not."""
    null_keys: int
    bad_records: dict[str, int]
    """Per reason."""
    event_time_max: datetime | None
    offsets_behind_latest_total: int | None
    """Offsets that were there when the batch began and that it left to the next; null of a batch
    that was run again."""

    @classmethod
    def of(cls, side: SideProgress) -> Self:
        return cls(
            records=side.records,
            null_keys=side.null_keys,
            bad_records=side.bad_records,
            event_time_max=moment(side.event_time_max_ms),
            offsets_behind_latest_total=side.offsets_behind_latest_total,
        )


class PastBatchView(BatchView):
    run_id: str
    phase_seconds: dict[str, float]
    """What the time was spent on; trigger_execution is all of it."""
    state_rows_updated: int
    state_rows_removed: int
    watermark: datetime | None
    """The one this batch ran with."""
    left: SideBatchView
    right: SideBatchView

    @classmethod
    def of(cls, batch: BatchProgress) -> Self:
        own = {"watermark", "left", "right"}
        return cls(
            **{name: getattr(batch, name) for name in cls.model_fields.keys() - own},
            watermark=moment(batch.watermark_ms),
            left=SideBatchView.of(batch.left),
            right=SideBatchView.of(batch.right),
        )


class ProgressView(View):
    batches: list[PastBatchView]
    """Oldest first."""

    @classmethod
    def of(cls, batches: Iterable[BatchProgress]) -> Self:
        return cls(batches=[PastBatchView.of(batch) for batch in batches])


class FailuresView(View):
    failures: list[FailureView]
    """Oldest first."""

    @classmethod
    def of(cls, failures: Iterable[Failure]) -> Self:
        return cls(failures=[FailureView.of(failure) for failure in failures])


class PartitionOffsetsView(View):
    read: int | None
    """The next offset to read."""
    earliest: int | None
    """The oldest record that retention has left."""
    latest: int | None
    """The offset that the next committed record will have."""
    behind_latest: int | None
    retention_headroom: int | None
    """Offsets between the oldest record kept and the next to read; below 0 some were lost."""
    event_time: datetime | None
    """Newest event time read of the partition, of its readable records."""


class SideOffsetsView(View):
    topic: str | None
    partitions: dict[int, PartitionOffsetsView]

    @classmethod
    def of(cls, offsets: SideOffsets | None, event_times: SideEventTimes) -> Self:
        if offsets is None:
            return cls(topic=None, partitions={})
        names = [name for name in PartitionOffsetsView.model_fields if name != "event_time"]
        columns = {name: getattr(offsets, name) or {} for name in names}
        partitions = sorted({number for column in columns.values() for number in column})
        return cls(
            topic=offsets.topic,
            partitions={
                number: PartitionOffsetsView(
                    **{name: column.get(number) for name, column in columns.items()},
                    event_time=moment(event_times.partitions.get(number)),
                )
                for number in partitions
            },
        )


class OffsetsView(View):
    answered_at: datetime | None
    """When the brokers last answered: `earliest` and `latest` are as of then."""
    error: str | None
    """Why the last look at the brokers failed."""
    left: SideOffsetsView
    right: SideOffsetsView

    @classmethod
    def of(cls, status: JobStatus) -> Self:
        report, nothing = status.brokers, SideEventTimes()
        times = {side: status.event_times.get(side, nothing) for side in SIDES}
        return cls(
            answered_at=report.answered_at if report else None,
            error=report.error if report else None,
            left=SideOffsetsView.of(report.left if report else None, times["left"]),
            right=SideOffsetsView.of(report.right if report else None, times["right"]),
        )
