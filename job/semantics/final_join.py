"""A final as-of join: what job/join/StreamJoin.java does with a table (TableVersions.java).

A row of the stream is stored. Once the watermark has passed it, and after that the time within
which versions may come, it is joined with the version that is valid at its event time.

A version that is read when rows of its time may have their results is late. It is valid from then
on, if it is newer than the version that is valid then: a result does not depend on late versions.
"""

from collections.abc import Iterable

from job.semantics.event_time import BatchWatermarks
from job.semantics.events import Deleted, Late, Observer, Replaced, ignore_event
from job.semantics.operator import OperatorOutput
from job.semantics.rows import MICROS_PER_MS, JoinedRow, Row, Side, other
from job.semantics.stored_stream_join import StoredStreamJoin
from job.semantics.table_join import AsOf, Place, TableJoinPlan


class FinalTableJoin(StoredStreamJoin):
    def __init__(
        self,
        plan: TableJoinPlan,
        as_of: AsOf,
        final_after_ms: int,
        observer: Observer = ignore_event,
    ) -> None:
        super().__init__(plan, final_after_ms, observer)
        self._as_of = as_of
        self._late_from: dict[Place, int] = {}
        """From which time on a late version is valid."""
        self._decided_ms = 0

    def process(
        self, left_rows: Iterable[Row], right_rows: Iterable[Row], watermarks: BatchWatermarks
    ) -> OperatorOutput:
        of: dict[Side, Iterable[Row]] = {"left": left_rows, "right": right_rows}
        table, stream = self.plan.table, other(self.plan.table)
        is_interval = self.plan.processor == "interval"
        late_ms = watermarks.eviction if is_interval else watermarks.late
        before, late = self._num_rows, 0
        results: list[JoinedRow] = []
        versions, rows = list(of[table]), list(of[stream])
        for version in versions:
            late += self._add_version(version, self._joined_until_ms(late_ms))
        for row in rows:
            if self._is_late(stream, row, late_ms):
                late += 1
            elif not self.plan.of(stream).pre_join_filter(row):
                results += self._joined(stream, row)
            else:
                self._store(stream, row)
        for row in self._due_rows(stream, watermarks.eviction):
            results += self._joined(stream, row)
        self._decided_ms = self._joined_until_ms(watermarks.eviction)
        for key, kept in list(self._table.rows.items()):
            self._table.put(key, self._kept(kept, self._as_of, self._decided_ms))
        return self._output(before, len(versions) + len(rows), late, results)

    def _valid_from(self, version: Row) -> int:
        return self._late_from.get(self.plan.place(version), self._time(version))

    def _add_version(self, version: Row, decided_ms: int) -> bool:
        """Returns whether it is late."""
        table = self.plan.table
        key = self.plan.of(table).key(version)
        versions, decided = self._table.get(key), decided_ms * MICROS_PER_MS
        is_late = self._time(version) <= decided
        if is_late:
            valid = [each for each in versions if self._valid_from(each) <= decided]
            if any(self._order(each) >= self._order(version) for each in valid):
                self._observer(Late(table, version, decided_ms))
                return True
            self._late_from[self.plan.place(version)] = decided
        kept = self._kept([*versions, version], self._as_of, self._decided_ms)
        self._table.put(key, kept)
        fate = Deleted if self.plan.deletes(version) else Replaced
        self._observer(fate(table, version, None))
        return is_late
