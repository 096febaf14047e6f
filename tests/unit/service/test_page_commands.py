"""Commands of the status page in a real Chromium."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route

from job.protocol.status import Phase
from tests.polling import wait_until
from tests.unit.service.browser import (
    PATIENCE_MS,
    has_more,
    open_tab,
    serving_page,
)
from tests.unit.service.builders import SmallJob

pytestmark = pytest.mark.processes

CONTROL = "c0ntr0l-c0ntr0l-c0ntr0l"
READ = "read-read-read-read-read"
# Chromium logs each error response.
LOGGED_BY_CHROMIUM = re.compile("Failed to load resource: the server responded with a status of")


def test_query_is_paused_and_resumed_by_keyboard_with_a_token(
    browser: Browser, path: Path, job: SmallJob, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"eve read {READ}\nada control {CONTROL}\n")
    with serving_page(path, tokens_file=tokens) as url, open_tab(browser, url) as tab:
        keyboard = tab.page.keyboard
        tab.wait_for("problem", "A token is required")
        assert "no data yet" == tab.text("age")
        tab.page.clock.run_for(30_000)
        assert 1 == sum("/v1/" in sent for sent in tab.requests)

        tab.focus("token")
        keyboard.insert_text(READ)
        keyboard.press("Enter")
        tab.wait_for("state", "RUNNING")
        assert not tab.page.locator("#banner").is_visible()

        assert tab.page.locator("#read-only").is_visible()
        assert [] == tab.shown_commands()

        keyboard.press("Control+A")
        keyboard.insert_text(CONTROL)
        keyboard.press("Enter")
        tab.page.get_by_role("button", name="Pause").wait_for()
        assert ["Pause", "Stop", "Restart"] == tab.shown_commands()
        assert not tab.page.locator("#read-only").is_visible()
        keyboard.press("Tab")
        keyboard.press("Enter")
        tab.page.get_by_role("dialog", name="Pause ad_attribution?").wait_for()
        keyboard.press("Enter")  # Cancel has the focus
        tab.page.locator("#confirm").wait_for(state="hidden")
        assert [] == job.commands

        keyboard.press("Enter")
        keyboard.press("Tab")
        keyboard.press("Enter")
        tab.wait_for("state", "PAUSED")
        assert ["Resume", "Stop"] == tab.shown_commands()
        keyboard.press("Space")  # the focus has moved to Resume
        keyboard.press("Tab")
        keyboard.press("Space")
        tab.wait_for("state", "RUNNING")

        assert ["pause", "resume"] == [verb for verb, _ in job.commands]
        assert {"ada@127.0.0.1"} == {by for _, by in job.commands}
        stored = "[localStorage.length, sessionStorage.length, document.cookie, location.search]"
        assert [0, 0, "", ""] == tab.page.evaluate(stored)
        assert [] == [error for error in tab.errors if not LOGGED_BY_CHROMIUM.match(error)]


def test_command_is_confirmed_and_can_be_cancelled(
    browser: Browser, url: str, job: SmallJob
) -> None:
    effects = {
        "Pause": "takes effect at once: Spark keeps running.",
        "Restart": "with the present content of the spec file.",
        "Stop": "Spark ends and frees its memory.",
    }
    with open_tab(browser, url) as tab:
        tab.wait_for("state", "RUNNING")
        for name, effect in effects.items():
            tab.page.get_by_role("button", name=name, exact=True).click()
            tab.page.get_by_role("dialog", name=f"{name} ad_attribution?").wait_for()
            assert effect in tab.page.locator("#confirm-effect").inner_text()
            tab.page.keyboard.press("Escape")
            tab.page.locator("#confirm").wait_for(state="hidden")
        assert [] == job.commands

        tab.send("Stop")
        tab.wait_for("state", "STOPPED")
        assert ["stop"] == [verb for verb, _ in job.commands]
        assert ["Resume"] == tab.shown_commands()


def test_dialog_describes_the_end_of_the_batch_or_interval(
    browser: Browser, url: str, job: SmallJob
) -> None:
    ends = [
        (None, "exactly_once", "The query finishes its batch."),
        (Phase.CATCH_UP, "exactly_once", "The query finishes its batch."),
        (Phase.REAL_TIME, "at_least_once", "The query finishes its interval."),
        (Phase.REAL_TIME, "exactly_once", "The query ends its interval at once. The next start"),
    ]
    with open_tab(browser, url) as tab:
        for phase, delivery, end in ends:
            job.current = job.current.model_copy(update={"phase": phase, "delivery": delivery})
            tab.wait_for("since", phase.replace("_", " ") if phase else "since")
            tab.wait_for("what", delivery.replace("_", " "))
            tab.page.get_by_role("button", name="Stop", exact=True).click()
            assert tab.page.locator("#confirm-effect").inner_text().startswith(end)
            tab.page.keyboard.press("Escape")


def test_refused_command_shows_the_reason_and_the_allowed_ones(
    browser: Browser, url: str, job: SmallJob
) -> None:
    job.allowed = ("resume", "stop")
    with open_tab(browser, url) as tab:
        tab.send("Pause")

        tab.wait_for("command_result", "pause: ")
        assert "pause is not possible while the query is RUNNING" in tab.text("command_result")
        assert "Allowed: resume, stop." in tab.text("command_result")


def test_command_takes_as_long_as_the_service_waits_for_the_job(
    browser: Browser, url: str, job: SmallJob
) -> None:
    sent: list[Route] = []
    with open_tab(browser, url) as tab:
        tab.page.route("**/v1/query/pause", lambda route: sent.append(route))
        # The timeout of the page ends with the clock of the test.
        tab.page.evaluate(
            "AbortSignal.timeout = ms => {"
            " const ends = new AbortController(); setTimeout(() => ends.abort(), ms);"
            " return ends.signal; }"
        )
        tab.send("Pause")
        wait_until(
            lambda: has_more(tab.page, sent, 0), PATIENCE_MS / 1000, "the page sends the command"
        )
        tab.page.clock.run_for(60_000)
        assert "pause…" == tab.text("command_result")

        sent[0].continue_()
        tab.wait_for("command_result", "pause: accepted.")
        assert ["pause"] == [verb for verb, _ in job.commands]
