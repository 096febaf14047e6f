"""Whether the query is ready: checks that say what they found. Pure: no clock, no socket."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict

from job.errors import JobUnavailableError
from job.join_spec.sides import SIDES
from job.protocol.status import Failure, JobStatus, QueryState
from service.views import live_brokers, moment

AT_REST = {QueryState.PAUSED, QueryState.STOPPED}

CheckName = Literal["job", "query", "progress", "brokers", "lag", "watermark", "started"]


@dataclass(frozen=True)
class Limits:
    """Up to where the query is ready; None: there is no limit."""

    progress_age: timedelta
    lag_records: int | None = None
    """Of each side."""
    watermark_lag_seconds: float | None = None


class Check(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: CheckName
    ok: bool
    detail: str


class Health(BaseModel):
    model_config = ConfigDict(frozen=True)

    checks: list[Check]


def readiness(
    answer: JobStatus | JobUnavailableError, now: datetime, limits: Limits
) -> list[Check]:
    if isinstance(answer, JobUnavailableError):
        return _without_job(answer, "query", "progress", "brokers", "lag", "watermark")
    return [
        _job(answer),
        _running(answer),
        _progress(answer, now, limits.progress_age),
        _brokers(answer, now),
        _lag(answer, now, limits.lag_records),
        _watermark(answer, now, limits.watermark_lag_seconds),
    ]


def startup(answer: JobStatus | JobUnavailableError) -> list[Check]:
    if isinstance(answer, JobUnavailableError):
        return _without_job(answer, "started")
    return [_job(answer), _started(answer)]


def failing(checks: list[Check]) -> str:
    return "; ".join(f"{check.name}: {check.detail}" for check in checks if not check.ok)


def without_details(checks: list[Check]) -> list[Check]:
    """For those who may know whether, but not why: details tell of topics, paths and failures."""
    detail = {True: "passes", False: "fails; a token is needed to see why"}
    return [Check(name=check.name, ok=check.ok, detail=detail[check.ok]) for check in checks]


def _without_job(error: JobUnavailableError, *unknown: CheckName) -> list[Check]:
    asked = Check(name="job", ok=False, detail=str(error))
    rest = [Check(name=name, ok=False, detail="unknown without the job") for name in unknown]
    return [asked, *rest]


def _job(status: JobStatus) -> Check:
    return Check(name="job", ok=True, detail=f"answers, up since {_time(status.started_at)}")


def _running(status: JobStatus) -> Check:
    if status.state is QueryState.RUNNING:
        return Check(name="query", ok=True, detail="is RUNNING")
    if status.state in AT_REST:
        detail = f"is {status.state} on purpose until PUT /v1/query/resume"
    else:
        detail = f"is {status.state}{_because(status.last_failure)}"
    return Check(name="query", ok=False, detail=detail)


def _progress(status: JobStatus, now: datetime, age_max: timedelta) -> Check:
    if status.last_progress_at is None:
        return Check(name="progress", ok=False, detail="none since the job started")
    if status.last_progress_at < status.state_since:
        detail = f"none since the query is {status.state}, {_time(status.state_since)}"
        return Check(name="progress", ok=False, detail=detail)
    detail = f"last {_seconds_since(status.last_progress_at, now)} ago"
    if now - status.last_progress_at <= age_max:
        return Check(name="progress", ok=True, detail=detail)
    detail += f", allowed are {age_max.total_seconds():g} s"
    return Check(name="progress", ok=False, detail=detail)


def _brokers(status: JobStatus, now: datetime) -> Check:
    report = status.brokers
    if report is None or (report.answered_at is None and report.error is None):
        return Check(name="brokers", ok=False, detail="the job has not looked at them yet")
    if live_brokers(status, now) is not None:
        assert report.answered_at is not None
        detail = f"answered {_seconds_since(report.answered_at, now)} ago"
        return Check(name="brokers", ok=True, detail=detail)
    last = "" if report.answered_at is None else f", last at {_time(report.answered_at)}"
    return Check(
        name="brokers", ok=False, detail=f"do not answer{last}: {report.error or 'no look since'}"
    )


def _lag(status: JobStatus, now: datetime, records_max: int | None) -> Check:
    brokers = live_brokers(status, now)
    behind = {side: brokers.side(side).behind_latest for side in SIDES} if brokers else {}
    sums = {side: sum(offsets.values()) for side, offsets in behind.items() if offsets is not None}
    if len(sums) < len(SIDES):
        return Check(name="lag", ok=records_max is None, detail=_limited("unknown", records_max))
    detail = ", ".join(f"{side} {records:,}" for side, records in sums.items())
    is_ok = records_max is None or max(sums.values()) <= records_max
    return Check(name="lag", ok=is_ok, detail=_limited(f"{detail} records to be read", records_max))


def _watermark(status: JobStatus, now: datetime, lag_max: float | None) -> Check:
    last = status.last_batch
    watermark = None if last is None else moment(last.watermark_ms)
    if watermark is None:
        detail = _limited("there is none yet", lag_max, " s")
        return Check(name="watermark", ok=lag_max is None, detail=detail)
    lag = (now - watermark).total_seconds()
    return Check(
        name="watermark",
        ok=lag_max is None or lag <= lag_max,
        detail=_limited(f"{lag:,.0f} s behind the clock", lag_max, " s"),
    )


def _limited(found: str, limit: float | None, unit: str = "") -> str:
    return found if limit is None else f"{found}, allowed are {limit:,.10g}{unit}"


def _started(status: JobStatus) -> Check:
    if status.last_progress_at is not None:
        detail = f"last progress at {_time(status.last_progress_at)}"
        return Check(name="started", ok=True, detail=detail)
    if status.state in AT_REST:
        return Check(name="started", ok=True, detail=f"is {status.state} on purpose")
    detail = f"no progress yet, is {status.state}{_because(status.last_failure)}"
    return Check(name="started", ok=False, detail=detail)


def _because(failure: Failure | None) -> str:
    return "" if failure is None else f" after a failure at {_time(failure.at)}: {failure.message}"


def _seconds_since(at: datetime, now: datetime) -> str:
    """Never below zero: clocks are set back."""
    return f"{max(0.0, (now - at).total_seconds()):.0f} s"


def _time(at: datetime) -> str:
    return at.isoformat(timespec="seconds")
