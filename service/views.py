"""What the HTTP API says of the query: the public shape, apart from the private JobStatus.

Null means unknown, never zero.
"""

from datetime import UTC, datetime, timedelta
from typing import Self

from pydantic import BaseModel, ConfigDict

from job.join_spec.sides import Side
from job.join_spec.start_positions import SideStartPositions
from job.protocol.progress import BatchProgress
from job.protocol.reports import BrokerReport, ResetReport
from job.protocol.status import Failure, JobStatus, QueryState

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The job looks every 5 s and gives up after some 10 s: what is older comes from a job that hangs.
_LOOK_AGE_MAX = timedelta(seconds=60)


class View(BaseModel):
    model_config = ConfigDict(frozen=True)


class BatchView(View):
    batch_id: int
    started_at: datetime
    duration_seconds: float
    input_records: int
    output_records: int
    late_rows: int
    state_rows: int | None
    """Null after a start until they were counted, within a minute or so."""
    state_memory_bytes: int

    @classmethod
    def of(cls, batch: BatchProgress) -> Self:
        return cls(**{name: getattr(batch, name) for name in cls.model_fields})


class BrokersView(View):
    reachable: bool
    """Whether the job's last look at the brokers found them, a minute ago at most."""
    answered_at: datetime | None
    error: str | None
    """Why the last look failed."""

    @classmethod
    def of(cls, report: BrokerReport, now: datetime) -> Self:
        return cls(
            reachable=of_late(report, now), answered_at=report.answered_at, error=report.error
        )


class ResetView(View):
    requested_by: str
    requested_at: datetime
    left: SideStartPositions
    """Where reading starts: earliest, latest, a time, or the next offset of each partition."""
    right: SideStartPositions
    completed_at: datetime | None
    """Null while it is still to be done."""
    old_checkpoint: str | None
    """Where the old checkpoint is now; null where there was none."""
    error: str | None

    @classmethod
    def of(cls, report: ResetReport) -> Self:
        fields = report.model_dump(exclude={"starts"})
        return cls(**fields, left=report.starts.left, right=report.starts.right)


class SideView(View):
    topic: str | None
    input_records: int
    """Since the job started."""
    null_key_records: int
    """Of them, those with a null in their key."""
    bad_records: dict[str, int]
    """Of them, those that could not be read, per reason."""
    dead_letter_records: dict[str, int]
    """Those sent to the dead-letter topic, per reason, late rows and null keys among them."""
    event_time_max: datetime | None
    """The newest event time since the job started."""
    watermark: datetime | None
    """Event time minus watermark_delay; the query's watermark follows the older of both sides. The
    event time of a side with a backlog is that of the partition with unread records that is
    furthest behind; without a backlog it is the newest one."""
    idle: bool | None
    """Whether its event time follows the clock; null without idle_after, or while none runs."""
    offsets_behind_latest: dict[int, int] | None
    """Per partition; null where the brokers do not answer."""
    offsets_behind_latest_total: int | None
    state_rows: int | None
    """Rows the join held when they were last counted, at `state_counted_at`."""
    unmatched_rows: int | None
    """Those of them without a match; null also where the join need not know."""

    @classmethod
    def of(cls, side: Side, status: JobStatus, now: datetime) -> Self:
        totals, brokers = status.side_totals(side), live_brokers(status, now)
        count = status.state_count.side(side) if status.state_count else None
        behind = brokers.side(side).behind_latest if brokers else None
        return cls(
            topic=status.brokers.side(side).topic if status.brokers else None,
            input_records=totals.records,
            null_key_records=totals.null_keys,
            bad_records=totals.bad_records,
            dead_letter_records=status.totals.dead_letters[side],
            event_time_max=moment(totals.event_time_max_ms),
            watermark=status.side_watermark(side),
            idle=status.idle.get(side),
            offsets_behind_latest=behind,
            offsets_behind_latest_total=None if behind is None else sum(behind.values()),
            state_rows=count.rows if count else None,
            unmatched_rows=count.unmatched_rows if count else None,
        )


class FailureView(View):
    code: str
    message: str
    retryable: bool
    at: datetime

    @classmethod
    def of(cls, failure: Failure) -> Self:
        return cls(**{name: getattr(failure, name) for name in cls.model_fields})


class QueryView(View):
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
    watermark_held_back_by: Side | None
    """The side whose event time is behind, or missing; null where both are alike or missing."""
    watermark_held_back_by_partition: int | None
    """The partition of that side which has unread records and the oldest event time; null where
    the side has been read to its end."""
    late_rows: int
    """Rows dropped since the job started because they came behind the watermark."""
    left: SideView
    right: SideView
    state_counted_at: datetime | None
    brokers: BrokersView | None
    """Null until the job has first looked."""
    last_reset: ResetView | None
    last_failure: FailureView | None

    @classmethod
    def of(cls, status: JobStatus, now: datetime) -> Self:
        last = status.last_batch
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
            watermark=status.watermark,
            watermark_held_back_by=status.watermark_held_back_by,
            watermark_held_back_by_partition=status.watermark_held_back_by_partition,
            late_rows=status.totals.late_rows,
            left=SideView.of("left", status, now),
            right=SideView.of("right", status, now),
            state_counted_at=status.state_count.counted_at if status.state_count else None,
            brokers=BrokersView.of(status.brokers, now) if status.brokers else None,
            last_reset=ResetView.of(status.last_reset) if status.last_reset else None,
            last_failure=FailureView.of(status.last_failure) if status.last_failure else None,
        )


def live_batch(status: JobStatus) -> BatchProgress | None:
    """The last batch of the run at work: what it used is used no more once it does not run."""
    last = status.last_batch
    is_live = status.state is QueryState.RUNNING and last and last.run_id == status.run_id
    return last if is_live else None


def live_brokers(status: JobStatus, now: datetime) -> BrokerReport | None:
    """What the brokers have said of late; an older word would be taken for a live one."""
    report = status.brokers
    return report if report is not None and of_late(report, now) else None


def of_late(report: BrokerReport, now: datetime) -> bool:
    """Whether the last look was answered, and that a minute ago at most."""
    if report.error is not None or report.answered_at is None:
        return False
    return now - report.answered_at <= _LOOK_AGE_MAX


def moment(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
