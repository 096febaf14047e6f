"""Delivery of events: in order, without a delay of the query, counted if dropped."""

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from job.errors import SetupError
from job.lineage import reporter as module
from job.lineage.http import lineage_reporter
from job.lineage.reporter import LineageReporter
from job.lineage.reports import Outcome, RunReports
from job.process import run_reports
from job.redaction import MARK, Redaction
from job.settings import JobSettings
from tests.lineage_stub import LineageStub
from tests.polling import wait_until
from tests.unit.specs import plan

# A queue or a stop that waits for the endpoint would wait indefinitely.
pytestmark = pytest.mark.timeout(60)

FIRST = "0190d5a1-7a6c-7000-8000-000000000001"
SECOND = "0190d5a1-7a6c-7000-8000-000000000002"
SECONDS = 20.0
PLAN = plan()


@pytest.fixture
def endpoint() -> Iterator[LineageStub]:
    with LineageStub() as started:
        yield started


def reporter_to(
    url: str, redaction: Redaction | None = None, **settings: object
) -> LineageReporter:
    fields = JobSettings.model_validate({"openlineage_url": url, **settings})
    return lineage_reporter(PLAN, url, fields, redaction or Redaction())


def test_runs_are_reported_in_order(endpoint: LineageStub) -> None:
    with closing(reporter_to(endpoint.url)) as reporter:
        reporter.start(FIRST, PLAN)
        reporter.end(Outcome.FAIL, "no broker")
        reporter.start(SECOND, PLAN)
        reporter.end(Outcome.COMPLETE)

    assert ["START", "FAIL", "START", "COMPLETE"] == endpoint.states
    runs = [event["run"]["runId"] for event in endpoint.events]
    assert [FIRST, FIRST, SECOND, SECOND] == runs
    assert {"sent": 4, "dropped": 0} == reporter.counts


def test_end_without_a_run_is_not_reported(endpoint: LineageStub) -> None:
    with closing(reporter_to(endpoint.url)) as reporter:
        reporter.end(Outcome.FAIL, "topic is missing")
        reporter.start(FIRST, PLAN)
        reporter.end(Outcome.ABORT)
        reporter.end(Outcome.COMPLETE)

    assert ["START", "ABORT"] == endpoint.states


def test_running_is_repeated_until_the_run_ends(endpoint: LineageStub) -> None:
    interval = timedelta(milliseconds=20)
    with closing(reporter_to(endpoint.url)) as made:
        events, transport = made._events, made._transport
    with closing(LineageReporter(events, transport, Redaction(), interval)) as reporter:
        reporter.start(FIRST, PLAN)
        wait_until(lambda: endpoint.states.count("RUNNING") >= 2, SECONDS, "RUNNING is repeated")
        reporter.end(Outcome.COMPLETE)
        wait_until(lambda: "COMPLETE" in endpoint.states, SECONDS, "the run ended")

    assert "START" == endpoint.states[0]
    assert "COMPLETE" == endpoint.states[-1]
    assert endpoint.events[0]["outputs"] == endpoint.events[1]["outputs"]


def test_hanging_endpoint_delays_neither_the_query_nor_the_stop(
    endpoint: LineageStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.2)
    endpoint.hang()
    reporter = reporter_to(endpoint.url)

    began = time.monotonic()
    for _ in range(module.QUEUED_MAX):
        reporter.start(FIRST, PLAN)
        reporter.end(Outcome.COMPLETE)
    reporter.close()

    assert time.monotonic() - began < 4  # a request alone would take 5 s
    assert reporter.counts["dropped"] >= module.QUEUED_MAX - 2
    assert [] == endpoint.events

    endpoint.release()
    every = 2 * module.QUEUED_MAX
    wait_until(lambda: sum(reporter.counts.values()) == every, SECONDS, "no event is unaccounted")
    reporter.close()


@pytest.mark.parametrize("status", [401, 500])
def test_refused_events_are_counted_and_logged_once(endpoint: LineageStub, status: int) -> None:
    endpoint.status = status
    with capture_logs() as logs, closing(reporter_to(endpoint.url)) as reporter:
        reporter.start(FIRST, PLAN)
        reporter.end(Outcome.COMPLETE)
        wait_until(lambda: reporter.counts["dropped"] == 2, SECONDS, "both are refused")
        endpoint.status = 201
        reporter.start(SECOND, PLAN)
        wait_until(lambda: reporter.counts["sent"] == 1, SECONDS, "the endpoint accepts again")

    assert ["lineage_events_dropped"] == [line["event"] for line in logs]
    assert str(status) in logs[0]["reason"]


def test_endpoint_that_is_down_drops_events() -> None:
    with LineageStub() as stopped:
        pass
    with closing(reporter_to(stopped.url)) as reporter:
        reporter.start(FIRST, PLAN)
        wait_until(lambda: reporter.counts["dropped"] == 1, SECONDS, "the event is dropped")


def test_key_is_sent_and_secrets_are_removed_from_failures(
    endpoint: LineageStub, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("open sesame\n")
    redaction = Redaction()
    with closing(reporter_to(endpoint.url, redaction, openlineage_api_key_file=key)) as reporter:
        reporter.start(FIRST, PLAN)
        reporter.end(Outcome.FAIL, "password hunter2, key open sesame")
        redaction.add(["hunter2"])
        reporter.start(SECOND, PLAN)
        reporter.end(Outcome.FAIL, "password hunter2, key open sesame")

    assert "Bearer open sesame" == endpoint.headers[0]["Authorization"]
    message = endpoint.events[-1]["run"]["facets"]["errorMessage"]["message"]
    assert f"password {MARK}, key {MARK}" == message


def test_endpoint_may_have_a_path(endpoint: LineageStub) -> None:
    with closing(reporter_to(f"{endpoint.url}/base")) as reporter:
        reporter.start(FIRST, PLAN)
        wait_until(lambda: reporter.counts["dropped"] == 1, SECONDS, "it is not at the root")


@pytest.mark.parametrize("url", ["localhost:5000", "ftp://a", "http://", "http://me:hunter2@a/"])
def test_unusable_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(SetupError, match="STREAMJOIN_OPENLINEAGE_URL: must be") as refused:
        reporter_to(url)
    assert "hunter2" not in str(refused.value)


def test_unreadable_key_file_is_refused(endpoint: LineageStub, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="STREAMJOIN_OPENLINEAGE_API_KEY_FILE"):
        reporter_to(endpoint.url, openlineage_api_key_file=tmp_path / "missing")


def test_lineage_is_off_by_default() -> None:
    reports = run_reports(plan(), JobSettings(), Redaction())

    assert type(reports) is RunReports
    assert reports.counts is None
