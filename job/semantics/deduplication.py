"""StreamingDeduplicateWithinWatermarkExec: drops rows whose id is in state, before the join.

The operator first drops late rows. The state contains the expiry of each id: `within` after the
time of the row that stored the id.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from job.semantics.event_time import BatchWatermarks, is_behind
from job.semantics.events import CannotMatch, Duplicate, Late, Observer
from job.semantics.rows import MICROS_PER_MS, Key, Row, Side


@dataclass(frozen=True)
class DeduplicationPlan:
    id_of: Callable[[Row], Key]
    time: Callable[[Row], int | None]
    """Event time, or the end of its window, in microseconds."""
    within_us: int
    enters_join: Callable[[Row], bool]
    """Filters that Spark moves below the join, but not below the deduplication."""


class Deduplicator:
    """The operator of one side."""

    def __init__(self, side: Side, plan: DeduplicationPlan, observer: Observer) -> None:
        self._side = side
        self._plan = plan
        self._observer = observer
        self._expires_at: dict[Key, int] = {}
        self.late_rows = 0
        """Late rows of the last batch."""

    @property
    def stored_ids(self) -> int:
        return len(self._expires_at)

    def process(self, rows: Sequence[Row], watermarks: BatchWatermarks) -> list[Row]:
        """The rows of one batch that enter the join."""
        self.late_rows = 0
        entering = [row for row in self._originals(rows, watermarks.late) if self._enters(row)]
        evicted_us = watermarks.eviction * MICROS_PER_MS
        expires_at = self._expires_at.items()
        self._expires_at = {row_id: at for row_id, at in expires_at if at > evicted_us}
        return entering

    def _originals(self, rows: Sequence[Row], late_ms: int) -> Iterator[Row]:
        for row in rows:
            time, row_id = self._plan.time(row), self._plan.id_of(row)
            assert time is not None, "a readable row has an event time"
            if is_behind(time, late_ms):
                self.late_rows += 1
                self._observer(Late(self._side, row, late_ms))
            elif row_id in self._expires_at:
                self._observer(Duplicate(self._side, row))
            else:
                self._expires_at[row_id] = time + self._plan.within_us
                yield row

    def _enters(self, row: Row) -> bool:
        enters = self._plan.enters_join(row)
        if not enters:
            self._observer(CannotMatch(self._side, row))
        return enters
