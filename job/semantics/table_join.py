"""The join of a stream with a table: what job/join/TableJoin.java does in a micro-batch.

All records of the table come before the rows of the stream. A record replaces the row of its key,
or removes it. A row of the stream is joined with the row of its key at once, and is not stored.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from job.semantics.event_time import BatchWatermarks
from job.semantics.events import (
    Deleted,
    FailedPreJoinFilter,
    Matched,
    NoMatch,
    Observer,
    Outdated,
    Replaced,
    ignore_event,
)
from job.semantics.one_side_joiner import SideInput
from job.semantics.operator import OperatorMetrics, OperatorOutput
from job.semantics.rows import SIDES, JoinedRow, Key, Row, Side, joined, other
from job.semantics.watermark_predicates import WatermarkPredicates
from job.spec.join_conditions import JoinType

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True)
class TableJoinPlan:
    join_type: JoinType
    table: Side
    left: SideInput
    right: SideInput
    post_join_filter: Callable[[JoinedRow], bool]
    place: Callable[[Row], Place]
    """Of the record of a row."""
    deletes: Callable[[Row], bool]
    """Whether a record of the table removes the row of its key."""

    def of(self, side: Side) -> SideInput:
        return self.left if side == "left" else self.right


@dataclass
class TableState:
    """The rows of a side: of the table by key, of the stream none."""

    rows: dict[Key, Row] = field(default_factory=dict)

    def get(self, key: Key) -> list[Row]:
        return [self.rows[key]] if key in self.rows else []

    @property
    def num_rows(self) -> int:
        return len(self.rows)


class TableJoin:
    """The join of one query, from its first batch on."""

    def __init__(self, plan: TableJoinPlan, observer: Observer = ignore_event) -> None:
        self.plan = plan
        self._observer = observer
        self.states = {side: TableState() for side in SIDES}

    def process(
        self, left_rows: Iterable[Row], right_rows: Iterable[Row], _: BatchWatermarks
    ) -> OperatorOutput:
        """One micro-batch. The watermarks decide nothing."""
        of = {"left": left_rows, "right": right_rows}
        before = self._table.num_rows
        changed, removed = self._change(of[self.plan.table])
        stream = other(self.plan.table)
        rows = [result for row in of[stream] for result in self._joined(stream, row)]
        assert self._table.num_rows == before + changed - removed
        metrics = OperatorMetrics(self._table.num_rows, changed, removed, 0)
        return OperatorOutput(rows, metrics, WatermarkPredicates())

    def should_run_another_batch(self, _: BatchWatermarks, __: int) -> bool:
        """Never: no result waits for a watermark."""
        return False

    @property
    def _table(self) -> TableState:
        return self.states[self.plan.table]

    def _change(self, records: Iterable[Row]) -> tuple[int, int]:
        """The numbers of rows that were stored and removed: at most one of each for a key."""
        table, key_of = self.plan.table, self.plan.of(self.plan.table).key
        newest: dict[Key, Row] = {}
        for record in records:
            key = key_of(record)
            one = newest.setdefault(key, record)
            if one is not record:
                older, newest[key] = sorted((one, record), key=self.plan.place)
                self._observer(Outdated(table, older, newest[key]))
        stored = removed = 0
        for key, record in newest.items():
            row = self._table.rows.get(key)
            if row is not None and self._is_older(record, row):
                self._observer(Outdated(table, record, row))
                continue
            removed += row is not None
            if self.plan.deletes(record):
                self._table.rows.pop(key, None)
                self._observer(Deleted(table, record, row))
            else:
                self._table.rows[key] = record
                stored += 1
                self._observer(Replaced(table, record, row))
        return stored, removed

    def _is_older(self, record: Row, row: Row) -> bool:
        """Records of two partitions have no order: the one that was read last counts."""
        (partition, offset), (of_row, offset_of_row) = map(self.plan.place, (record, row))
        return partition == of_row and offset <= offset_of_row

    def _joined(self, stream: Side, row: Row) -> list[JoinedRow]:
        side = self.plan.of(stream)
        version = None
        is_padded = stream in self.plan.join_type.outer_sides
        if not side.pre_join_filter(row):
            self._observer(FailedPreJoinFilter(stream, row, is_padded))
        else:
            version = self._table.rows.get(side.key(row))
            result = joined(stream, row, version)
            if version is not None and self.plan.post_join_filter(result):
                self._observer(Matched(stream, row, version))
                return [result]
            self._observer(NoMatch(stream, row, version, is_padded))
        return [joined(stream, row, None)] if is_padded else []
