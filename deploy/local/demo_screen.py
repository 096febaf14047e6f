"""Screen of the demo: that of `streamjoin watch`, with the records sent and the newest results.

It renders Snapshots and polls nothing.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from deploy.local.demo_check import CheckResult, Finding
from deploy.local.demo_load import SIDES, Side
from deploy.local.demo_service import Figures
from job.api.screen import headline, query_table, sides_table
from job.api.texts import progress_line

# Lines of the screen without the sample rows; with two of these it fits into 24 lines.
OTHER_LINES = 22
SAMPLE_ROWS_MIN, SAMPLE_ROWS_MAX = 2, 15
MISSING = "-"

Row = Mapping[str, object]


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
    newest_matched: Sequence[Row]
    newest_unmatched: Sequence[Row]
    addresses: Addresses

    def rendered(self, height: int) -> RenderableType:
        minutes, seconds = divmod(int(self.elapsed_seconds), 60)
        question = "which impressions were clicked within 10 s?"
        rows = max(SAMPLE_ROWS_MIN, min(SAMPLE_ROWS_MAX, height - OTHER_LINES))
        return Group(
            headline(
                Text.assemble(("Streamjoin  ", "bold"), question),
                f"{self.phase}  {minutes}:{seconds:02}",
            ),
            *self._job(),
            "",
            _sample(self, rows),
            _addresses(self.addresses),
        )

    def _job(self) -> Iterator[RenderableType]:
        if self.figures is None:
            yield Text("no answer", "bold")
            return
        query = self.figures.query
        sent = ("sent", tuple(f"{self.sent[side]:,}" for side in SIDES))
        yield sides_table(query, self.at, before=[sent])
        yield query_table(query, self.at)

    @property
    def line(self) -> str:
        query = None if self.figures is None else self.figures.query
        job = "no answer" if query is None else progress_line(query, self.at)
        return f"{self.elapsed_seconds:4.0f} s  {self.phase}  {job}"


@contextmanager
def step(console: Console, name: str) -> Iterator[None]:
    """Print the name of a step and how long it took."""
    start = time.monotonic()
    with console.status(f"{name} …"):
        yield
    console.print(f"  {name:<46} {time.monotonic() - start:5.1f} s")


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


def _sample(snapshot: Snapshot, height: int) -> RenderableType:
    """Two thirds matched rows, one third unmatched: these come in bursts, when windows end."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("ad_id", justify="right", width=8)
    table.add_column("campaign", width=10)
    table.add_column("user", width=10)
    table.add_column("shown_at", width=12)
    table.add_column("clicked_at", width=14)
    unmatched = max(1, height // 3)
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


def _clock(iso: object) -> str:
    """Time of day of an ISO timestamp."""
    return iso[11:23] if isinstance(iso, str) else "never"


def _cell(value: object) -> str:
    return MISSING if value is None else str(value)
