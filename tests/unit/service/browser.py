"""A real Chromium before a real sidecar before a small job."""

import threading
from collections.abc import Iterator
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

# A page that has not got there by then does not; other tests may keep the machine busy.
PATIENCE_MS = 20_000
PHONE = {"width": 320, "height": 700}
BATCHES = 40


@contextmanager
def chromium() -> Iterator[Browser]:
    found = program("chromium", "chromium-browser", "google-chrome", package="chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=found)
        yield started
        started.close()


@contextmanager
def serving_page(socket: Path, **fields: Any) -> Iterator[str]:
    """The page's address, of a sidecar of its own."""
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
class Seen:
    """A page, what its console said, and whom it asked."""

    page: Page
    errors: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def text(self, name: str) -> str:
        return self.page.locator(f'[data-of="{name}"]').inner_text()

    def awaits(self, name: str, text: str) -> None:
        """Until that part of the page holds the text."""
        found = self.page.locator(f'[data-of="{name}"]', has_text=text)
        found.wait_for(timeout=PATIENCE_MS)


@contextmanager
def opened(browser: Browser, url: str, **context: Any) -> Iterator[Seen]:
    tab = browser.new_context(**context)
    seen = Seen(tab.new_page())
    seen.page.set_default_timeout(PATIENCE_MS)
    seen.page.on("console", lambda said: seen.errors.append(said.text))
    seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
    seen.page.on("request", lambda request: seen.asked.append(request.url))
    seen.page.clock.install()  # it runs as any clock does, and can be put forward
    try:
        seen.page.goto(url)
        yield seen
    finally:
        tab.close()


def lively(job: SmallJob) -> SmallJob:
    """With all its answers."""
    job.answers = {
        "plan": PlanResult(
            text="Join ad_attribution\n  left   impressions",
            facts={},
            spec={"left": {"key": ["ad_id"]}},
        ),
        "progress": ProgressResult(batches=history()),
        "failures": FailuresResult(failures=[NO_BROKER]),
        "explain": KeyExplanation(
            sentences=["The left row is held.", "The right side holds the watermark back."],
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
    """Of a query whose last batch has just ended."""
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
    """One a second, up to now."""
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


def key_rows(of: str, *rows: StateRow) -> KeyRows:
    return KeyRows(
        side=of, key=["7"], batch_id=BATCHES, rows=[*rows], more=False, duration_seconds=0.3
    )
