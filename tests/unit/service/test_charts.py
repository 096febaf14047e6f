"""The charts of the status page, in a real Chromium."""

import re
import time
from datetime import timedelta

import pytest
from playwright.sync_api import Browser, Locator

from job.protocol.reports import SideCount
from job.protocol.results import ProgressResult
from tests.unit.service.browser import (
    BATCHES,
    PATIENCE_MS,
    Tab,
    history,
    open_tab,
    running,
)
from tests.unit.service.builders import SmallJob, event_times, side, state_count

pytestmark = pytest.mark.processes


def test_watermark_and_state_of_each_side_are_drawn_over_time(
    browser: Browser, url: str, job: SmallJob
) -> None:
    newest = round(time.time() * 1000) - 5_000
    job.current = running()
    sides = {
        name: getattr(job.current.totals, name).model_copy(update={"event_time_max_ms": newest})
        for name in ("left", "right")
    }
    job.current = job.current.model_copy(
        update={
            "totals": job.current.totals.model_copy(update=sides),
            "event_times": {name: event_times(newest) for name in sides},
        }
    )
    batches = [
        done.model_copy(
            update={
                "left": side(event_time_max_ms=newest if done.batch_id == 2 else newest - 60_000),
                "right": side(event_time_max_ms=None if done.batch_id < BATCHES else newest),
            }
        )
        for done in history()
    ]
    job.answers["progress"] = ProgressResult(batches=batches)
    with open_tab(browser, url) as tab:
        tab.wait_for("batches", str(BATCHES))

        lag = chart(tab, "Watermark lag, last 40 batches: now ")
        # Older rows do not move the watermark: the lag is 5 s plus the delays of 10 and 11.5 s.
        found = re.search(r"left (\d+) s · right (\d+) s", lag.get_attribute("aria-label") or "")
        assert found is not None
        left, right = map(int, found.groups())
        assert right - left in {1, 2}
        assert 15 <= left < 15 + PATIENCE_MS / 1000
        # Only one batch has an event time of the right side.
        assert ["query", "left", "right"] == paths(lag)
        chart(tab, "Rows in state by side, last 1 counts: now left 160 · right 240, highest 240")

        counted = state_count()
        counted_at = counted.counted_at + timedelta(minutes=1)
        later = counted.model_copy(update={"counted_at": counted_at, "left": SideCount.of([], [])})
        job.current = job.current.model_copy(update={"state_count": later})
        rows = chart(tab, "Rows in state by side, last 2 counts: now left 0 · right 240")
        assert ["left", "right"] == paths(rows)


def test_future_event_times_are_shown_and_no_line_leaves_its_chart(
    browser: Browser, url: str, job: SmallJob
) -> None:
    ahead = round(time.time() * 1000) + 3_600_000
    batches = [
        done.model_copy(update={"watermark_ms": done.watermark_ms + 60_000}) for done in history()
    ]
    job.answers["progress"] = ProgressResult(batches=batches)
    totals = job.current.totals.left.model_copy(update={"event_time_max_ms": ahead})
    job.current = job.current.model_copy(
        update={"totals": job.current.totals.model_copy(update={"left": totals})}
    )
    with open_tab(browser, url) as tab:
        tab.wait_for("left.newest", "ahead of the clock")
        tab.wait_for("batches", "40")

        outside = tab.page.evaluate(
            "[...document.querySelectorAll('#charts path')].filter(path => {"
            " const box = path.getBBox(), { height, width } = path.ownerSVGElement.viewBox.baseVal;"
            " return box.y < 0 || box.y + box.height > height || box.x + box.width > width })"
            ".map(path => path.closest('figure').innerText)"
        )
        assert [] == outside


def chart(tab: Tab, label: str) -> Locator:
    """The chart with this label, once it appears."""
    found = tab.page.locator(f'#charts svg[aria-label^="{label}"]')
    found.wait_for(timeout=PATIENCE_MS)
    return found


def paths(drawn: Locator) -> list[str]:
    """The lines with at least one point."""
    return [
        path.get_attribute("class") or ""
        for path in drawn.locator("path").all()
        if path.get_attribute("d")
    ]
