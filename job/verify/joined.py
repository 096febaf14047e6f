"""Which rows the query has certainly joined. Pure.

A row that was late, or a duplicate, is not joined, and only the query knows its watermark. It is
certain that a row was not late if

- a result contains the row, or a row that is not younger and was read with it or later: one at the
  same or a later offset of its partition. The watermark never goes back;
- no record that can have been read before it is newer by the watermark delay. The watermark of the
  query is at most that of the side;
- the job was running when the row was written, has read it, and has not counted a late row.
"""

from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import TypeAlias

from job.explain.facts import RowId
from job.plan.plan import JoinPlan
from job.plan.result_id import Place
from job.semantics.rows import MICROS_PER_MS
from job.spec.durations import milliseconds
from job.spec.sides import SIDES, Side
from job.verify.expected import Expected, InputRow

NO_EVENT_TIME = 2**53
"""Later than every event time, in ms."""
CLOCKS_MS = 60_000
"""How far the clocks of the job and of the producers may differ."""
_Partition = tuple[str, int]
PartitionOffsets: TypeAlias = Mapping[tuple[Side, str, int], int]
"""By side, topic and partition."""
_Rows = Sequence[tuple[Place, InputRow]]


@dataclass(frozen=True)
class Progress:
    """What a running job has delivered."""

    next_offsets: PartitionOffsets
    """Of completed batches."""
    watermark_ms: int | None
    """Watermark of a completed batch. None: no batch has ended."""
    on_time_since_ms: int | None
    """No record with this timestamp or a later one that the job has read was late. None: not
    known."""
    change: PartitionOffsets = field(default_factory=dict)
    """Up to these offsets another query has read, before the last change of the join, or this one
    with other filters."""

    def has_read(self, row: RowId) -> bool:
        return is_before(self.next_offsets, row)


@dataclass(frozen=True)
class InputsRead:
    """The part of the input topics that was read."""

    until_ms: int | None
    """Records with this timestamp or a later one were not read. None: read to the ends."""
    known_from_ms: Mapping[Side, int | None]
    """Records with later event times were read, as far as `until_ms`. None: all records were."""


class JoinedRows:
    def __init__(
        self,
        plan: JoinPlan,
        expected: Expected,
        read: InputsRead,
        named: AbstractSet[RowId],
        progress: Progress | None,
    ) -> None:
        """`named`: rows in results. `progress`: None: no job answers."""
        self._plan = plan
        self._read = read
        self._named = named
        self._progress = progress
        self._certain: set[RowId] = set(named)
        for side in SIDES:
            partitions: dict[_Partition, list[tuple[Place, InputRow]]] = {}
            for (of_side, place), row in expected.rows.items():
                if of_side == side:
                    partitions.setdefault((place.topic, place.partition), []).append((place, row))
            newest = {each: _newest_us(rows) for each, rows in partitions.items()}
            for partition, rows in partitions.items():
                rows.sort()
                others = [time for each, time in newest.items() if each != partition]
                self._add(side, rows, others)

    def __contains__(self, row: RowId) -> bool:
        return row in self._certain

    def _add(self, side: Side, rows: _Rows, others_us: Sequence[int]) -> None:
        on_time = {*self._by_results(side, rows), *self._by_event_times(side, rows, others_us)}
        on_time |= set(self._by_progress(side, rows))
        first = self._first_read(side, rows)
        self._certain |= {
            (side, place)
            for place, row in rows
            if place in on_time
            and place.offset >= first
            and row.excluded is None
            and not row.may_be_duplicate
        }

    def _first_read(self, side: Side, rows: _Rows) -> float:
        """The first offset that the query has certainly read, if it has read the last one."""
        if self._plan.side(side).source_options.get("startingOffsets") == "earliest":
            return 0
        named = (place.offset for place, _ in rows if (side, place) in self._named)
        return min(named, default=float("inf"))

    def _by_results(self, side: Side, rows: _Rows) -> Iterator[Place]:
        oldest_us = float("inf")
        for place, row in reversed(rows):
            if (side, place) in self._named:
                oldest_us = min(oldest_us, row.late_time_us)
            if row.late_time_us >= oldest_us:
                yield place

    def _by_event_times(self, side: Side, rows: _Rows, others_us: Sequence[int]) -> Iterator[Place]:
        """`others_us`: newest event times of the other partitions. The query may have read all of
        their records before these."""
        of_side, known_ms = self._plan.side(side), self._read.known_from_ms[side]
        if of_side.idle_after is not None or (others_us and self._read.until_ms is not None):
            return
        newest_us = max(others_us, default=0)
        if known_ms is not None:
            newest_us = max(newest_us, known_ms * MICROS_PER_MS)
        delay_us = milliseconds(of_side.watermark_delay) * MICROS_PER_MS
        for place, row in rows:
            if row.late_time_us > newest_us - delay_us:
                yield place
            newest_us = max(newest_us, row.event_time_us)

    def _by_progress(self, side: Side, rows: _Rows) -> Iterator[Place]:
        progress = self._progress
        if progress is None or progress.on_time_since_ms is None:
            return
        for place, row in rows:
            was_running = row.written_ms is not None and row.written_ms >= progress.on_time_since_ms
            if was_running and progress.has_read((side, place)):
                yield place


def is_before(offsets: PartitionOffsets, row: RowId) -> bool:
    side, place = row
    return place.offset < offsets.get((side, place.topic, place.partition), 0)


def _newest_us(rows: _Rows) -> int:
    return max(row.event_time_us for _, row in rows)
