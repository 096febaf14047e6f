"""The join of a stream with a table: what job/join/TableJoin.java does in a micro-batch.

All records of the table come before the rows of the stream. A record replaces the row of its key,
or removes it. A row of the stream is joined with the row of its key at once, and is not stored.

In an as-of join a record is a version of its key, which is valid from its event time until that of
the next version. A row of the stream is joined with the version that is valid at its event time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from job.semantics.event_time import BatchWatermarks, is_behind
from job.semantics.events import (
    Deleted,
    FailedPreJoinFilter,
    Late,
    Matched,
    NoMatch,
    Observer,
    Outdated,
    Replaced,
    ignore_event,
)
from job.semantics.one_side_joiner import SideInput
from job.semantics.operator import OperatorMetrics, OperatorOutput, Processor
from job.semantics.rows import MICROS_PER_MS, SIDES, JoinedRow, Key, Row, Side, joined, other
from job.semantics.watermark_predicates import WatermarkPredicates
from job.spec.join_conditions import JoinType

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True)
class AsOf:
    """All times are microseconds."""

    delay_us: int
    """How far a version may be out of order."""
    retention_us: int | None
    """How long a version is valid at most. None: until the next one."""
    takes_first: bool
    """Whether a row before all versions of its key joins the first one."""
    final_after_ms: int | None = None
    """How long after the watermark has passed it a row of the stream waits for its version. None:
    it does not wait (final_join.py)."""


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
    as_of: AsOf | None = None
    """None: the newest row of each key."""
    waits_ms: int | None = None
    """How long after the watermark has passed it a row of the stream waits for a row of the table
    (waiting_join.py). None: it does not wait."""
    processor: Processor = "batch"

    def of(self, side: Side) -> SideInput:
        return self.left if side == "left" else self.right


@dataclass
class TableState:
    """The rows of a side by key: of the table one, or its versions by time; of the stream none."""

    rows: dict[Key, list[Row]] = field(default_factory=dict)

    def get(self, key: Key) -> list[Row]:
        return self.rows.get(key, [])

    def put(self, key: Key, rows: list[Row]) -> None:
        self.rows.pop(key, None)
        if rows:
            self.rows[key] = rows

    @property
    def num_rows(self) -> int:
        return sum(map(len, self.rows.values()))


class TableJoin:
    """The join of one query, from its first batch on."""

    def __init__(self, plan: TableJoinPlan, observer: Observer = ignore_event) -> None:
        self.plan = plan
        self._observer = observer
        self.states = {side: TableState() for side in SIDES}

    def process(
        self, left_rows: Iterable[Row], right_rows: Iterable[Row], watermarks: BatchWatermarks
    ) -> OperatorOutput:
        """One micro-batch. If the join is not as-of, the watermarks decide nothing."""
        of: dict[Side, Iterable[Row]] = {"left": left_rows, "right": right_rows}
        before = self._table.num_rows
        stream, late = other(self.plan.table), 0
        if self.plan.as_of is None:
            changed, removed = self._change(of[self.plan.table])
            assert self._table.num_rows == before + changed - removed
        else:
            late_ms = watermarks.late
            if self.plan.processor == "interval":
                late_ms = watermarks.eviction
            changed = self._add_versions(of[self.plan.table], self.plan.as_of, late_ms)
            removed = before + changed - self._table.num_rows
            arrived = list(of[stream])
            of[stream] = [row for row in arrived if not self._is_late(stream, row, late_ms)]
            late = len(arrived) - len(list(of[stream]))
        rows = [result for row in of[stream] for result in self._joined(stream, row)]
        metrics = OperatorMetrics(self._table.num_rows, changed, removed, late)
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
            row = next(iter(self._table.get(key)), None)
            if row is not None and self._is_older(record, row):
                self._observer(Outdated(table, record, row))
                continue
            removed += row is not None
            if self.plan.deletes(record):
                self._table.put(key, [])
                self._observer(Deleted(table, record, row))
            else:
                self._table.put(key, [record])
                stored += 1
                self._observer(Replaced(table, record, row))
        return stored, removed

    def _add_versions(self, records: Iterable[Row], as_of: AsOf, watermark_ms: int) -> int:
        """Returns how many records there were. Removes the versions that no row of the stream after
        the watermark can join."""
        table, key_of = self.plan.table, self.plan.of(self.plan.table).key
        for key, rows in list(self._table.rows.items()):
            self._table.put(key, self._kept(rows, as_of, watermark_ms))
        of_key: dict[Key, list[Row]] = {}
        for record in records:
            of_key.setdefault(key_of(record), []).append(record)
        for key, arrived in of_key.items():
            versions = self._kept([*self._table.get(key), *arrived], as_of, watermark_ms)
            self._table.put(key, versions)
            for record in arrived:
                self._observer(self._fate(table, record, versions))
        return sum(map(len, of_key.values()))

    def _fate(self, table: Side, record: Row, versions: list[Row]) -> Replaced | Deleted | Outdated:
        if not any(record is version for version in versions) and versions:
            return Outdated(table, record, versions[0])
        return (Deleted if self.plan.deletes(record) else Replaced)(table, record, None)

    def _kept(self, versions: list[Row], as_of: AsOf, watermark_ms: int) -> list[Row]:
        """By time; of several with one time the one with the largest place."""
        until = watermark_ms * MICROS_PER_MS
        of_time = {self._valid_from(row): row for row in sorted(versions, key=self._order)}
        valid_at = max((time for time in of_time if time <= until), default=None)
        kept = {t: row for t, row in of_time.items() if valid_at is None or t >= valid_at}
        if kept:
            oldest, row = next(iter(kept.items()))
            is_over = self.plan.deletes(row) and self._time(row) + as_of.delay_us <= until
            if as_of.retention_us is not None:
                is_over = is_over or self._time(row) + as_of.retention_us <= until
            if is_over:
                del kept[oldest]
        return list(kept.values())

    def _order(self, version: Row) -> tuple[int, Place]:
        return self._time(version), self.plan.place(version)

    def _valid_from(self, version: Row) -> int:
        return self._time(version)

    def _time(self, row: Row, side: Side | None = None) -> int:
        event_time = self.plan.of(side or self.plan.table).event_time
        assert event_time is not None, "both sides of an as-of join have event times"
        time = event_time(row)
        assert time is not None, "a row that enters the join has an event time"
        return time

    def _is_late(self, stream: Side, row: Row, watermark_ms: int) -> bool:
        is_late = is_behind(self._time(row, stream), watermark_ms)
        if is_late:
            self._observer(Late(stream, row, watermark_ms))
        return is_late

    def _version(self, stream: Side, row: Row) -> Row | None:
        """The row of the table that a row of the stream is joined with."""
        versions = self._table.get(self.plan.of(stream).key(row))
        as_of = self.plan.as_of
        if as_of is None or not versions:
            return next(iter(versions), None)
        time = self._time(row, stream)
        version = next(
            (each for each in reversed(versions) if self._valid_from(each) <= time), None
        )
        if version is None and as_of.takes_first:
            version = versions[0]
        if version is None or self.plan.deletes(version):
            return None
        age_us = time - self._time(version)
        return None if as_of.retention_us is not None and age_us > as_of.retention_us else version

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
            version = self._version(stream, row)
            result = joined(stream, row, version)
            if version is not None and self.plan.post_join_filter(result):
                self._observer(Matched(stream, row, version))
                return [result]
            self._observer(NoMatch(stream, row, version, is_padded))
        return [joined(stream, row, None)] if is_padded else []
