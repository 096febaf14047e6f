"""Each check says what it found; a query at rest on purpose is not ready, and says why."""

from datetime import timedelta

import pytest

from job.errors import JobUnavailableError
from job.progress import Failure, JobStatus, QueryState
from service.health import Check, failing, readiness, startup
from tests.unit.service.builders import NO_BROKER, NOW, batch, status, status_after

AWAY = JobUnavailableError("no job answers on data/streamjoin.sock")
AGE_MAX = timedelta(seconds=60)
UP = Check(name="job", ok=True, detail="answers, up since 2026-11-20T12:00:00+00:00")


def test_a_running_query_with_recent_progress_is_ready() -> None:
    assert [
        UP,
        Check(name="query", ok=True, detail="is RUNNING"),
        Check(name="progress", ok=True, detail="last 60 s ago"),
    ] == ready(status_after(batch()), after=AGE_MAX)


def test_progress_that_is_too_old_is_named() -> None:
    checks = ready(status_after(batch()), after=timedelta(seconds=61))

    assert "progress: last 61 s ago, allowed are 60 s" == failing(checks)


def test_no_progress_at_all_is_named() -> None:
    assert "progress: none since the job started" == failing(ready(status()))


def test_progress_of_an_earlier_run_is_none_of_this_one() -> None:
    before = status_after(batch(), state_since=NOW + timedelta(seconds=1))

    assert "progress: none since the query is RUNNING, 2026-11-20T12:00:01+00:00" == failing(
        ready(before)
    )


def test_idling_is_progress() -> None:
    assert "" == failing(ready(status(last_progress_at=NOW)))


@pytest.mark.parametrize("state", [QueryState.PAUSED, QueryState.STOPPED])
def test_a_query_at_rest_is_not_ready_and_says_that_someone_wanted_it(state: QueryState) -> None:
    at_rest = status_after(batch(), state=state, last_failure=NO_BROKER)

    assert f"query: is {state} on purpose until PUT /v1/query/resume" == failing(ready(at_rest))


@pytest.mark.parametrize("state", [QueryState.RESTARTING, QueryState.FAILED, QueryState.STARTING])
def test_a_query_that_does_not_run_says_its_last_failure(state: QueryState) -> None:
    down = status_after(batch(), state=state, last_failure=NO_BROKER)

    assert (
        f"query: is {state} after a failure at 2026-11-20T12:00:00+00:00: "
        "no broker answers at localhost:9092"
    ) == failing(ready(down))


def test_an_old_failure_says_nothing_of_a_running_query() -> None:
    long_ago = Failure(code="query", message="x", retryable=True, at=NOW - timedelta(days=1))

    assert "" == failing(ready(status_after(batch(), last_failure=long_ago)))


def test_without_the_job_the_other_checks_are_unknown_and_none_is_ok() -> None:
    assert [
        Check(name="job", ok=False, detail="no job answers on data/streamjoin.sock"),
        Check(name="query", ok=False, detail="unknown without the job"),
        Check(name="progress", ok=False, detail="unknown without the job"),
    ] == ready(AWAY)
    assert ["job", "started"] == [check.name for check in startup(AWAY) if not check.ok]


def test_a_clock_set_back_does_not_make_progress_negative() -> None:
    assert "last 0 s ago" == ready(status_after(batch()), after=-AGE_MAX)[-1].detail


def test_a_query_has_started_once_it_made_progress_whatever_came_then() -> None:
    assert "" == failing(startup(status(QueryState.RUNNING, last_progress_at=NOW)))
    assert "" == failing(startup(status_after(batch(), state=QueryState.FAILED)))


@pytest.mark.parametrize("state", [QueryState.PAUSED, QueryState.STOPPED])
def test_a_query_at_rest_has_started(state: QueryState) -> None:
    assert "" == failing(startup(status(state)))


def test_a_query_that_has_not_started_says_its_last_failure() -> None:
    never_ran = status(QueryState.RESTARTING, last_failure=NO_BROKER)

    assert (
        "started: no progress yet, is RESTARTING after a failure at 2026-11-20T12:00:00+00:00: "
        "no broker answers at localhost:9092"
    ) == failing(startup(never_ran))
    assert "started: no progress yet, is RUNNING" == failing(startup(status()))


def ready(answer: JobStatus | JobUnavailableError, after: timedelta = timedelta(0)) -> list[Check]:
    return readiness(answer, NOW + after, progress_age_max=AGE_MAX)
