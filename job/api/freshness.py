"""Which parts of a JobStatus are current. Pure: no clock, no socket."""

from datetime import datetime, timedelta

from job.protocol.progress import BatchProgress
from job.protocol.reports import BrokerReport
from job.protocol.status import JobStatus, QueryState

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
