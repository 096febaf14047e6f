"""The status page in a real Chromium: what is seen, what is pressed, and what it asks for."""

import base64
import hashlib
import re
from pathlib import Path

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Error

from job.errors import BusyError
from job.protocol.control import control_socket
from job.protocol.results import FailuresResult, KeyExplanation, PlanResult
from job.protocol.status import Failure, QueryState
from tests.polling import wait_until
from tests.unit.service.browser import (
    PATIENCE_MS,
    PHONE,
    key_rows,
    lively,
    opened,
    running,
    serving_page,
)
from tests.unit.service.builders import NOW, SmallJob, broker_report

pytestmark = pytest.mark.processes

CONTROL = "c0ntr0l-c0ntr0l-c0ntr0l"
READ = "read-read-read-read-read"
# Would run where text were taken for markup.
MARKUP = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 900}},
    "phone": {"color_scheme": "light", "viewport": PHONE},
    "dark-phone": {"color_scheme": "dark", "viewport": PHONE},
}
# Chromium itself says each answer that is an error.
NOT_OURS = re.compile("Failed to load resource: the server responded with a status of")


@pytest.mark.parametrize("look", LOOKS)
def test_everything_is_seen_without_error_and_without_scrolling_sideways(
    browser: Browser, url: str, tmp_path: Path, look: str
) -> None:
    with opened(browser, url, **LOOKS[look]) as seen:
        seen.awaits("state", "RUNNING")
        for summary in seen.page.locator("summary").all():
            summary.click()
        seen.page.get_by_label("Key: ad_id").fill("7")
        seen.page.get_by_role("button", name="Ask").click()
        seen.awaits("explanation", "The left row is held.")
        seen.awaits("left.partitions", "10")
        seen.page.screenshot(path=tmp_path / f"{look}.png", full_page=True)

        wide, window = seen.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        found = Axe().run(seen.page)
        assert wide <= window
        assert [] == seen.errors
        assert 0 == found.violations_count, found.generate_report()


def test_figures_are_those_of_the_api(browser: Browser, url: str) -> None:
    with opened(browser, url) as seen:
        seen.awaits("state", "RUNNING")
        seen.awaits("batches", "40")

        assert "17\nleft 15 · right 2" == seen.text("lag")
        assert "50,000\n1 MB of memory" == seen.text("state_rows")
        assert "80\nsince the job started" == seen.text("late")
        assert "right holds it back" in seen.text("watermark_lag")
        assert ["impressions", "clicks"] == [seen.text(f"{it}.topic") for it in ("left", "right")]
        assert ["160", "42"] == [seen.text("left.rows"), seen.text("left.unmatched")]
        assert ["40", "0"] == [seen.text(f"{it}.null_keys") for it in ("left", "right")]
        assert "120 malformed json" == seen.text("left.bad")
        assert ["5 late", "none"] == [seen.text(f"{it}.dead") for it in ("left", "right")]
        assert "ad_attribution" == seen.text("name")
        assert 20 == seen.page.locator('[data-of="batches"] tbody tr').count()
        assert 6 == seen.page.locator("#charts svg[aria-label*='last 40 batches']").count()
        assert 0 == seen.page.locator("#charts path[d='']").count()


def test_the_page_asks_nobody_but_its_own_sidecar(browser: Browser, url: str) -> None:
    with opened(browser, url) as seen:
        seen.awaits("state", "RUNNING")

        assert {url} == {asked[: len(url)] for asked in seen.asked if asked[:5] != "data:"}
        assert {"v1"} == {asked.removeprefix(url).split("/")[0] for asked in seen.asked[1:]}


