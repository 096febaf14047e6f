"""Drops duplicates before the join: what job/join/Duplicates.java does.

A row is a duplicate if a row that was not dropped has its key and its id, and their event times are
near enough. Late rows are dropped by the join before that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from job.semantics.event_time import BatchWatermarks, is_behind
from job.semantics.events import Duplicate, Observer
from job.semantics.rows import MICROS_PER_MS, Key, Row, Side


@dataclass(frozen=True)
class DeduplicationPlan:
    id_of: Callable[[Row], Key | None]
    """With the key of the join. None: the row is never a duplicate."""
    event_time: Callable[[Row], int]
    """In microseconds, as all times."""
    late_time: Callable[[Row], int]
    """Event time, or the end of its window."""
    within_us: int
    kept_us: int
    """From the late time of a row to the watermark at which its id leaves state."""


class Deduplicator:
    """Of one side."""

    def __init__(self, side: Side, plan: DeduplicationPlan, observer: Observer) -> None:
        self._side = side
        self._plan = plan
        self._observer = observer
        self._ids: dict[Key, list[tuple[int, int]]] = {}
        """Event time and expiry of the rows with an id."""

    @property
    def stored_ids(self) -> int:
        return sum(map(len, self._ids.values()))

    def process(self, rows: Sequence[Row], late_ms: int, watermarks: BatchWatermarks) -> list[Row]:
        """The rows of one batch that enter the join. Rows behind `late_ms` are late: the join drops
        them."""
        entering = []
        for row in rows:
            if is_behind(self._plan.late_time(row), late_ms) or self._is_original(row):
                entering.append(row)
            else:
                self._observer(Duplicate(self._side, row))
        evicted_us = watermarks.eviction * MICROS_PER_MS
        kept = {
            row_id: [(time, at) for time, at in times if at > evicted_us]
            for row_id, times in self._ids.items()
        }
        self._ids = {row_id: times for row_id, times in kept.items() if times}
        return entering

    def _is_original(self, row: Row) -> bool:
        row_id, time = self._plan.id_of(row), self._plan.event_time(row)
        if row_id is None:
            return True
        times = self._ids.setdefault(row_id, [])
        if any(abs(time - other) <= self._plan.within_us for other, _ in times):
            return False
        times.append((time, self._plan.late_time(row) + self._plan.kept_us))
        return True
