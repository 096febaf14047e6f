"""The status page in a real Chromium: its texts, its controls and its requests."""

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Error

from job.errors import BusyError
from job.protocol.control import control_socket
from job.protocol.reports import ChangeRequestReport
from job.protocol.results import FailuresResult, KeyExplanation, PlanResult
from job.protocol.status import Failure, QueryState
from tests.polling import wait_until
from tests.unit.service.browser import (
    JOIN,
    PATIENCE_MS,
    PHONE,
    SMALL_PHONE,
    has_more,
    key_rows,
    open_tab,
    running,
    serving_page,
    with_answers,
)
from tests.unit.service.builders import NOW, SmallJob, broker_report

pytestmark = pytest.mark.processes

# Runs if text becomes markup.
MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
APPEARANCES = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": PHONE},
    "dark-small-phone": {"color_scheme": "dark", "viewport": SMALL_PHONE},
}


@pytest.mark.parametrize("appearance", APPEARANCES)
def test_page_has_no_errors_and_no_horizontal_scrolling(
    browser: Browser, url: str, tmp_path: Path, appearance: str
) -> None:
    with open_tab(browser, url, **APPEARANCES[appearance]) as tab:
        tab.wait_for("state", "RUNNING")
        for summary in tab.page.locator("summary").all():
            summary.click()
        tab.page.get_by_label("Key: ad_id").fill("7")
        tab.page.get_by_role("button", name="Explain").click()
        tab.wait_for("explanation", "The left row is in state.")
        tab.wait_for("partitions", "left 0")
        tab.page.screenshot(path=tmp_path / f"{appearance}.png", full_page=True)

        wide, window = tab.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        row = tab.page.locator('[data-of="partitions"] tbody tr').first
        figures = [cell.inner_text() for cell in row.locator("td:visible").all()]
        assert ["left 0", "10", "90", "10", "100", "80"] == figures[:2] + figures[3:]
        found = Axe().run(tab.page)
        assert wide <= window
        assert [] == tab.errors
        assert 0 == found.violations_count, found.generate_report()


def test_figures_are_those_of_the_api(browser: Browser, url: str) -> None:
    with open_tab(browser, url) as tab:
        tab.wait_for("state", "RUNNING")
        tab.wait_for("batches", "40")

        assert f"{JOIN} · exactly once · real time" == tab.text("what")
        assert "15,860\n15,700 matched · 160 unmatched" == tab.text("results")
        assert "400 ms / 1.3 s\nKafka timestamp to batch end, last 5 minutes" == tab.text("latency")
        output = ("topic", "results", "matched", "unmatched", "filtered", "bad", "end")
        written = ["attributed", "15,860", "15,700", "160", "40", "none"]
        written.append("1,234, sum of 2 partitions")
        assert written == [tab.text(f"output.{name}") for name in output]
        assert "17\nleft 15 · right 2" == tab.text("lag")
        assert "50,000\n1 MB of memory" == tab.text("state_rows")
        assert tab.text("late").startswith("80\n")
        assert tab.text("phases").endswith(" one: read, join and deliver 250 ms")
        assert "held back by right" in tab.text("watermark_lag")
        topics = ["impressions", "clicks · a restart also reads clicks_eu"]
        assert topics == [tab.text(f"{side}.topic") for side in ("left", "right")]
        rows = [tab.text(f"left.{name}") for name in ("rows", "unmatched")]
        assert [f"{count}, counted at 2026-11-20 12:00:00Z" for count in (160, 42)] == rows
        names = ("left.null_keys", "right.null_keys", "left.skipped")
        assert ["40", "0", "7"] == [tab.text(name) for name in names]
        assert not tab.page.locator('[data-of="right.skipped"]').is_visible()
        assert "120, 90 ids in state" == tab.text("left.duplicates")
        assert not tab.page.get_by_text("Duplicates dropped").last.is_visible()
        assert "120 malformed json" == tab.text("left.bad")
        assert ["5 late", "none"] == [tab.text(f"{it}.dead") for it in ("left", "right")]
        assert "ad_attribution" == tab.text("name")
        assert 20 == tab.page.locator('[data-of="batches"] tbody tr').count()
        assert 6 == tab.page.locator("#charts svg[aria-label*='last 40 batches']").count()
        assert 0 == tab.page.locator("#charts path[d='']").count()


