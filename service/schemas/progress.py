"""Past batches: GET /v1/query/progress."""

from collections.abc import Iterable
from datetime import datetime
from typing import Self

from job.api.query import BatchView
from job.api.view import View
from job.protocol.progress import BatchProgress, SideProgress
from job.protocol.status import utc_time


class SideBatchView(View):
    records: int
    """Records read from the topic, readable or not."""
    filtered_records: int
    """Records that the side's filter dropped."""
    null_keys: int
    """Records with a null in their key."""
    bad_records: dict[str, int]
    """Records that could not be read, per reason."""
    event_time_max: datetime | None
    """Newest event time in the batch."""
    offsets_behind_latest_total: int | None
    """Offsets that were unread when the batch began and that the batch did not read. Null if the
    batch was executed again after a crash."""

    @classmethod
    def of(cls, side: SideProgress) -> Self:
        return cls(
            records=side.records,
            filtered_records=side.filtered_records,
            null_keys=side.null_keys,
            bad_records=side.bad_records,
            event_time_max=utc_time(side.event_time_max_ms),
            offsets_behind_latest_total=side.offsets_behind_latest_total,
        )


class PastBatchView(BatchView):
    run_id: str
    """Spark's id of the run."""
    state_rows_updated: int
    """Rows written to join state."""
    state_rows_removed: int
    """Rows evicted from join state."""
    watermark: datetime | None
    """Watermark of the batch."""
    left: SideBatchView
    """The left side."""
    right: SideBatchView
    """The right side."""

    @classmethod
    def of(cls, batch: BatchProgress) -> Self:
        converted = {"watermark", "left", "right"}
        return cls(
            **{name: getattr(batch, name) for name in cls.model_fields.keys() - converted},
            watermark=utc_time(batch.watermark_ms),
            left=SideBatchView.of(batch.left),
            right=SideBatchView.of(batch.right),
        )


class ProgressView(View):
    batches: list[PastBatchView]
    """The last batches, oldest first."""

    @classmethod
    def of(cls, batches: Iterable[BatchProgress]) -> Self:
        return cls(batches=[PastBatchView.of(batch) for batch in batches])
