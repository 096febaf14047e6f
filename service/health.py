"""Readiness and start-up checks of the query. Pure: no clock, no socket."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from job.api.freshness import live_brokers
from job.api.view import View
from job.errors import JobUnavailableError
from job.protocol.status import Failure, JobStatus, QueryState
from job.spec.sides import SIDES

_PAUSED_OR_STOPPED = {QueryState.PAUSED, QueryState.STOPPED}

CheckName = Literal["job", "query", "progress", "brokers", "lag", "watermark", "started"]


@dataclass(frozen=True)
class Limits:
    """Limits of readiness. None: no limit."""

    progress_age: timedelta
    """Maximum age of the last progress."""
    lag_records: int | None = None
    """Maximum number of unread records per side."""
    watermark_lag_seconds: float | None = None
    """Maximum time from the watermark to the clock."""


class Check(View):
    name: CheckName
    """Name of the check."""
    ok: bool
    """Whether the check passes."""
    detail: str
    """Result of the check."""


class Health(View):
    checks: list[Check]
    """All checks of the probe."""


def readiness(
    status: JobStatus | JobUnavailableError, now: datetime, limits: Limits
) -> list[Check]:
    if isinstance(status, JobUnavailableError):
        return _without_job(status, "query", "progress", "brokers", "lag", "watermark")
    return [
        _job(status),
        _running(status),
        _progress(status, now, limits.progress_age),
        _brokers(status, now),
        _lag(status, now, limits.lag_records),
        _watermark(status, now, limits.watermark_lag_seconds),
    ]


def startup(status: JobStatus | JobUnavailableError) -> list[Check]:
    if isinstance(status, JobUnavailableError):
        return _without_job(status, "started")
    return [_job(status), _started(status)]


def failing(checks: list[Check]) -> str:
    return "; ".join(f"{check.name}: {check.detail}" for check in checks if not check.ok)


def without_details(checks: list[Check]) -> list[Check]:
    """For clients without a token: details contain topics, paths and failures."""
    detail = {True: "passes", False: "fails; a token is required to see the reason"}
    return [Check(name=check.name, ok=check.ok, detail=detail[check.ok]) for check in checks]


def _without_job(error: JobUnavailableError, *unknown: CheckName) -> list[Check]:
    job = Check(name="job", ok=False, detail=str(error))
    rest = [
        Check(name=name, ok=False, detail="unknown: the job does not answer") for name in unknown
    ]
    return [job, *rest]


def _job(status: JobStatus) -> Check:
    return Check(name="job", ok=True, detail=f"answers, up since {_time(status.started_at)}")


def _running(status: JobStatus) -> Check:
    if status.state is QueryState.RUNNING:
        return Check(name="query", ok=True, detail="is RUNNING")
    if status.state in _PAUSED_OR_STOPPED:
        detail = f"is {status.state} until PUT /v1/query/resume"
    else:
        detail = f"is {status.state}{_after_failure(status.last_failure)}"
    return Check(name="query", ok=False, detail=detail)


def _progress(status: JobStatus, now: datetime, age_max: timedelta) -> Check:
    if status.last_progress_at is None:
        return Check(name="progress", ok=False, detail="none since the job started")
    if status.last_progress_at < status.state_since:
        detail = f"none since the query became {status.state} at {_time(status.state_since)}"
        return Check(name="progress", ok=False, detail=detail)
    detail = f"last {_seconds_since(status.last_progress_at, now)} ago"
    if now - status.last_progress_at <= age_max:
        return Check(name="progress", ok=True, detail=detail)
    detail += f", limit {age_max.total_seconds():g} s"
    return Check(name="progress", ok=False, detail=detail)


def _brokers(status: JobStatus, now: datetime) -> Check:
    report = status.brokers
    if report is None or (report.answered_at is None and report.error is None):
        return Check(name="brokers", ok=False, detail="the job has not polled them yet")
    if live_brokers(status, now) is not None:
        assert report.answered_at is not None
        detail = f"answered {_seconds_since(report.answered_at, now)} ago"
        return Check(name="brokers", ok=True, detail=detail)
    last = "" if report.answered_at is None else f" since {_time(report.answered_at)}"
    return Check(
        name="brokers", ok=False, detail=f"no answer{last}: {report.error or 'no poll since'}"
    )


def _lag(status: JobStatus, now: datetime, records_max: int | None) -> Check:
    brokers = live_brokers(status, now)
    behind = {side: brokers.side(side).behind_latest for side in SIDES} if brokers else {}
    sums = {side: sum(offsets.values()) for side, offsets in behind.items() if offsets is not None}
    if len(sums) < len(SIDES):
        return Check(name="lag", ok=records_max is None, detail=_limited("unknown", records_max))
    detail = ", ".join(f"{side} {records:,}" for side, records in sums.items())
    is_ok = records_max is None or max(sums.values()) <= records_max
    return Check(name="lag", ok=is_ok, detail=_limited(f"{detail} unread records", records_max))


def _watermark(status: JobStatus, now: datetime, lag_max: float | None) -> Check:
    if status.watermark is None:
        detail = _limited("no watermark yet", lag_max, " s")
        return Check(name="watermark", ok=lag_max is None, detail=detail)
    lag = (now - status.watermark).total_seconds()
    return Check(
        name="watermark",
        ok=lag_max is None or lag <= lag_max,
        detail=_limited(f"{lag:,.0f} s behind the clock", lag_max, " s"),
    )


def _limited(detail: str, limit: float | None, unit: str = "") -> str:
    return detail if limit is None else f"{detail}, limit {limit:,.10g}{unit}"


def _started(status: JobStatus) -> Check:
    if status.last_progress_at is not None:
        detail = f"last progress at {_time(status.last_progress_at)}"
        return Check(name="started", ok=True, detail=detail)
    if status.state in _PAUSED_OR_STOPPED:
        return Check(name="started", ok=True, detail=f"is {status.state}")
    detail = f"no progress yet, is {status.state}{_after_failure(status.last_failure)}"
    return Check(name="started", ok=False, detail=detail)


def _after_failure(failure: Failure | None) -> str:
    return "" if failure is None else f" after a failure at {_time(failure.at)}: {failure.message}"


def _seconds_since(at: datetime, now: datetime) -> str:
    """Never negative: the clock can be set back."""
    return f"{max(0.0, (now - at).total_seconds()):.0f} s"


def _time(at: datetime) -> str:
    return at.isoformat(timespec="seconds")
