"""A join in which a row of the stream waits for a row of the table: what TableJoin.java does with
`wait`.

A row of the stream that finds none is stored. It is joined when a record gives it one. Once the
watermark has passed it, and after that the time for which it waits, it is unmatched.
"""

from collections.abc import Iterable, Iterator

from job.semantics.event_time import BatchWatermarks
from job.semantics.events import FailedPreJoinFilter, Observer, Stored, ignore_event
from job.semantics.operator import OperatorMetrics, OperatorOutput
from job.semantics.rows import MICROS_PER_MS, JoinedRow, Row, Side, joined, other
from job.semantics.table_join import Place, TableJoin, TableJoinPlan
from job.semantics.watermark_predicates import WatermarkPredicates


class WaitingTableJoin(TableJoin):
    def __init__(self, plan: TableJoinPlan, observer: Observer = ignore_event) -> None:
        super().__init__(plan, observer)
        assert plan.waits_ms is not None
        self._kept_ms = plan.waits_ms + 1
        self._with_result: set[Place] = set()
        """Rows of the stream in state that have a result. They leave it as the others."""
        self._evicted_ms = 0

    def process(
        self, left_rows: Iterable[Row], right_rows: Iterable[Row], watermarks: BatchWatermarks
    ) -> OperatorOutput:
        of: dict[Side, Iterable[Row]] = {"left": left_rows, "right": right_rows}
        table, stream = self.plan.table, other(self.plan.table)
        records, rows = list(of[table]), list(of[stream])
        before, late = self._num_rows, 0
        if self.plan.as_of is None:
            self._change(records)
        else:
            self._add_versions(records, self.plan.as_of, self._joined_until_ms)
            on_time = [row for row in rows if not self._is_late(stream, row, watermarks.late)]
            rows, late = on_time, len(rows) - len(on_time)
        results = list(self._answers(stream))
        for row in rows:
            results += self._arrived(stream, row, watermarks.eviction)
        results += self._expired(stream, watermarks.eviction)
        self._evicted_ms = watermarks.eviction
        added = len(records) + len(rows)
        metrics = OperatorMetrics(self._num_rows, added, before + added - self._num_rows, late)
        return OperatorOutput(results, metrics, WatermarkPredicates())

    def should_run_another_batch(self, watermarks: BatchWatermarks, new_watermark_ms: int) -> bool:
        return new_watermark_ms > watermarks.eviction

    @property
    def _num_rows(self) -> int:
        return sum(state.num_rows for state in self.states.values())

    @property
    def _joined_until_ms(self) -> int:
        """Up to which event time no row of the stream needs a version any more."""
        return max(0, self._evicted_ms - self._kept_ms)

    def _answers(self, stream: Side) -> Iterator[JoinedRow]:
        for rows in self.states[stream].rows.values():
            for row in rows:
                place = self.plan.place(row)
                if place not in self._with_result and self._version(stream, row) is not None:
                    self._with_result.add(place)
                    yield from self._joined(stream, row)

    def _arrived(self, stream: Side, row: Row, watermark_ms: int) -> Iterator[JoinedRow]:
        if not self.plan.of(stream).pre_join_filter(row):
            is_padded = stream in self.plan.join_type.outer_sides
            self._observer(FailedPreJoinFilter(stream, row, is_padded))
            if is_padded:
                yield joined(stream, row, None)
        elif self._version(stream, row) is None and not self._is_due(stream, row, watermark_ms):
            key = self.plan.of(stream).key(row)
            self.states[stream].rows.setdefault(key, []).append(row)
            self._observer(Stored(stream, row, key, matched=False))
        else:
            yield from self._joined(stream, row)

    def _expired(self, stream: Side, watermark_ms: int) -> Iterator[JoinedRow]:
        state = self.states[stream]
        for key, rows in list(state.rows.items()):
            due = [row for row in rows if self._is_due(stream, row, watermark_ms)]
            state.put(key, [row for row in rows if row not in due])
            for row in due:
                if self.plan.place(row) in self._with_result:
                    self._with_result.remove(self.plan.place(row))
                else:
                    yield from self._joined(stream, row)

    def _is_due(self, stream: Side, row: Row, watermark_ms: int) -> bool:
        """A watermark has whole milliseconds, so an event time is rounded up."""
        return -(-self._time(row, stream) // MICROS_PER_MS) + self._kept_ms <= watermark_ms
