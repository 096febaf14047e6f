"""The screen of the demo fits a small terminal, and shows unknown values as unknown."""

import io

from rich.console import Console

from deploy.demo.joins import STREAMS, TABLE, DemoJoin
from deploy.demo.screen import Addresses, Row, Snapshot
from deploy.demo.service import Figures
from job.api.query import QueryView
from job.api.screen import live_screen
from tests.unit.service.builders import NOW, batch, status_after

FIGURES = Figures(QueryView.of(status_after(batch()), NOW), {})
MATCHED = {
    "ad_id": 7,
    "campaign": "travel",
    "user": "ada",
    "shown_at": "2026-11-20T12:00:01.500Z",
    "clicked_at": "2026-11-20T12:00:03.250Z",
}
UNMATCHED = {**MATCHED, "ad_id": 8, "user": None, "clicked_at": None}
ORDER = {
    "order_id": 1_234_567,
    "customer_id": 12,
    "amount": 150,
    "name": "barbara",
    "tier": "platinum",
    "points": 1_234_560,
}


def test_screen_has_figures_rows_and_addresses_within_80_by_24() -> None:
    screen = rendered(snapshot(FIGURES), width=80, height=24)

    assert_fits(screen)
    for part in (
        "RUNNING since 2026-11-20 12:00:00Z",
        "12,020",
        "30: 26 matched, 4 unmatched",
        "15.5 s behind now",
        "0.50 s, 30 records, 30 results",
        "3: 3 malformed_json",
        "12:00:03.250",
        "never",
        "http://127.0.0.1:8080/",
        "127.0.0.1:20000  impressions + clicks → attributed",
    ):
        assert part in screen


def test_screen_has_the_columns_of_the_demo_with_a_table() -> None:
    screen = rendered(snapshot(FIGURES, row=ORDER, join=TABLE), width=80, height=24)

    assert_fits(screen)
    for part in ("order_id", "platinum    1234560", "orders + customers → enriched"):
        assert part in screen


def assert_fits(screen: str) -> None:
    assert len(screen.splitlines()) <= 24
    assert max(map(len, screen.splitlines())) <= 80


def test_without_an_answer_the_screen_reports_it() -> None:
    assert "no answer" in rendered(snapshot(None), width=80, height=24)
    assert "  42 s  sending for 60 s  no answer" == snapshot(None).line


def test_without_a_terminal_a_line_is_printed_periodically() -> None:
    output, clock = io.StringIO(), iter([0.0, 0.0, 0.0, 1.0, 4.9, 5.1, 5.1, 6.0])

    console = Console(file=output, force_terminal=False, highlight=False)
    with live_screen(console, lambda: next(clock)) as show:
        for seconds in (0.0, 1.0, 4.9, 5.1, 6.0):
            show(snapshot(FIGURES, elapsed_seconds=seconds))

    start = "s  sending for 60 s  12:00:00Z RUNNING: read 20 + 10, joined 30, late 2, bad 6, "
    lines = output.getvalue().splitlines()
    assert [f"   0 {start}", f"   5 {start}"] == [line[: len(start) + 5] for line in lines]


def snapshot(
    figures: Figures | None,
    *,
    row: Row = MATCHED,
    join: DemoJoin = STREAMS,
    elapsed_seconds: float = 42.0,
) -> Snapshot:
    return Snapshot(
        join=join,
        at=NOW,
        phase="sending for 60 s",
        elapsed_seconds=elapsed_seconds,
        sent={"left": 12_020, "right": 9_010},
        figures=figures,
        newest_matched=[row] * 20,
        newest_unmatched=[UNMATCHED] * 20,
        addresses=Addresses("http://127.0.0.1:8080", "127.0.0.1:20000", "data/demo/run-1"),
    )


def rendered(snapshot: Snapshot, *, width: int, height: int) -> str:
    output = io.StringIO()
    console = Console(file=output, width=width, height=height, highlight=False)
    console.print(snapshot.rendered(height))
    return output.getvalue()
