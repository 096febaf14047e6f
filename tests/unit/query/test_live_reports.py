"""Reports of a running interval, without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from job.query import live_reports
from job.query.live_reports import LiveReports
from job.query.stats import QueryStats
from job.spark.live_rows import LiveRows


class Counts:
    """As RowCounts, with the values of an interval in which no row arrives."""

    def __init__(self, *, alive: bool) -> None:
        self._alive = alive
        self.intervals = 0

    def tasks_are_alive(self) -> bool:
        return self._alive

    def begin_interval(self) -> None:
        self.intervals += 1

    def observed_in_interval(self) -> dict[str, dict[str, int]]:
        return {}

    def in_interval(self, _: str) -> tuple[int, int | None]:
        return 0, None


def reports(
    monkeypatch: pytest.MonkeyPatch, stats: QueryStats, counts: Counts, rows: list[LiveRows | None]
) -> LiveReports:
    interval = SimpleNamespace(rows=lambda: rows.pop(0))
    monkeypatch.setattr(live_reports, "LiveInterval", lambda *_: interval)
    run: Any = SimpleNamespace(stats=stats, spark=None, plan=SimpleNamespace(inputs=()))
    query: Any = None
    row_counts: Any = counts
    return LiveReports(run, query, row_counts)


@pytest.mark.parametrize("alive", [True, False])
def test_interval_without_records_is_progress_while_its_tasks_are_alive(
    monkeypatch: pytest.MonkeyPatch, *, alive: bool
) -> None:
    stats = QueryStats()

    reports(
        monkeypatch, stats, Counts(alive=alive), [LiveRows(1, {"left": 0, "right": 0})]
    ).report()

    assert alive == (stats.last_progress_at is not None)


def test_no_interval_is_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    stats = QueryStats()

    reports(monkeypatch, stats, Counts(alive=True), [None]).report()

    assert stats.last_progress_at is None


def test_counts_begin_with_each_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = Counts(alive=True)
    rows = [LiveRows(batch, {"left": 0, "right": 0}) for batch in (1, 1, 2)]
    live = reports(monkeypatch, QueryStats(), counts, [*rows])

    for _ in rows:
        live.report()

    assert 2 == counts.intervals
