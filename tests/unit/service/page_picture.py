"""Takes the README's picture of the status page. The charts are full two minutes after the start:

make run
.venv/bin/python -m tests.unit.service.page_picture http://127.0.0.1:8080
"""

import sys
from pathlib import Path

from tests.unit.service.browser import PATIENCE_MS, chromium

PICTURE = Path(__file__).parents[3] / "docs" / "images" / "status-page.png"
WIDTH = 1000


def main() -> None:
    (url,) = sys.argv[1:]
    PICTURE.parent.mkdir(exist_ok=True)
    with chromium() as browser:
        page = browser.new_page(
            viewport={"width": WIDTH, "height": 900}, color_scheme="light", timezone_id="UTC"
        )
        page.goto(url)
        page.locator('[data-of="state"]', has_text="RUNNING").wait_for(timeout=PATIENCE_MS)
        page.locator("#charts svg").first.wait_for(timeout=PATIENCE_MS)
        charts = page.locator("#charts").bounding_box()
        assert charts is not None
        # Without the sections below the charts: they contain paths of this machine.
        height = charts["y"] + charts["height"] + 16
        page.screenshot(
            path=PICTURE,
            full_page=True,
            clip={"x": 0, "y": 0, "width": WIDTH, "height": height},
        )


if __name__ == "__main__":
    main()
