"""A running job on a terminal: a screen that is rendered again and again; otherwise a line every
few seconds.

It renders what its caller has read from the job, and reads nothing.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from job.api.query import QueryView
from job.api.texts import (
    event_lines,
    name_text,
    progress_line,
    query_rows,
    side_rows,
    state_text,
)
from job.protocol.status import QueryState
from job.spec.durations import rounded_text
from job.spec.sides import SIDES

LINE_SECONDS = 5.0
"""Time between two lines if the output is no terminal."""

_NAME_WIDTH = 14
_STYLES = {QueryState.RUNNING: "bold green", QueryState.FAILED: "bold red"}

SideRow = tuple[str, tuple[str, ...]]


class Content(Protocol):
    def rendered(self, height: int) -> RenderableType:
        """The screen, for a terminal of this height."""

    @property
    def line(self) -> str:
        """The same in one line."""


@contextmanager
def live_screen(
    console: Console, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[Content], None]]:
    """Yields the function that shows a content."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield _lines(console, clock)
        return
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:
        yield lambda content: live.update(content.rendered(console.height), refresh=True)


def _lines(console: Console, clock: Callable[[], float]) -> Callable[[Content], None]:
    due = clock()

    def show(content: Content) -> None:
        nonlocal due
        if clock() >= due:
            due = clock() + LINE_SECONDS
            console.print(content.line, soft_wrap=True, markup=False)

    return show


@dataclass(frozen=True)
class WatchedJob:
    """The last answer of a job, and whether the job still answers."""

    query: QueryView
    answered_at: datetime
    at: datetime
    """Time of the last call."""
    problem: str | None = None
    """Why the last call had no answer. None: it had one."""

    def without_answer(self, at: datetime, problem: str) -> "WatchedJob":
        return replace(self, at=at, problem=problem)

    def rendered(self, _: int) -> RenderableType:
        query = self.query
        return Group(
            headline(Text(name_text(query), "bold"), f"{self.at:%H:%M:%S}Z"),
            *(Text(line, "bold red") for line in self._absence),
            "",
            sides_table(query, self.answered_at),
            "",
            query_table(query, self.answered_at),
            "",
            Text(query.diagnosis),
            *map(Text, event_lines(query)),
        )

    @property
    def line(self) -> str:
        if self.problem is not None:
            return f"{self.at:%H:%M:%S}Z no answer: {self.problem}"
        return progress_line(self.query, self.at)

    @property
    def _absence(self) -> Iterator[str]:
        if self.problem is not None:
            age = rounded_text(self.at - self.answered_at)
            yield f"no answer: {self.problem}. The figures are {age} old"


def headline(title: Text, right: str) -> RenderableType:
    line = Table.grid(expand=True)
    line.add_column()
    line.add_column(justify="right")
    line.add_row(title, Text(right, "dim"))
    return line


def sides_table(query: QueryView, now: datetime, before: Iterable[SideRow] = ()) -> RenderableType:
    """A column per side. `before`: rows before those of the query."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", pad_edge=False)
    table.add_column("", style="dim", width=_NAME_WIDTH)
    for side in SIDES:
        # A constant height: a table that grows flickers.
        table.add_column(side, no_wrap=True, overflow="ellipsis")
    for name, cells in (*before, *side_rows(query, now)):
        table.add_row(name, *map(Text, cells))
    return table


def query_table(query: QueryView, now: datetime) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="dim", width=_NAME_WIDTH)
    table.add_column(no_wrap=True, overflow="ellipsis")
    state = Text(state_text(query, now))
    state.stylize(_STYLES.get(query.state, "bold yellow"), 0, len(query.state))
    table.add_row("state", state)
    for name, text in query_rows(query, now):
        table.add_row(name, Text(text))
    return table
