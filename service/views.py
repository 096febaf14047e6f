"""What the HTTP API says of the query: the public shape, apart from the private JobStatus.

Null means unknown, never zero.
"""

from datetime import UTC, datetime, timedelta
from typing import Self

from pydantic import BaseModel, ConfigDict

from job.progress import (
    BatchProgress,
    Failure,
    JobStatus,
    QueryState,
    SideProgress,
    SideTotals,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class BatchView(_View):
    batch_id: int
    started_at: datetime
    duration_seconds: float
    input_records: int
    output_records: int
    late_records: int
    state_rows: int
    state_memory_bytes: int

    @classmethod
    def of(cls, batch: BatchProgress) -> Self:
        return cls(**{name: getattr(batch, name) for name in cls.model_fields})


class SideView(_View):
    input_records: int
    """Since the job started."""
    event_time_max: datetime | None
    """The newest event time since the job started."""
    watermark: datetime | None
    """Newest event time minus watermark_delay; the query's watermark follows the older of both."""
    offsets_behind_latest: dict[int, int] | None
    """Per partition, as of the last batch; null while the query is not running."""
    offsets_behind_latest_total: int | None

    @classmethod
    def of(cls, totals: SideTotals, delay_ms: int, last: SideProgress | None) -> Self:
        behind, newest_ms = offsets_behind_latest(last), totals.event_time_max_ms
        return cls(
            input_records=totals.records,
            event_time_max=_moment(newest_ms),
            watermark=None if newest_ms is None else _moment(newest_ms - delay_ms),
            offsets_behind_latest=behind,
            offsets_behind_latest_total=None if behind is None else sum(behind.values()),
        )


class FailureView(_View):
    code: str
    message: str
    retryable: bool
    at: datetime

    @classmethod
    def of(cls, failure: Failure) -> Self:
        return cls(**{name: getattr(failure, name) for name in cls.model_fields})


class QueryView(_View):
    name: str
    join_type: str
    delivery: str
    state: QueryState
    query_id: str | None
    """Survives restarts."""
    run_id: str | None
    """Each start has its own."""
    state_since: datetime
    started_at: datetime
    """When the job's process started."""
    uptime_seconds: float
    last_progress_at: datetime | None
    """When Spark last reported, be it a batch or that there was nothing to do."""
    last_batch: BatchView | None
    watermark: datetime | None
    """Of the query: the slower side's. Rows older than it are late."""
    left: SideView
    right: SideView
    last_failure: FailureView | None

    @classmethod
    def of(cls, status: JobStatus, now: datetime) -> Self:
        last, totals, delays = status.last_batch, status.totals, status.watermark_delay_ms
        live = live_batch(status)
        return cls(
            name=status.name,
            join_type=status.join_type,
            delivery=status.delivery,
            state=status.state,
            query_id=status.query_id,
            run_id=status.run_id,
            state_since=status.state_since,
            started_at=status.started_at,
            uptime_seconds=(now - status.started_at).total_seconds(),
            last_progress_at=status.last_progress_at,
            last_batch=BatchView.of(last) if last else None,
            watermark=_moment(last.watermark_ms) if last else None,
            left=SideView.of(totals.left, delays["left"], live.left if live else None),
            right=SideView.of(totals.right, delays["right"], live.right if live else None),
            last_failure=FailureView.of(status.last_failure) if status.last_failure else None,
        )


def live_batch(status: JobStatus) -> BatchProgress | None:
    """The last batch of the run at work. Topics and memory change once it no longer runs."""
    last = status.last_batch
    is_live = status.state is QueryState.RUNNING and last and last.run_id == status.run_id
    return last if is_live else None


def offsets_behind_latest(last: SideProgress | None) -> dict[int, int] | None:
    return last.offsets_behind_latest or None if last else None


def _moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
