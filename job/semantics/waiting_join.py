"""A join in which a row of the stream waits for a row of the table: what TableJoin.java does with
`wait`.

A row of the stream that finds none is stored. It is joined when a record gives it one. Once the
watermark has passed it, and after that the time for which it waits, it is unmatched.
"""

from collections.abc import Iterable, Iterator

from job.semantics.event_time import BatchWatermarks
from job.semantics.events import Observer, ignore_event
from job.semantics.operator import OperatorOutput
from job.semantics.rows import JoinedRow, Row, Side, other
from job.semantics.stored_stream_join import StoredStreamJoin
from job.semantics.table_join import Place, TableJoinPlan


class WaitingTableJoin(StoredStreamJoin):
    def __init__(
        self, plan: TableJoinPlan, waits_ms: int, observer: Observer = ignore_event
    ) -> None:
        super().__init__(plan, waits_ms, observer)
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
            joined_until = self._joined_until_ms(self._evicted_ms)
            self._add_versions(records, self.plan.as_of, joined_until)
            on_time = [row for row in rows if not self._is_late(stream, row, watermarks.late)]
            rows, late = on_time, len(rows) - len(on_time)
        results = list(self._answers(stream))
        for row in rows:
            results += self._arrived(stream, row, watermarks.eviction)
        for row in self._due_rows(stream, watermarks.eviction):
            results += self._left_state(stream, row)
        self._evicted_ms = watermarks.eviction
        return self._output(before, len(records) + len(rows), late, results)

    def _answers(self, stream: Side) -> Iterator[JoinedRow]:
        for rows in self.states[stream].rows.values():
            for row in rows:
                place = self.plan.place(row)
                if place not in self._with_result and self._version(stream, row) is not None:
                    self._with_result.add(place)
                    yield from self._joined(stream, row)

    def _arrived(self, stream: Side, row: Row, watermark_ms: int) -> list[JoinedRow]:
        can_wait = self.plan.of(stream).pre_join_filter(row)
        can_wait = can_wait and not self._is_due(stream, row, watermark_ms)
        if can_wait and self._version(stream, row) is None:
            self._store(stream, row)
            return []
        return self._joined(stream, row)

    def _left_state(self, stream: Side, row: Row) -> list[JoinedRow]:
        place = self.plan.place(row)
        if place not in self._with_result:
            return self._joined(stream, row)
        self._with_result.remove(place)
        return []
