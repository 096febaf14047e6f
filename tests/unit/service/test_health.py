"""Readiness and start-up checks with their details."""

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

DOWN = JobUnavailableError("no job answers on data/streamjoin.sock")
AGE_MAX = timedelta(seconds=60)
UP = Check(name="job", ok=True, detail="answers, up since 2026-11-20T12:00:00+00:00")


def test_running_query_with_recent_progress_is_ready() -> None:
    assert [
        UP,
        Check(name="query", ok=True, detail="is RUNNING"),
        Check(name="progress", ok=True, detail="last 60 s ago"),
        Check(name="brokers", ok=True, detail="answered 60 s ago"),
        Check(name="lag", ok=True, detail="left 15, right 2 unread records"),
        Check(name="watermark", ok=True, detail="76 s behind the clock"),
    ] == ready(status_after(batch()), after=AGE_MAX)


def test_old_progress_is_named() -> None:
    later = timedelta(seconds=61)
    checks = ready(
        status_after(batch(), brokers=broker_report(answered_at=NOW + later)), after=later
    )

    assert "progress: last 61 s ago, limit 60 s" == failing(checks)


def test_missing_progress_is_named() -> None:
    assert "progress: none since the job started" == failing(ready(status(brokers=broker_report())))


def test_progress_of_an_earlier_run_does_not_count() -> None:
    before = status_after(batch(), state_since=NOW + timedelta(seconds=1))

    assert "progress: none since the query became RUNNING at 2026-11-20T12:00:01+00:00" == failing(
        ready(before)
    )


def test_idle_trigger_is_progress() -> None:
    assert "" == failing(ready(status(last_progress_at=NOW, brokers=broker_report())))


@pytest.mark.parametrize("state", [QueryState.PAUSED, QueryState.STOPPED])
def test_paused_or_stopped_query_is_not_ready(state: QueryState) -> None:
    not_running = status_after(batch(), state=state, last_failure=NO_BROKER)

    assert f"query: is {state} until PUT /v1/query/resume" == failing(ready(not_running))


@pytest.mark.parametrize("state", [QueryState.RESTARTING, QueryState.FAILED, QueryState.STARTING])
def test_query_that_is_not_running_names_its_last_failure(state: QueryState) -> None:
    down = status_after(batch(), state=state, last_failure=NO_BROKER)

    assert (
        f"query: is {state} after a failure at 2026-11-20T12:00:00+00:00: "
        "no broker answers at localhost:9092"
    ) == failing(ready(down))


def test_old_failure_does_not_affect_a_running_query() -> None:
    long_ago = Failure(code="query", message="x", retryable=True, at=NOW - timedelta(days=1))

    assert "" == failing(ready(status_after(batch(), last_failure=long_ago)))


def test_unreachable_brokers_are_named_with_their_last_answer() -> None:
    unreachable = broker_report(error="Local: Timed out")

    assert ("brokers: no answer since 2026-11-20T12:00:00+00:00: Local: Timed out") == failing(
        ready(status_after(batch(), brokers=unreachable))
    )


def test_brokers_without_any_answer_are_named() -> None:
    never = broker_report(answered_at=None, error="Local: Timed out")

    assert "brokers: no answer: Local: Timed out" == failing(
        ready(status_after(batch(), brokers=never))
    )


@pytest.mark.parametrize("report", [None, broker_report(answered_at=None)])
def test_query_is_not_ready_before_the_first_poll_of_the_brokers(
    report: BrokerReport | None,
) -> None:
    assert "brokers: the job has not polled them yet" == failing(
        ready(status_after(batch(), brokers=report))
    )


def test_answer_of_the_brokers_expires_after_a_minute() -> None:
    now = timedelta(seconds=61)
    stale = status_after(batch(), last_progress_at=NOW + now)

    assert "brokers: no answer since 2026-11-20T12:00:00+00:00: no poll since" == failing(
        ready(stale, after=now)
    )


@pytest.mark.parametrize(("records_max", "is_ready"), [(15, True), (14, False)])
def test_limit_of_lag_applies_to_the_side_with_more_unread_records(
    records_max: int, is_ready: bool
) -> None:
    checks = ready(status_after(batch()), limits=Limits(AGE_MAX, lag_records=records_max))

    expected = f"left 15, right 2 unread records, limit {records_max}"
    assert expected == detail(checks, "lag")
    assert ("" if is_ready else f"lag: {expected}") == failing(checks)


def test_unknown_lag_is_within_no_limit() -> None:
    unreachable = status_after(batch(), brokers=broker_report(error="x"))
    unread = status_after(
        batch(), brokers=broker_report(left=SideOffsets(topic="impressions", latest={0: 7}))
    )

    for unknown in (unreachable, unread):
        limited = ready(unknown, limits=Limits(AGE_MAX, lag_records=1_000_000))
        assert "lag: unknown, limit 1,000,000" in failing(limited)
        assert "lag" not in failing(ready(unknown))


@pytest.mark.parametrize(("seconds_max", "is_ready"), [(15.5, True), (15.4, False)])
def test_watermark_behind_its_limit_is_named(seconds_max: float, is_ready: bool) -> None:
    limits = Limits(AGE_MAX, watermark_lag_seconds=seconds_max)
    checks = ready(status_after(batch()), limits=limits)

    expected = f"16 s behind the clock, limit {seconds_max} s"
    assert ("" if is_ready else f"watermark: {expected}") == failing(checks)
    assert expected == detail(checks, "watermark")


def test_missing_watermark_is_within_no_limit() -> None:
    none_yet = status_after(batch(watermark_ms=None))

    limited = ready(none_yet, limits=Limits(AGE_MAX, watermark_lag_seconds=60))
    assert "watermark: no watermark yet, limit 60 s" == failing(limited)
    assert "" == failing(ready(none_yet))


def test_other_checks_fail_as_unknown_without_the_job() -> None:
    assert [
        Check(name="job", ok=False, detail="no job answers on data/streamjoin.sock"),
        Check(name="query", ok=False, detail="unknown: the job does not answer"),
        Check(name="progress", ok=False, detail="unknown: the job does not answer"),
        Check(name="brokers", ok=False, detail="unknown: the job does not answer"),
        Check(name="lag", ok=False, detail="unknown: the job does not answer"),
        Check(name="watermark", ok=False, detail="unknown: the job does not answer"),
    ] == ready(DOWN)
    assert ["job", "started"] == [check.name for check in startup(DOWN) if not check.ok]


def test_age_of_progress_is_not_negative_after_the_clock_is_set_back() -> None:
    checks = ready(status_after(batch()), after=-AGE_MAX)

    assert "last 0 s ago" == detail(checks, "progress")
    assert "answered 0 s ago" == detail(checks, "brokers")


def test_query_has_started_after_its_first_progress() -> None:
    assert "" == failing(startup(status(QueryState.RUNNING, last_progress_at=NOW)))
    assert "" == failing(startup(status_after(batch(), state=QueryState.FAILED)))


@pytest.mark.parametrize("state", [QueryState.PAUSED, QueryState.STOPPED])
def test_paused_or_stopped_query_has_started(state: QueryState) -> None:
    assert "" == failing(startup(status(state)))


def test_query_that_has_not_started_names_its_last_failure() -> None:
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
