"""Facts about the records of a key, from which causes.py decides. Values only.

Times are milliseconds since 1970. A running join and a simulation give the same facts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from job.event_time.history import Bounds, Pace
from job.plan.plan import JoinPlan
from job.plan.result_id import Place
from job.spec.sides import OTHER_SIDE, SIDES, Side


@dataclass(frozen=True)
class Bad:
    reason: str
    """One of reasons.REASONS."""
    message: str
    """As in the dead letter."""


@dataclass(frozen=True)
class Filtered:
    field: str
    """Field of the spec that drops the record, and its text."""
    is_null: bool = False
    """Whether its expression is null, and not false."""


@dataclass(frozen=True)
class NullKey:
    """A part of the key is null."""


@dataclass(frozen=True)
class NoMatchPossible:
    """A condition that no row of the other side can change."""

    condition: str


RowId: TypeAlias = tuple[Side, Place]
"""A row: both sides may read the same topic."""
Problem: TypeAlias = Bad | Filtered | NullKey | NoMatchPossible
"""Why a record cannot match, whatever the other side contains."""


@dataclass(frozen=True)
class KeyRecord:
    """A record with the key, and what its content decides."""

    side: Side
    place: Place
    partition: int
    """Number of the partition among those of the side."""
    written_ms: int | None
    """Kafka's timestamp."""
    event_time_ms: int | None
    """None: the record has none that can be read."""
    late_time_ms: int | None
    """The event time, or the end of the tumbling window: it decides whether the row is late."""
    problem: Problem | None = None
    """None: the row enters the join."""
    passes_alone: bool = True
    """Whether output.filter is true for the row without a match."""
    alone_filter_is_null: bool = False
    """Whether output.filter is null for the row without a match."""
    alone_earlier_filter: str | None = None
    """As Pair.earlier_filter, for the row without a match."""
    deletes_key: bool = False
    """Whether it is a record of a table that deletes the row of its key."""
    duplicate_of: Place | None = None
    """Earlier record of the side with the same id of `deduplicate`."""

    @property
    def row(self) -> RowId:
        return self.side, self.place


@dataclass(frozen=True)
class Pair:
    """A left and a right row with the key."""

    distance_ms: int
    """Event time of the right row minus that of the left one."""
    is_in_window: bool
    meets_condition: bool
    passes_filter: bool
    """Whether output.filter is true."""
    failed_field: str | None = None
    """Field of the spec that fails on the result."""
    filter_is_null: bool = False
    """Whether output.filter is null."""
    earlier_filter: str | None = None
    """The filter that decided, if it has changed since: its field, text and end."""

    @property
    def matches(self) -> bool:
        return self.is_in_window and self.meets_condition


@dataclass(frozen=True)
class Result:
    """A record of the output topic."""

    records: Mapping[Side, Place]
    at: str
    """topic/partition/offset, or `in batch 3` of a simulation."""
    written_ms: int | None
    """None: unknown."""


@dataclass(frozen=True)
class Letter:
    reason: str
    message: str
    at: str | None
    """topic/partition/offset. None: a simulation, which writes none."""


@dataclass(frozen=True)
class StoredRow:
    leaves_after_ms: int | None
    """None: never."""
    matched: bool | None
    """None: the join does not store it."""


@dataclass(frozen=True)
class OutputRead:
    """The part of the output topic that was read."""

    topic: str
    from_ms: int
    """Results that were written earlier are not read, or retention has removed them."""
    is_complete: bool
    """Whether it was read to its end."""
    is_compacted: bool = False


@dataclass(frozen=True)
class Skipped:
    """Records that Kafka deleted before the query read them, and that the query has skipped."""

    side: Side
    first: Place
    count: int
    """Offsets from `first` on."""
    at_ms: int


@dataclass(frozen=True)
class Facts:
    plan: JoinPlan
    records: tuple[KeyRecord, ...]
    """Left ones first, in the order of their places."""
    pairs: Mapping[tuple[Place, Place], Pair]
    """Of the records without a problem, by left and right place."""
    results: tuple[Result, ...] = ()
    letters: Mapping[RowId, Letter] = field(default_factory=dict)
    """By the original record."""
    result_letters: Mapping[frozenset[RowId], Letter] = field(default_factory=dict)
    """Of results that were not written, by their records."""
    stored: Mapping[RowId, StoredRow] = field(default_factory=dict)
    """Rows of the key in state."""
    stored_is_known: Mapping[Side, bool] = field(default_factory=dict)
    """False: the state of the side holds more rows than were read, or no positions."""
    unread: Mapping[RowId, int] = field(default_factory=dict)
    """Records of the partition that the query reads before this one, of unread records."""
    watermarks: Mapping[RowId, Bounds] = field(default_factory=dict)
    """Watermark when the query read the record. Records outside of the history are missing."""
    watermark_ms: int | None = None
    pace: Pace | None = None
    """None: unknown."""
    output: OutputRead | None = None
    """None: a simulation, where each result is known."""
    before_change: frozenset[RowId] = frozenset()
    """Rows that the query before the last change has read. Their pairs are its results."""
    reset_ms: int | None = None
    """Time of the last reset. None: there was none."""
    history_from_ms: int | None = None
    """First line of the watermark history. None: it is empty."""

    def pair(self, record: KeyRecord, other: KeyRecord) -> Pair | None:
        left, right = (record, other) if record.side == "left" else (other, record)
        return self.pairs.get((left.place, right.place))

    def others(self, record: KeyRecord) -> list[KeyRecord]:
        return self._of_side[OTHER_SIDE[record.side]]

    def results_of(self, record: KeyRecord) -> list[Result]:
        return self._results.get(record.row, [])

    def output_is_known(self, record: KeyRecord) -> bool:
        """Whether a result of the record would have been found."""
        if self.output is None:
            return True
        is_after = record.written_ms is not None and record.written_ms >= self.output.from_ms
        return self.output.is_complete and not self.output.is_compacted and is_after

    @cached_property
    def _of_side(self) -> Mapping[Side, list[KeyRecord]]:
        return {side: [each for each in self.records if each.side == side] for side in SIDES}

    @cached_property
    def _results(self) -> Mapping[RowId, list[Result]]:
        found: dict[RowId, list[Result]] = {}
        for result in self.results:
            for row in result.records.items():
                found.setdefault(row, []).append(result)
        return found
