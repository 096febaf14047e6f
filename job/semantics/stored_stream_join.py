"""A join with a table whose rows of the stream are stored until the watermark has passed them, and
after that a time: what FinalTableJoin and WaitingTableJoin share."""

from collections.abc import Iterable, Iterator

from job.semantics.event_time import BatchWatermarks
from job.semantics.events import Observer, Stored, ignore_event
from job.semantics.operator import OperatorMetrics, OperatorOutput
from job.semantics.rows import MICROS_PER_MS, JoinedRow, Row, Side
from job.semantics.table_join import TableJoin, TableJoinPlan
from job.semantics.watermark_predicates import WatermarkPredicates


class StoredStreamJoin(TableJoin):
    def __init__(
        self, plan: TableJoinPlan, kept_after_ms: int, observer: Observer = ignore_event
    ) -> None:
        """`kept_after_ms`: how long a row is stored after the watermark has passed it."""
        super().__init__(plan, observer)
        self._kept_ms = kept_after_ms + 1

    def should_run_another_batch(self, watermarks: BatchWatermarks, new_watermark_ms: int) -> bool:
        return new_watermark_ms > watermarks.eviction

    def _output(
        self, before: int, added: int, late: int, results: Iterable[JoinedRow]
    ) -> OperatorOutput:
        """`before`: rows in state before the batch."""
        rows = list(results)
        metrics = OperatorMetrics(self._num_rows, added, before + added - self._num_rows, late)
        return OperatorOutput(rows, metrics, WatermarkPredicates())

    @property
    def _num_rows(self) -> int:
        return sum(state.num_rows for state in self.states.values())

    def _joined_until_ms(self, watermark_ms: int) -> int:
        """Up to which event time all rows of the stream have left the state."""
        return max(0, watermark_ms - self._kept_ms)

    def _store(self, stream: Side, row: Row) -> None:
        key = self.plan.of(stream).key(row)
        self.states[stream].rows.setdefault(key, []).append(row)
        self._observer(Stored(stream, row, key, matched=False))

    def _due_rows(self, stream: Side, watermark_ms: int) -> Iterator[Row]:
        """Removes the rows from the state whose time is over."""
        state = self.states[stream]
        for key, rows in list(state.rows.items()):
            due = [row for row in rows if self._is_due(stream, row, watermark_ms)]
            state.put(key, [row for row in rows if row not in due])
            yield from due

    def _is_due(self, stream: Side, row: Row, watermark_ms: int) -> bool:
        """A watermark has whole milliseconds, so an event time is rounded up."""
        return -(-self._time(row, stream) // MICROS_PER_MS) + self._kept_ms <= watermark_ms
