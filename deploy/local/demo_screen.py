"""Screen of the demo: a live table on a terminal, otherwise a line every few seconds.

It renders Snapshots and polls nothing.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from deploy.local.demo_check import CheckResult, Finding
from deploy.local.demo_load import SIDES, TOPICS, Side
from deploy.local.demo_service import Figures

# Interval of progress lines without a terminal, for example in continuous integration.
LINE_SECONDS = 5.0
# Lines of the screen without the sample rows; with three of these it fits into 24 lines.
OTHER_LINES = 21
SAMPLE_ROWS_MIN, SAMPLE_ROWS_MAX = 3, 15
MISSING = "-"
# Explains the empty screen while Spark plans and warms up.
FIRST_BATCH = "the first one takes some seconds"

Row = Mapping[str, object]

STYLES = {
    "RUNNING": "bold green",
    "FAILED": "bold red",
    "RESTARTING": "bold yellow",
    "PAUSED": "bold yellow",
    "STOPPED": "bold yellow",
}


@dataclass(frozen=True)
class Addresses:
    service: str
    broker: str
    folder: str


@dataclass(frozen=True)
class Snapshot:
    """State of the demo at one point in time."""

    at: datetime
    phase: str
    elapsed_seconds: float
    sent: Mapping[Side, int]
    figures: Figures | None
    is_ready: bool
    matched: int
    unmatched: int
    newest_matched: Sequence[Row]
    newest_unmatched: Sequence[Row]
    addresses: Addresses

    @property
    def state(self) -> str:
        return self.figures.query.state if self.figures else "no answer"

    @property
    def watermark_trail_seconds(self) -> float | None:
        watermark = self.figures.query.watermark if self.figures else None
        return None if watermark is None else (self.at - watermark).total_seconds()


@contextmanager
def step(console: Console, name: str) -> Iterator[None]:
    """Print the name of a step and how long it took."""
    start = time.monotonic()
    with console.status(f"{name} …"):
        yield
    console.print(f"  {name:<46} {time.monotonic() - start:5.1f} s")


@contextmanager
def live_screen(console: Console) -> Iterator[Callable[[Snapshot], None]]:
    """Yields the function that renders a snapshot."""
    if not console.is_terminal:
        yield _lines(console)
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda snapshot: live.update(dashboard(snapshot, console.height), refresh=True)


def dashboard(snapshot: Snapshot, height: int) -> RenderableType:
    rows = max(SAMPLE_ROWS_MIN, min(SAMPLE_ROWS_MAX, height - OTHER_LINES))
    return Group(
        _headline(snapshot),
        "",
        _sides(snapshot),
        _query(snapshot),
        "",
        _sample(snapshot, rows),
        "",
        _addresses(snapshot.addresses),
    )


def progress_line(snapshot: Snapshot) -> str:
    figures = snapshot.figures
    start = f"{snapshot.elapsed_seconds:4.0f} s  {snapshot.state}"
    if figures is None:
        return start
    read = ", ".join(f"{figures.query.side(side).input_records:,} {TOPICS[side]}" for side in SIDES)
    return (
        f"{start}  {snapshot.phase} · read {read} · "
        f"out {snapshot.matched:,} matched, {snapshot.unmatched:,} unmatched · "
        f"lag {_count(figures.lag)} · watermark {_trail(snapshot)} · "
        f"state {_count(_state_rows(figures))} rows · bad {sum(_bad_by_reason(figures).values()):,}"
    )


def result_table(result: CheckResult) -> RenderableType:
    table = Table(box=None, padding=(0, 2), header_style="bold")
    table.add_column("checked")
    for name in ("expected", "found"):
        table.add_column(name, justify="right")
    table.add_column("")
    for finding in result.findings:
        table.add_row(finding.what, f"{finding.expected:,}", f"{finding.found:,}", _mark(finding))
    return table


def _mark(finding: Finding) -> Text:
    if not finding.is_right:
        return Text("WRONG", "bold red")
    if finding.expected != finding.found:
        return Text("restarted", "yellow")
    return Text("ok", "green")


def _lines(console: Console) -> Callable[[Snapshot], None]:
    due = 0.0

    def show(snapshot: Snapshot) -> None:
        nonlocal due
        if snapshot.elapsed_seconds >= due:
            due = snapshot.elapsed_seconds + LINE_SECONDS
            console.print(progress_line(snapshot), soft_wrap=True)

    return show


def _headline(snapshot: Snapshot) -> RenderableType:
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right")
    minutes, seconds = divmod(int(snapshot.elapsed_seconds), 60)
    title = Text.assemble(("Streamjoin  ", "bold"), "which impressions were clicked within 10 s?")
    line.add_row(title, Text(f"{snapshot.phase}  {minutes}:{seconds:02}", "dim"))
    return line


def _sides(snapshot: Snapshot) -> RenderableType:
    """A column per topic. Unknown values are shown as a dash, not as zero."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("", style="dim", width=14)
    for side in SIDES:
        table.add_column(TOPICS[side], justify="right", width=14)
    table.add_row("sent", *(f"{snapshot.sent[side]:,}" for side in SIDES))
    figures = snapshot.figures
    if figures is None:
        return table
    sides = [figures.query.side(side) for side in SIDES]
    table.add_row("read", *(_count(side.input_records) for side in sides))
    table.add_row("lag", *(_count(side.offsets_behind_latest_total) for side in sides))
    bad = [sum(figures.bad_records(side, r) for r in figures.bad_reasons(side)) for side in SIDES]
    table.add_row("bad records", *map(_count, bad))
    return table


