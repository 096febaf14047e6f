"""A real Chromium, a real service and a small job."""

import threading
from collections.abc import Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from job.protocol.progress import BatchProgress
from job.protocol.results import (
    FailuresResult,
    KeyExplanation,
    KeyRows,
    PlanResult,
    ProgressResult,
    StateRow,
)
from job.protocol.status import JobStatus
from job.spec.sides import Side
from service.__main__ import listening_socket
from service.app import create_app
from tests.programs import program
from tests.unit.service.builders import (
    NO_BROKER,
    SmallJob,
    batch,
    broker_report,
    side,
    state_count,
    status_after,
)
from tests.unit.service.calls import settings

# Generous, because other tests load the machine.
PATIENCE_MS = 20_000
PHONE = {"width": 400, "height": 800}
SMALL_PHONE = {"width": 320, "height": 700}
BATCHES = 40
JOIN = "impressions left outer join clicks on left ad_id = right ad_id"


@contextmanager
def chromium() -> Iterator[Browser]:
    found = program("chromium", "chromium-browser", "google-chrome", package="chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found)
        yield started
        started.close()


@contextmanager
def serving_page(socket: Path, **fields: Any) -> Iterator[str]:
    """URL of the page of a new service."""
    listener = listening_socket("127.0.0.1", 0)
    app = create_app(settings(socket, **fields))
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


@dataclass
class Tab:
    """A page, its console errors and the URLs of its requests."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        return self.page.locator(f'[data-of="{name}"]').inner_text()

    def wait_for(self, name: str, text: str) -> None:
        """Wait until that part of the page contains the text."""
        found = self.page.locator(f'[data-of="{name}"]', has_text=text)
        found.wait_for(timeout=PATIENCE_MS)

    def shown_commands(self) -> list[str]:
        return self.page.locator("[data-verb]:visible").all_inner_texts()

    def focus(self, name: str) -> None:
        """Reach the element with this id by keyboard."""
        for _ in range(10):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("document.activeElement.id") == name:
                return
        raise AssertionError(f"{name} cannot be reached by keyboard")

    def send(self, command: str) -> None:
        """Click the button of the command, and confirm the command."""
        self.page.get_by_role("button", name=command, exact=True).click()
        self.page.get_by_role("button", name=f"{command} query").click()


@contextmanager
def open_tab(browser: Browser, url: str, **options: Any) -> Iterator[Tab]:
    context = browser.new_context(**options)
    tab = Tab(context.new_page())
    tab.page.set_default_timeout(PATIENCE_MS)
    tab.page.on("console", lambda message: tab.errors.append(message.text))
    tab.page.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.page.on("request", lambda request: tab.requests.append(request.url))
    tab.page.clock.install()  # it runs normally, and tests can advance it
    try:
        tab.page.goto(url)
        yield tab
    finally:
        context.close()


def has_more(page: Page, events: Sized, before: int) -> bool:
    """Whether the handlers of the test have collected more events."""
    page.evaluate("0")  # lets playwright process its events
    return len(events) > before


def with_answers(job: SmallJob) -> SmallJob:
    """The job with an answer to every call of the page."""
    job.answers = {
        "plan": PlanResult(
            text="Join ad_attribution\n  left   impressions",
            facts={"summary": {"join": JOIN}, "engine": "real_time"},
            spec={
                "left": {"key": ["ad_id"], "deduplicate": {"by": ["ad_id"], "within": "1 minute"}},
                "right": {"key": ["ad_id"], "deduplicate": None},
            },
        ),
        "progress": ProgressResult(batches=history()),
        "failures": FailuresResult(failures=[NO_BROKER]),
        "explain": KeyExplanation(
            sentences=["The left row is in state.", "The right side holds the watermark back."],
            left=key_rows("left", StateRow(
                row={"ad_id": 7, "campaign": "spring"}, event_time=datetime.now(UTC),
                topic="impressions", partition=0, offset=412, matched=False,
                leaves_after=datetime.now(UTC) + timedelta(hours=1),
            )),
            right=key_rows("right"),
        ),
    }  # fmt: skip
    return job


def running(**fields: Any) -> JobStatus:
    """Status of a query whose last batch has just ended."""
    now = datetime.now(UTC)
    known = {
        "started_at": now - timedelta(hours=2),
        "state_since": now - timedelta(hours=1),
        "last_progress_at": now,
        "brokers": broker_report(answered_at=now),
        "state_count": state_count(),
    }
    shown = status_after(*history(), **{**known, **fields})
    dead = shown.totals.with_dead_letters({("left", "late"): 5, ("right", "tombstone"): 0})
    return shown.model_copy(update={"totals": dead})


def history() -> list[BatchProgress]:
    """One batch per second, up to now."""
    now = datetime.now(UTC)
    return [
        batch(
            batch_id=number,
            started_at=now - timedelta(seconds=BATCHES - number),
            duration_seconds=0.4 + number % 7 / 20,
            output_records=300 + number % 11 * 20,
            state_rows=40_000 + number * 250,
            watermark_ms=round(now.timestamp() * 1000) - 55_000 + number * 900,
            left=side(records=420 + number % 9 * 25),
            right=side(records=180 + number % 5 * 15, null_keys=0),
        )
        for number in range(1, BATCHES + 1)
    ]


def key_rows(of: Side, *rows: StateRow) -> KeyRows:
    return KeyRows(
        side=of, key=["7"], batch_id=BATCHES, rows=[*rows], more=False, duration_seconds=0.3
    )
