"""A final as-of join: what job/join/StreamJoin.java does with a table (TableVersions.java).

A row of the stream is stored. Once the watermark has passed it, and after that the time within
which versions may come, it is joined with the version that is valid at its event time.

A version that is read when rows of its time may have their results is late. It is valid from then
on, if it is newer than the version that is valid then: a result does not depend on late versions.
"""

from collections.abc import Iterable, Iterator

from job.semantics.event_time import BatchWatermarks
from job.semantics.events import (
    Deleted,
    FailedPreJoinFilter,
    Late,
    Observer,
    Replaced,
    Stored,
    ignore_event,
)
from job.semantics.operator import OperatorMetrics, OperatorOutput
from job.semantics.rows import MICROS_PER_MS, JoinedRow, Row, Side, joined, other
from job.semantics.table_join import AsOf, Place, TableJoin, TableJoinPlan
from job.semantics.watermark_predicates import WatermarkPredicates


class FinalTableJoin(TableJoin):
    def __init__(self, plan: TableJoinPlan, observer: Observer = ignore_event) -> None:
        super().__init__(plan, observer)
        assert plan.as_of is not None
        assert plan.as_of.final_after_ms is not None
        self._as_of: AsOf = plan.as_of
        self._kept_ms = plan.as_of.final_after_ms + 1
        self._late_from: dict[Place, int] = {}
        """From which time on a late version is valid."""
        self._joined_until_ms = 0

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
            late += self._add_version(version, self._decided_until_ms(late_ms))
        for row in rows:
            if self._is_late(stream, row, late_ms):
                late += 1
            elif not self.plan.of(stream).pre_join_filter(row):
                is_padded = stream in self.plan.join_type.outer_sides
                self._observer(FailedPreJoinFilter(stream, row, is_padded))
                results += [joined(stream, row, None)] if is_padded else []
            else:
                self._store(stream, row)
        results += self._final_results(stream, watermarks.eviction)
        self._joined_until_ms = self._decided_until_ms(watermarks.eviction)
        for key, kept in list(self._table.rows.items()):
            self._table.put(key, self._kept(kept, self._as_of, self._joined_until_ms))
        added = len(versions) + len(rows)
        metrics = OperatorMetrics(self._num_rows, added, before + added - self._num_rows, late)
        return OperatorOutput(results, metrics, WatermarkPredicates())

    def should_run_another_batch(self, watermarks: BatchWatermarks, new_watermark_ms: int) -> bool:
        return new_watermark_ms > watermarks.eviction

    @property
    def _num_rows(self) -> int:
        return sum(state.num_rows for state in self.states.values())

    def _decided_until_ms(self, watermark_ms: int) -> int:
        """Up to which event time rows have their results."""
        return max(0, watermark_ms - self._kept_ms)

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
        kept = self._kept([*versions, version], self._as_of, self._joined_until_ms)
        self._table.put(key, kept)
        fate = Deleted if self.plan.deletes(version) else Replaced
        self._observer(fate(table, version, None))
        return is_late

    def _store(self, stream: Side, row: Row) -> None:
        key = self.plan.of(stream).key(row)
        self.states[stream].rows.setdefault(key, []).append(row)
        self._observer(Stored(stream, row, key, matched=False))

    def _final_results(self, stream: Side, watermark_ms: int) -> Iterator[JoinedRow]:
        state = self.states[stream]
        for key, rows in list(state.rows.items()):
            due = [row for row in rows if self._is_due(stream, row, watermark_ms)]
            state.put(key, [row for row in rows if row not in due])
            for row in due:
                yield from self._joined(stream, row)

    def _is_due(self, stream: Side, row: Row, watermark_ms: int) -> bool:
        """A watermark has whole milliseconds, so an event time is rounded up."""
        return -(-self._time(row, stream) // MICROS_PER_MS) + self._kept_ms <= watermark_ms
