"""Takes the README's picture of the status page of a running join. Its charts are full two minutes
after `make run`. python -m tests.unit.service.page_picture http://127.0.0.1:8080
"""

import io
import sys
from pathlib import Path

from PIL import Image  # matplotlib installs it
from playwright.sync_api import Browser

from tests.unit.service.browser import PATIENCE_MS, chromium

PICTURE = Path(__file__).parents[3] / "docs" / "images" / "status-page.png"
WIDTH = 1100
MARGIN = 16
# Two rows of charts. The sections below them contain paths of this machine.
LAST_CHART = 5
# A third of the bytes of full color; the page has few colors.
COLORS = 256


def screenshot(browser: Browser, url: str) -> bytes:
    page = browser.new_page(
        viewport={"width": WIDTH, "height": 900}, color_scheme="light", timezone_id="UTC"
    )
    page.goto(url)
    page.locator('[data-of="state"]', has_text="RUNNING").wait_for(timeout=PATIENCE_MS)
    page.locator("#charts svg").first.wait_for(timeout=PATIENCE_MS)
    chart = page.locator("#charts > *").nth(LAST_CHART).bounding_box()
    assert chart is not None
    height = chart["y"] + chart["height"] + MARGIN
    return page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": WIDTH, "height": height})


def main() -> None:
    (url,) = sys.argv[1:]
    with chromium() as browser:
        picture = Image.open(io.BytesIO(screenshot(browser, url)))
    PICTURE.parent.mkdir(exist_ok=True)
    picture.convert("RGB").quantize(COLORS).save(PICTURE, optimize=True)


if __name__ == "__main__":
    main()