def test_the_policy_allows_this_script_and_this_style_and_no_other(url: str) -> None:
    answer = httpx.get(url)

    policy = dict(
        part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; ")
    )
    for directive, tag in (("script-src", "script"), ("style-src", "style")):
        [content] = re.findall(f"<{tag}>(.*?)</{tag}>", answer.text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"'sha256-{digest}'" == policy[directive]
    assert ("'none'", "'self'") == (policy["default-src"], policy["connect-src"])
    assert "'none'" == policy["frame-ancestors"]
    assert "unsafe" not in answer.headers["content-security-policy"]


def test_not_even_a_mistake_of_the_script_makes_markup_of_text(browser: Browser, url: str) -> None:
    with opened(browser, url) as seen:
        seen.awaits("state", "RUNNING")

        with pytest.raises(Error, match="requires 'TrustedHTML' assignment"):
            seen.page.evaluate("text => { document.body.innerHTML = text }", MARKUP)


def test_what_others_have_written_is_text_and_never_markup(
    browser: Browser, url: str, job: SmallJob
) -> None:
    failure = Failure(code=MARKUP, message=MARKUP, retryable=True, at=NOW)
    brokers = broker_report(error=MARKUP)
    job.current = running(
        name=MARKUP,
        last_failure=failure,
        brokers=brokers.model_copy(
            update={"left": brokers.left.model_copy(update={"topic": MARKUP})}
        ),
    )
    job.answers |= {
        "plan": PlanResult(text=MARKUP, facts={}, spec={"left": {"key": [MARKUP]}}),
        "failures": FailuresResult(failures=[failure]),
        "explain": KeyExplanation(
            sentences=[MARKUP], left=key_rows("left"), right=key_rows("right")
        ),
    }
    with opened(browser, url) as seen:
        seen.awaits("state", "RUNNING")
        seen.page.locator("input[name=key]").fill(MARKUP)
        seen.page.get_by_role("button", name="Ask").click()
        for part in ("explanation", "name", "failure", "failures", "brokers", "left.topic"):
            seen.awaits(part, MARKUP)

        assert MARKUP in (seen.page.locator('[data-of="plan"]').text_content() or "")
        assert 0 == seen.page.locator("img").count()
        assert 1 == seen.page.locator("script").count()
        assert "owned" != seen.page.title()
        assert [] == seen.errors


def test_the_query_is_paused_and_resumed_by_keyboard_with_a_token(
    browser: Browser, path: Path, job: SmallJob, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"eve read {READ}\nada control {CONTROL}\n")
    with serving_page(path, tokens_file=tokens) as url, opened(browser, url) as seen:
        keyboard = seen.page.keyboard
        seen.awaits("trouble", "A token is needed")
        seen.page.clock.run_for(30_000)
        assert 1 == sum("/v1/" in asked for asked in seen.asked)

        _tab_to(seen.page, "token")
        keyboard.type(READ)
        keyboard.press("Enter")
        seen.awaits("state", "RUNNING")
        assert not seen.page.locator("#banner").is_visible()

        keyboard.press("Tab")
        keyboard.press("Enter")
        seen.awaits("told", "this token's scope is read, and control is needed")
        assert [] == job.commands

        keyboard.press("Shift+Tab")
        keyboard.press("Control+A")
        keyboard.type(CONTROL)
        keyboard.press("Tab")
        keyboard.press("Enter")
        seen.awaits("state", "PAUSED")
        keyboard.press("Tab")
        keyboard.press("Space")
        seen.awaits("state", "RUNNING")

        assert ["pause", "resume"] == [verb for verb, _ in job.commands]
        assert {"ada@127.0.0.1"} == {by for _, by in job.commands}
        stored = "[localStorage.length, sessionStorage.length, document.cookie, location.search]"
        assert [0, 0, "", ""] == seen.page.evaluate(stored)
        assert [] == [error for error in seen.errors if not NOT_OURS.match(error)]


def test_what_has_the_focus_can_be_seen(browser: Browser, url: str) -> None:
    with opened(browser, url) as seen:
        seen.awaits("state", "RUNNING")
        stops = set()
        for _ in range(20):
            seen.page.keyboard.press("Tab")
            name, width = seen.page.evaluate(
                "[document.activeElement.id || document.activeElement.innerText,"
                " parseFloat(getComputedStyle(document.activeElement).outlineWidth)]"
            )
            stops.add(name)
            assert width >= 2, name

        assert {"token", "Pause", "Resume", "Stop", "Restart", "Partitions", "Ask"} <= stops


def test_stop_asks_first_and_may_be_left(browser: Browser, url: str, job: SmallJob) -> None:
    with opened(browser, url) as seen:
        seen.awaits("state", "RUNNING")
        stop = seen.page.get_by_role("button", name="Stop", exact=True)
        stop.click()
        seen.page.get_by_role("dialog", name="Stop the query?").wait_for()
        seen.page.keyboard.press("Escape")
        seen.page.locator("#sure").wait_for(state="hidden")
        assert [] == job.commands

        stop.click()
        seen.page.get_by_role("button", name="Stop it").click()
        seen.awaits("state", "STOPPED")
        assert ["stop"] == [verb for verb, _ in job.commands]


def test_a_refused_command_says_why_and_what_is_possible(
    browser: Browser, url: str, job: SmallJob
) -> None:
    job.allowed = ("resume", "stop")
    with opened(browser, url) as seen:
        seen.page.get_by_role("button", name="Pause").click()

        seen.awaits("told", "pause is not possible while the query is RUNNING")
        assert "Possible now: resume, stop." in seen.text("told")


def test_a_question_that_has_to_wait_says_how_long(
    browser: Browser, url: str, job: SmallJob
) -> None:
    job.answers["explain"] = BusyError("another look-up is at work", retry_after_seconds=3.0)
    with opened(browser, url) as seen:
        seen.page.locator("input[name=key]").fill("7")
        seen.page.keyboard.press("Enter")

        seen.awaits("explanation", "another look-up is at work. Ask again in 3 s.")


def test_a_job_that_has_gone_is_told_and_old_figures_do_not_look_alive(
    browser: Browser, path: Path, tmp_path: Path
) -> None:
    given = lively(SmallJob(running()))
    with serving_page(path) as url, opened(browser, url) as seen:
        with control_socket(path, given):
            seen.awaits("state", "RUNNING")
            assert "OLD" not in seen.text("age")
        seen.awaits("trouble", "The job does not answer")
        seen.awaits("age", "OLD FIGURES")
        seen.page.screenshot(path=tmp_path / "down.png")
        assert "UNKNOWN" == seen.text("state")
        assert "was RUNNING when last heard of" == seen.text("since")
        assert seen.page.locator("html.old").count()
        assert "UNKNOWN · ad_attribution" == seen.page.title()

        with control_socket(path, given):
            seen.awaits("state", "RUNNING")
            assert not seen.page.locator("#banner").is_visible()
            assert not seen.page.locator("html.old").count()


def test_a_sidecar_that_has_gone_is_told(browser: Browser, url: str) -> None:
    with opened(browser, url) as seen:
        seen.awaits("state", "RUNNING")
        seen.page.context.set_offline(True)

        seen.awaits("trouble", "The sidecar does not answer")
        seen.awaits("age", "OLD FIGURES")


def test_a_failed_query_says_why(browser: Browser, url: str, job: SmallJob) -> None:
    failure = Failure(code="query", message="the schema has changed", retryable=False, at=NOW)
    job.current = running(state=QueryState.FAILED, last_failure=failure)
    with opened(browser, url) as seen:
        seen.awaits("state", "FAILED")

        assert seen.text("failure").endswith("query: the schema has changed")


def test_a_silent_side_that_follows_the_clock_is_told(
    browser: Browser, url: str, job: SmallJob
) -> None:
    job.current = running(idle={"left": False, "right": True})
    with opened(browser, url) as seen:
        seen.awaits("right.watermark", "silent: event time follows the clock")

        assert "right silent, following the clock" in seen.text("watermark_lag")
        assert "silent" not in seen.text("left.watermark")


def test_a_hidden_tab_asks_nothing(browser: Browser, url: str) -> None:
    with opened(browser, url) as seen:
        seen.awaits("state", "RUNNING")
        hide = (
            "hidden => { Object.defineProperty(document, 'hidden',"
            " { value: hidden, configurable: true });"
            " document.dispatchEvent(new Event('visibilitychange')); }"
        )
        seen.page.evaluate(hide, True)
        seen.page.wait_for_load_state("networkidle")
        before = len(seen.asked)
        seen.page.clock.run_for(30_000)
        assert before == len(seen.asked)

        seen.page.evaluate(hide, False)
        wait_until(
            lambda: _more(seen.page, seen.asked, before), PATIENCE_MS / 1000, "it asks again"
        )


def _more(page, asked: list[str], before: int) -> bool:
    page.evaluate("0")  # lets playwright hear what has happened
    return len(asked) > before


def _tab_to(page, name: str) -> None:
    for _ in range(10):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == name:
            return
    raise AssertionError(f"{name} cannot be reached by keyboard")
