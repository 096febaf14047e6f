"""Joins with one result for each left row, for the model of the real-time engine: the join of a
stream with a table, and the join that picks a match.

The id of a result has only the place of the left row, and its content has the place of the match. A
repetition may find another match, or none: it reads the topics up to later ends, and in another
order. The match also decides whether there is a result, and whether the result can be written.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar, get_args

from tests.unit.delivery.interval_join import (
    FAR,
    WINDOW,
    JoinType,
    MatchType,
    Row,
    State,
    letter_id,
    unmatched_id,
)
from tests.unit.delivery.interval_protocol import OutputRow

MATCH_TYPES: Sequence[MatchType] = get_args(MatchType)
_UNWRITTEN = "/value_too_large"
"""Ends the id of the dead letter of a result that cannot be written."""


@dataclass
class _MatchState(State):
    def _was_delivered(self, row: Row, delivered: Set[str]) -> bool:
        return not delivered.isdisjoint({unmatched_id(row), unmatched_id(row) + _UNWRITTEN})

    def drop(self, delivered: Set[str]) -> None:
        self.rows = [row for row in self.rows if not self._was_delivered(row, delivered)]

    def _results(self, left: Row, match: Row | None) -> list[OutputRow]:
        """The result of a left row, its dead letter, or none."""
        if self.join_type.endswith("_inner" if match is None else "_anti"):
            return []
        row_id = unmatched_id(left)
        if match is None:
            return [OutputRow(row_id)]
        suffix = _UNWRITTEN if match.offset % 4 == 3 else ""
        return [OutputRow(row_id + suffix, match.place)]


@dataclass
class TableState(_MatchState):
    """The right side is the table. A slot has one key, and so at most one row of the table."""

    read_order: ClassVar[tuple[int, int]] = (1, 0)

    def take(
        self,
        row: Row,
        late_watermark: int,  # noqa: ARG002  # nothing is late
        delivered: Set[str] = frozenset(),
    ) -> list[OutputRow]:
        if row.is_bad:
            return [OutputRow(letter_id(row))]
        if row.side == "right":
            self.rows = [row]
            return []
        if self._was_delivered(row, delivered):
            return []
        return self._results(row, next(filter(_can_match, self.rows), None))

    def evict(self, watermark: int, count: int) -> list[OutputRow]:  # noqa: ARG002  # nothing expires
        return []


@dataclass
class PickState(_MatchState):
    """The result of a left row is its latest match. It is emitted when the row expires."""

    def take(
        self, row: Row, late_watermark: int, delivered: Set[str] = frozenset()
    ) -> list[OutputRow]:
        if row.is_bad or row.is_late(late_watermark) or letter_id(row) in delivered:
            return [OutputRow(letter_id(row))]
        if not self._was_delivered(row, delivered):
            self.rows.append(row)
        return []

    def evict(self, watermark: int, count: int) -> list[OutputRow]:
        lefts = [row for row in self.rows if row.side == "left" and row.has_expired(watermark)]
        emitted = [
            result for left in lefts[:count] for result in self._results(left, self._picked(left))
        ]
        self.rows = [row for row in self.rows if row not in lefts[:count]]
        if len(lefts) <= count:
            # A left row with this right row in its window has expired too.
            self.rows = [
                row
                for row in self.rows
                if row.side == "left" or row.event_time + 2 * WINDOW > watermark
            ]
        return emitted

    def _picked(self, left: Row) -> Row | None:
        matches = [
            row for row in self.rows if row.side == "right" and row.matches(left) if _can_match(row)
        ]
        return max(matches, key=lambda row: (row.event_time, row.offset), default=None)


def _can_match(row: Row) -> bool:
    """False: a tombstone of the table, or a row that does not meet the condition."""
    return row.offset % 4 != 2


def empty_state(join_type: JoinType) -> State:
    if join_type.startswith("table_"):
        return TableState(join_type)
    return PickState(join_type) if join_type.startswith("pick_") else State(join_type)


def wrong_outcomes(
    out: Iterable[str],
    computed: Set[str],
    in_parts: Set[str],
    lefts: Sequence[Row],
    join_type: JoinType,
) -> str | None:
    """A left row has one outcome, a result or a dead letter. None: `out` is right.

    `out`: ids of visible rows, with repetitions. `computed`: those that the committed batches have
    emitted. `in_parts`: those of all intervals, also of interrupted ones.
    """
    outcomes = Counter(map(_place, out))
    required = set(map(_place, computed))
    if join_type.endswith("_outer"):
        required |= {row.place for row in lefts if row.event_time < FAR}
    allowed = required | set(map(_place, in_parts))
    repeated = sorted(place for place, count in outcomes.items() if count > 1)
    lost, never_emitted = required - outcomes.keys(), outcomes.keys() - allowed
    if not (repeated or lost or never_emitted):
        return None
    return f"several outcomes: {repeated}, none: {lost}, never emitted: {never_emitted}"


def _place(row_id: str) -> str:
    """The place of the row that an id is about."""
    return row_id.removeprefix("dead/").split("|")[0]
