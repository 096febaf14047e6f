"""What the API and the metrics derive from a JobStatus. Pure: no clock, no socket."""

from datetime import UTC, datetime, timedelta

from job.protocol.progress import BatchProgress, JobStatus, QueryState, SideTotals
from job.protocol.reports import BrokerReport, PartitionCensus, SideOffsets, StateCensus
from service.schemas.view import Side

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# The job polls the brokers every 5 s with a timeout of about 10 s. An older report comes from a job
# that hangs.
_BROKER_REPORT_AGE_MAX = timedelta(seconds=60)


def live_batch(status: JobStatus) -> BatchProgress | None:
    """The last batch of the running query; None if the query is not running."""
    last = status.last_batch
    is_live = status.state is QueryState.RUNNING and last and last.run_id == status.run_id
    return last if is_live else None


def live_brokers(status: JobStatus, now: datetime) -> BrokerReport | None:
    """The report if it is recent and without error; None otherwise."""
    report = status.brokers
    return report if report is not None and is_recent(report, now) else None


def is_recent(report: BrokerReport, now: datetime) -> bool:
    """Whether the brokers answered the last poll, at most a minute ago."""
    if report.error is not None or report.answered_at is None:
        return False
    return now - report.answered_at <= _BROKER_REPORT_AGE_MAX


def offsets_of(brokers: BrokerReport, side: Side) -> SideOffsets:
    return brokers.left if side == "left" else brokers.right


def side_totals(status: JobStatus, side: Side) -> SideTotals:
    return status.totals.left if side == "left" else status.totals.right


def side_watermark(status: JobStatus, side: Side) -> datetime | None:
    """The watermark if only this side determined it. None: no readable record yet."""
    report = status.event_times.get(side)
    newest = side_totals(status, side).event_time_max_ms if report is None else report.event_time_ms
    return None if newest is None else utc_time(newest - status.watermark_delay_ms[side])


def watermark_held_back_by(status: JobStatus) -> Side | None:
    """The side with the older watermark. None: both are equal, or a side is idle."""
    if any(status.idle.values()):
        return None
    left, right = side_watermark(status, "left"), side_watermark(status, "right")
    if left == right:
        return None
    if left is None or right is None:
        return "left" if left is None else "right"
    return "left" if left < right else "right"


def watermark_held_back_by_partition(status: JobStatus) -> int | None:
    side = watermark_held_back_by(status)
    report = None if side is None else status.event_times.get(side)
    return None if report is None else report.held_back_by


def partition_counts(census: StateCensus, side: Side) -> list[PartitionCensus]:
    return census.left if side == "left" else census.right


def counted_rows(census: StateCensus | None, side: Side) -> int | None:
    """None: not counted yet."""
    if census is None:
        return None
    return sum(part.rows for part in partition_counts(census, side))


def unmatched_rows(census: StateCensus | None, side: Side) -> int | None:
    """None: not counted yet, or the join type does not emit unmatched rows of the side."""
    if census is None:
        return None
    counts = [part.unmatched for part in partition_counts(census, side)]
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def utc_time(milliseconds: int | None) -> datetime | None:
    """From milliseconds since 1970."""
    return None if milliseconds is None else _EPOCH + timedelta(milliseconds=milliseconds)
