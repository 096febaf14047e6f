"""The screen of the demo fits a small terminal, and shows unknown values as unknown."""

import io
from datetime import UTC, datetime

from rich.console import Console

from deploy.local.demo_screen import Addresses, Snapshot, dashboard, live_screen, progress_line
from deploy.local.demo_service import BatchAnswer, Figures, QueryAnswer, SideAnswer

NOW = datetime(2026, 11, 20, 12, 0, 30, tzinfo=UTC)
WATERMARK = datetime(2026, 11, 20, 12, 0, 18, tzinfo=UTC)
FIGURES = Figures(
    QueryAnswer(
        state="RUNNING",
        watermark=WATERMARK,
        last_batch=BatchAnswer(duration_seconds=0.5, input_records=200, state_rows=7_000),
        last_failure=None,
        left=SideAnswer(input_records=12_000, offsets_behind_latest_total=20),
        right=SideAnswer(input_records=9_000, offsets_behind_latest_total=10),
    ),
    {
        ("streamjoin_output_records_total", frozenset()): 11_000.0,
        (
            "streamjoin_bad_records_total",
            frozenset({("side", "left"), ("reason", "tombstone")}),
        ): 3.0,
    },
)
MATCHED = {
    "ad_id": 7,
    "campaign": "travel",
    "user": "ada",
    "shown_at": "2026-11-20T12:00:01.500Z",
    "clicked_at": "2026-11-20T12:00:03.250Z",
}
UNMATCHED = {**MATCHED, "ad_id": 8, "user": None, "clicked_at": None}


def test_screen_has_figures_rows_and_addresses_within_80_by_24() -> None:
    screen = rendered(snapshot(FIGURES), width=80, height=24)

    assert len(screen.splitlines()) <= 24
    assert max(map(len, screen.splitlines())) <= 80
    for part in (
        "RUNNING ready",
        "12,000",
        "11,000  (8,000 matched, 3,000 unmatched)",
        "12:00:18 UTC, 12.0 s behind now",
        "0.50 s, 200 records",
        "7,000 rows, 0 late rows",
        "3 tombstone",
        "12:00:03.250",
        "never",
        "http://127.0.0.1:8080/",
        "127.0.0.1:20000",
    ):
        assert part in screen


def test_without_an_answer_the_screen_reports_it() -> None:
    assert "no answer" in rendered(snapshot(None), width=80, height=24)
    assert "no answer" in progress_line(snapshot(None))


def test_line_has_the_same_figures() -> None:
    assert (
        "  42 s  RUNNING  sending for 60 s · read 12,000 impressions, 9,000 clicks · "
        "out 8,000 matched, 3,000 unmatched · lag 30 · watermark 12.0 s behind now · "
        "state 7,000 rows · bad 3"
    ) == progress_line(snapshot(FIGURES))


def test_without_a_terminal_a_line_is_printed_periodically() -> None:
    output = io.StringIO()

    with live_screen(Console(file=output, force_terminal=False, highlight=False)) as show:
        for seconds in (0.0, 1.0, 4.9, 5.1, 6.0):
            show(snapshot(FIGURES, elapsed_seconds=seconds))

    assert ["0 s", "5 s"] == [line[:6].strip() for line in output.getvalue().splitlines()]


def snapshot(figures: Figures | None, *, rows: int = 20, elapsed_seconds: float = 42.0) -> Snapshot:
    return Snapshot(
        at=NOW,
        phase="sending for 60 s",
        elapsed_seconds=elapsed_seconds,
        sent={"left": 12_020, "right": 9_010},
        figures=figures,
        is_ready=figures is not None,
        matched=8_000,
        unmatched=3_000,
        newest_matched=[MATCHED] * rows,
        newest_unmatched=[UNMATCHED] * rows,
        addresses=Addresses("http://127.0.0.1:8080", "127.0.0.1:20000", "data/demo/run-1"),
    )


def rendered(snapshot: Snapshot, *, width: int, height: int) -> str:
    output = io.StringIO()
    Console(file=output, width=width, height=height, highlight=False).print(
        dashboard(snapshot, height)
    )
    return output.getvalue()