def test_page_sends_requests_only_to_its_own_service(browser: Browser, url: str) -> None:
    with open_tab(browser, url) as tab:
        tab.wait_for("state", "RUNNING")

        assert {url} == {sent[: len(url)] for sent in tab.requests if sent[:5] != "data:"}
        assert {"v1"} == {sent.removeprefix(url).split("/")[0] for sent in tab.requests[1:]}


def test_trusted_types_prevent_markup_from_text(browser: Browser, url: str) -> None:
    with open_tab(browser, url) as tab:
        tab.wait_for("state", "RUNNING")

        with pytest.raises(Error, match="requires 'TrustedHTML' assignment"):
            tab.page.evaluate("text => { document.body.innerHTML = text }", MARKUP)


def test_foreign_text_never_becomes_markup(browser: Browser, url: str, job: SmallJob) -> None:
    failure = Failure(code=MARKUP, message=MARKUP, retryable=True, at=NOW)
    brokers = broker_report(error=MARKUP)
    job.current = running(
        name=MARKUP,
        diagnosis=MARKUP,
        last_failure=failure,
        brokers=brokers.model_copy(
            update={
                name: getattr(brokers, name).model_copy(update={"topic": MARKUP})
                for name in ("left", "output")
            }
        ),
    )
    job.answers |= {
        "plan": PlanResult(
            text=MARKUP, facts={"summary": {"join": MARKUP}}, spec={"left": {"key": [MARKUP]}}
        ),
        "failures": FailuresResult(failures=[failure]),
        "explain": KeyExplanation(
            sentences=[MARKUP], left=key_rows("left"), right=key_rows("right")
        ),
    }
    with open_tab(browser, url) as tab:
        tab.wait_for("state", "RUNNING")
        tab.page.locator("input[name=key]").fill(MARKUP)
        tab.page.get_by_role("button", name="Explain").click()
        for part in ("explanation", "name", "what", "diagnosis", "failure", "failures", "brokers"):
            tab.wait_for(part, MARKUP)

        assert [MARKUP, MARKUP] == [tab.text("left.topic"), tab.text("output.topic")]
        tab.page.get_by_role("button", name="Stop", exact=True).click()
        assert f"Stop {MARKUP}?" == tab.page.locator("#confirm-title").inner_text()
        assert MARKUP in (tab.page.locator('[data-of="plan"]').text_content() or "")
        assert 0 == tab.page.locator("img").count()
        assert 1 == tab.page.locator("script").count()
        assert "owned" != tab.page.title()
        assert [] == tab.errors


def test_focus_is_visible(browser: Browser, url: str) -> None:
    with open_tab(browser, url) as tab:
        tab.wait_for("state", "RUNNING")
        stops = set()
        for _ in range(20):
            tab.page.keyboard.press("Tab")
            name, width = tab.page.evaluate(
                "[document.activeElement.id || document.activeElement.innerText,"
                " parseFloat(getComputedStyle(document.activeElement).outlineWidth)]"
            )
            stops.add(name)
            assert width >= 2, name

        assert {"Pause", "Stop", "Restart", "Show the partitions", "Explain", "Metrics"} <= stops


def test_busy_lookup_shows_when_to_retry(browser: Browser, url: str, job: SmallJob) -> None:
    job.answers["explain"] = BusyError("another lookup is running", retry_after_seconds=3.0)
    with open_tab(browser, url) as tab:
        tab.page.locator("input[name=key]").fill("7")
        tab.page.keyboard.press("Enter")

        tab.wait_for("explanation", "another lookup is running. Retry in 3 s.")


