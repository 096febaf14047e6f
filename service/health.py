"""Whether the query is ready: checks that say what they found. Pure: no clock, no socket."""

from datetime import datetime, timedelta

from pydantic import BaseModel, ConfigDict

from job.errors import JobUnavailableError
from job.progress import Failure, JobStatus, QueryState

AT_REST = {QueryState.PAUSED, QueryState.STOPPED}


class Check(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    ok: bool
    detail: str


class Health(BaseModel):
    model_config = ConfigDict(frozen=True)

    checks: list[Check]


def readiness(
    answer: JobStatus | JobUnavailableError, now: datetime, *, progress_age_max: timedelta
) -> list[Check]:
    if isinstance(answer, JobUnavailableError):
        return _without_job(answer, "query", "progress")
    return [_job(answer), _running(answer), _progress(answer, now, progress_age_max)]


def startup(answer: JobStatus | JobUnavailableError) -> list[Check]:
    if isinstance(answer, JobUnavailableError):
        return _without_job(answer, "started")
    return [_job(answer), _started(answer)]


def failing(checks: list[Check]) -> str:
    return "; ".join(f"{check.name}: {check.detail}" for check in checks if not check.ok)


def _without_job(error: JobUnavailableError, *unknown: str) -> list[Check]:
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
    age = max(timedelta(0), now - status.last_progress_at)
    detail = f"last {age.total_seconds():.0f} s ago"
    if age <= age_max:
        return Check(name="progress", ok=True, detail=detail)
    detail += f", allowed are {age_max.total_seconds():g} s"
    return Check(name="progress", ok=False, detail=detail)


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


def _time(moment: datetime) -> str:
    return moment.isoformat(timespec="seconds")