def _query(snapshot: Snapshot) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", width=14)
    table.add_column()
    table.add_row("state", _state(snapshot))
    figures = snapshot.figures
    written = figures.metric("output_records_total") if figures else None
    out = f"{_count(written)}  ({snapshot.matched:,} matched, {snapshot.unmatched:,} unmatched)"
    table.add_row("rows out", out)
    table.add_row("watermark", _watermark(snapshot))
    if figures is None:
        return table
    batch = figures.query.last_batch
    last = (
        f"{batch.duration_seconds:.2f} s, {batch.input_records:,} records" if batch else FIRST_BATCH
    )
    late = figures.metric("late_rows_total")
    table.add_row("last batch", last)
    table.add_row("join state", f"{_count(_state_rows(figures))} rows, {late:,} late rows")
    bad = [f"{count} {reason}" for reason, count in sorted(_bad_by_reason(figures).items())]
    table.add_row("bad records", ", ".join(bad) or "none")
    return table


def _state(snapshot: Snapshot) -> Text:
    text = Text(snapshot.state, STYLES.get(snapshot.state, "bold"))
    text.append(" ready" if snapshot.is_ready else " not ready", "dim")
    phase = snapshot.figures.query.phase if snapshot.figures else None
    return text.append(f", {phase.replace('_', ' ')}", "dim") if phase else text


def _sample(snapshot: Snapshot, height: int) -> RenderableType:
    """Two thirds matched rows, one third unmatched: these come in bursts, when windows end."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("ad_id", justify="right", width=8)
    table.add_column("campaign", width=10)
    table.add_column("user", width=10)
    table.add_column("shown_at", width=12)
    table.add_column("clicked_at", width=14)
    unmatched = height // 3
    _add_rows(table, snapshot.newest_matched, height - unmatched, style="")
    _add_rows(table, snapshot.newest_unmatched, unmatched, style="dim")
    return table


def _add_rows(table: Table, newest: Sequence[Row], height: int, *, style: str) -> None:
    rows = newest[-height:]
    for row in rows:
        names = ("ad_id", "campaign", "user")
        times = (_clock(row.get("shown_at")), _clock(row.get("clicked_at")))
        table.add_row(*(_cell(row.get(name)) for name in names), *times, style=style)
    # Constant height: a growing table flickers.
    for _ in range(height - len(rows)):
        table.add_row()


def _addresses(addresses: Addresses) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", width=14)
    table.add_column(overflow="fold")
    table.add_row("status page", f"{addresses.service}/  also /v1/query  /metrics  /openapi.json")
    table.add_row("Kafka", f"{addresses.broker}  impressions + clicks → attributed")
    table.add_row("logs", Text.assemble(addresses.folder, ("   Ctrl-C stops everything", "dim")))
    return table


def _watermark(snapshot: Snapshot) -> str:
    watermark = snapshot.figures.query.watermark if snapshot.figures else None
    if watermark is None:
        return "none yet"
    return f"{watermark.astimezone(UTC):%H:%M:%S} UTC, {_trail(snapshot)}"


def _trail(snapshot: Snapshot) -> str:
    seconds = snapshot.watermark_trail_seconds
    if seconds is None:
        return "none yet"
    # The closing records have event times in the future, so that the last windows end.
    return f"{seconds:.1f} s behind now" if seconds >= 0 else f"{-seconds:.1f} s ahead of now"


def _state_rows(figures: Figures) -> int | None:
    return figures.query.last_batch.state_rows if figures.query.last_batch else None


def _bad_by_reason(figures: Figures) -> dict[str, int]:
    return {
        reason: sum(figures.bad_records(side, reason) for side in SIDES)
        for reason in set().union(*(figures.bad_reasons(side) for side in SIDES))
    }


def _count(records: int | None) -> str:
    return MISSING if records is None else f"{records:,}"


def _clock(iso: object) -> str:
    """Time of day of an ISO timestamp."""
    return iso[11:23] if isinstance(iso, str) else "never"


def _cell(value: object) -> str:
    return MISSING if value is None else str(value)