def test_missing_job_is_shown_and_its_figures_are_stale(
    browser: Browser, path: Path, tmp_path: Path
) -> None:
    given = with_answers(SmallJob(running()))
    with serving_page(path) as url, open_tab(browser, url) as tab:
        with control_socket(path, given):
            tab.wait_for("state", "RUNNING")
            assert "STALE" not in tab.text("age")
        tab.wait_for("problem", "The job does not answer")
        tab.wait_for("age", "STALE")
        tab.page.screenshot(path=tmp_path / "down.png")
        assert "UNKNOWN" == tab.text("state")
        assert "last known: RUNNING" == tab.text("since")
        assert tab.page.locator("html.stale").count()
        assert [] == tab.shown_commands()
        assert "UNKNOWN · ad_attribution" == tab.page.title()

        with control_socket(path, given):
            tab.wait_for("state", "RUNNING")
            assert not tab.page.locator("#banner").is_visible()
            assert not tab.page.locator("html.stale").count()


def test_missing_service_is_shown(browser: Browser, url: str) -> None:
    with open_tab(browser, url) as tab:
        tab.wait_for("state", "RUNNING")
        tab.page.context.set_offline(True)

        tab.wait_for("problem", "The service does not answer")
        tab.wait_for("age", "STALE")


def test_failed_query_shows_the_remedy_and_the_commands_that_are_allowed(
    browser: Browser, url: str, job: SmallJob
) -> None:
    message = "the schema has changed\n  left.schema\nRestart the query"
    failure = Failure(code="query", message=message, retryable=False, at=NOW)
    job.answers |= {"failures": FailuresResult(failures=[failure])}
    job.current = running(
        state=QueryState.FAILED,
        diagnosis=f"The query is FAILED: {message}.",
        allowed_commands=["restart", "stop", "undo"],
        last_failure=failure,
        last_batch=None,
    )
    with open_tab(browser, url) as tab:
        tab.wait_for("state", "FAILED")

        assert tab.text("failure").endswith(", query")
        assert message in tab.text("diagnosis")
        assert message in tab.text("failures")
        assert ["Stop", "Restart"] == tab.shown_commands()
        assert not tab.page.locator("#last-batches").is_visible()


def test_change_is_shown(browser: Browser, url: str, job: SmallJob) -> None:
    reports: list[tuple[dict[str, Any], str]] = [
        ({"waits_for": "batch 41 has not ended"}, "waits: batch 41 has not ended (to /next, "),
        ({}, "is being made (to /next, "),
        ({"failed_at": NOW, "error": "cancelled"}, "not made: cancelled (to /next, requested by"),
        ({"made_at": NOW, "checkpoint": None}, "undo made (undo, requested by ada at "),
        ({"made_at": NOW}, "from file:/old, replay reading: "),
    ]
    requested = ChangeRequestReport(requested_by="ada", requested_at=NOW, checkpoint="/next")
    with open_tab(browser, url) as tab:
        for fields, shown in reports:
            job.current = running(last_change=requested.model_copy(update=fields))
            tab.wait_for("change", shown)


def test_idle_side_is_shown(browser: Browser, url: str, job: SmallJob) -> None:
    job.current = running(idle={"left": False, "right": True})
    with open_tab(browser, url) as tab:
        tab.wait_for("right.watermark", "idle: follows the clock")

        assert "right idle: the watermark follows the clock" in tab.text("watermark_lag")
        assert "idle" not in tab.text("left.watermark")


def test_hidden_tab_sends_no_requests(browser: Browser, url: str) -> None:
    with open_tab(browser, url) as tab:
        tab.wait_for("state", "RUNNING")
        hide = (
            "hidden => { Object.defineProperty(document, 'hidden',"
            " { value: hidden, configurable: true });"
            " document.dispatchEvent(new Event('visibilitychange')); }"
        )
        tab.page.evaluate(hide, True)
        tab.page.wait_for_load_state("networkidle")
        before = len(tab.requests)
        tab.page.clock.run_for(30_000)
        assert before == len(tab.requests)

        tab.page.evaluate(hide, False)
        wait_until(
            lambda: has_more(tab.page, tab.requests, before),
            PATIENCE_MS / 1000,
            "it sends requests again",
        )
