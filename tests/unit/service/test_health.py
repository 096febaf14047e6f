"""Each check says what it found; a query at rest on purpose is not ready, and says why."""

from datetime import timedelta

import pytest

from job.errors import JobUnavailableError
from job.protocol.reports import BrokerReport, SideOffsets
from job.protocol.status import Failure, JobStatus, QueryState
from service.health import Check, Limits, failing, readiness, startup
from tests.unit.service.builders import (
    NO_BROKER,
    NOW,
    batch,
    broker_report,
    status,
    status_after,
)

AWAY = JobUnavailableError("no job answers on data/streamjoin.sock")
AGE_MAX = timedelta(seconds=60)
UP = Check(name="job", ok=True, detail="answers, up since 2026-11-20T12:00:00+00:00")


def test_a_running_query_with_recent_progress_is_ready() -> None:
    assert [
        UP,
        Check(name="query", ok=True, detail="is RUNNING"),
        Check(name="progress", ok=True, detail="last 60 s ago"),
        Check(name="brokers", ok=True, detail="answered 60 s ago"),
        Check(name="lag", ok=True, detail="left 15, right 2 records to be read"),
        Check(name="watermark", ok=True, detail="76 s behind the clock"),
    ] == ready(status_after(batch()), after=AGE_MAX)


def test_progress_that_is_too_old_is_named() -> None:
    later = timedelta(seconds=61)
    checks = ready(
        status_after(batch(), brokers=broker_report(answered_at=NOW + later)), after=later
    )

    assert "progress: last 61 s ago, allowed are 60 s" == failing(checks)


def test_no_progress_at_all_is_named() -> None:
    assert "progress: none since the job started" == failing(ready(status(brokers=broker_report())))


def test_progress_of_an_earlier_run_is_none_of_this_one() -> None:
    before = status_after(batch(), state_since=NOW + timedelta(seconds=1))

    assert "progress: none since the query is RUNNING, 2026-11-20T12:00:01+00:00" == failing(
        ready(before)
    )


def test_idling_is_progress() -> None:
    assert "" == failing(ready(status(last_progress_at=NOW, brokers=broker_report())))


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


def test_brokers_that_do_not_answer_the_job_are_named_with_their_last_answer() -> None:
    away = broker_report(error="Local: Timed out")

    assert (
        "brokers: do not answer, last at 2026-11-20T12:00:00+00:00: Local: Timed out"
    ) == failing(ready(status_after(batch(), brokers=away)))


def test_brokers_that_never_answered_are_named() -> None:
    never = broker_report(answered_at=None, error="Local: Timed out")

    assert "brokers: do not answer: Local: Timed out" == failing(
        ready(status_after(batch(), brokers=never))
    )


@pytest.mark.parametrize("report", [None, broker_report(answered_at=None)])
def test_a_job_that_has_not_looked_at_the_brokers_yet_is_not_ready(
    report: BrokerReport | None,
) -> None:
    assert "brokers: the job has not looked at them yet" == failing(
        ready(status_after(batch(), brokers=report))
    )


def test_an_answer_of_the_brokers_that_is_older_than_a_minute_is_none() -> None:
    now = timedelta(seconds=61)
    stale = status_after(batch(), last_progress_at=NOW + now)

    assert ("brokers: do not answer, last at 2026-11-20T12:00:00+00:00: no look since") == failing(
        ready(stale, after=now)
    )


@pytest.mark.parametrize(("records_max", "is_ready"), [(15, True), (14, False)])
def test_the_side_with_more_to_be_read_counts_against_the_limit(
    records_max: int, is_ready: bool
) -> None:
    checks = ready(status_after(batch()), limits=Limits(AGE_MAX, lag_records=records_max))

    told = f"left 15, right 2 records to be read, allowed are {records_max}"
    assert told == detail(checks, "lag")
    assert ("" if is_ready else f"lag: {told}") == failing(checks)


def test_a_lag_that_is_unknown_is_within_no_limit() -> None:
    away = status_after(batch(), brokers=broker_report(error="x"))
    unread = status_after(
        batch(), brokers=broker_report(left=SideOffsets(topic="impressions", latest={0: 7}))
    )

    for unknown in (away, unread):
        limited = ready(unknown, limits=Limits(AGE_MAX, lag_records=1_000_000))
        assert "lag: unknown, allowed are 1,000,000" in failing(limited)
        assert "lag" not in failing(ready(unknown))


@pytest.mark.parametrize(("seconds_max", "is_ready"), [(15.5, True), (15.4, False)])
def test_a_watermark_behind_its_limit_is_named(seconds_max: float, is_ready: bool) -> None:
    limits = Limits(AGE_MAX, watermark_lag_seconds=seconds_max)
    checks = ready(status_after(batch()), limits=limits)

    told = f"16 s behind the clock, allowed are {seconds_max} s"
    assert ("" if is_ready else f"watermark: {told}") == failing(checks)
    assert told == detail(checks, "watermark")


def test_a_watermark_that_is_not_there_yet_is_within_no_limit() -> None:
    none_yet = status_after(batch(watermark_ms=None))

    limited = ready(none_yet, limits=Limits(AGE_MAX, watermark_lag_seconds=60))
    assert "watermark: there is none yet, allowed are 60 s" == failing(limited)
    assert "" == failing(ready(none_yet))


def test_without_the_job_the_other_checks_are_unknown_and_none_is_ok() -> None:
    assert [
        Check(name="job", ok=False, detail="no job answers on data/streamjoin.sock"),
        Check(name="query", ok=False, detail="unknown without the job"),
        Check(name="progress", ok=False, detail="unknown without the job"),
        Check(name="brokers", ok=False, detail="unknown without the job"),
        Check(name="lag", ok=False, detail="unknown without the job"),
        Check(name="watermark", ok=False, detail="unknown without the job"),
    ] == ready(AWAY)
    assert ["job", "started"] == [check.name for check in startup(AWAY) if not check.ok]


def test_a_clock_set_back_does_not_make_progress_negative() -> None:
    checks = ready(status_after(batch()), after=-AGE_MAX)

    assert "last 0 s ago" == detail(checks, "progress")
    assert "answered 0 s ago" == detail(checks, "brokers")


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


def detail(checks: list[Check], name: str) -> str:
    [found] = [check.detail for check in checks if check.name == name]
    return found


def ready(
    answer: JobStatus | JobUnavailableError,
    after: timedelta = timedelta(0),
    limits: Limits | None = None,
) -> list[Check]:
    return readiness(answer, NOW + after, limits or Limits(progress_age=AGE_MAX))
