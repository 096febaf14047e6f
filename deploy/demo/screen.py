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

from deploy.demo.check import CheckResult, Finding
from deploy.demo.joins import DemoJoin
from deploy.demo.load import SIDES, Side
from deploy.demo.service import Figures
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

    join: DemoJoin
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
        rows = max(SAMPLE_ROWS_MIN, min(SAMPLE_ROWS_MAX, height - OTHER_LINES))
        return Group(
            headline(
                Text.assemble(("Streamjoin  ", "bold"), self.join.question),
                f"{self.phase}  {minutes}:{seconds:02}",
            ),
            *self._job(),
            "",
            _sample(self, rows),
            _addresses(self),
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
    columns = snapshot.join.columns
    for number, (name, width) in enumerate(columns.items()):
        table.add_column(name, justify="left" if number else "right", width=width)
    unmatched = max(1, height // 3)
    for newest, rows, style in (
        (snapshot.newest_matched, height - unmatched, ""),
        (snapshot.newest_unmatched, unmatched, "dim"),
    ):
        for row in newest[-rows:]:
            table.add_row(*(_cell(name, row.get(name)) for name in columns), style=style)
        # Constant height: a growing table flickers.
        for _ in range(rows - len(newest)):
            table.add_row()
    return table


def _addresses(snapshot: Snapshot) -> RenderableType:
    addresses = snapshot.addresses
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", width=14)
    table.add_column(overflow="fold")
    table.add_row("status page", f"{addresses.service}/  also /v1/query  /metrics  /openapi.json")
    table.add_row("Kafka", f"{addresses.broker}  {snapshot.join.topics_text}")
    table.add_row("logs", Text.assemble(addresses.folder, ("   Ctrl-C stops everything", "dim")))
    return table


def _cell(column: str, value: object) -> str:
    """The value; of an ISO timestamp the time of day."""
    if column.endswith("_at"):
        return value[11:23] if isinstance(value, str) else "never"
    return MISSING if value is None else str(value)
