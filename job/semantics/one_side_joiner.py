"""OneSideHashJoiner: one side of the join in one micro-batch.

It drops late rows, filters, joins each row with the stored rows of the other side, stores it, and
evicts old state at the end of the batch. Both sides use this class; `SideRules` has their
differences.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from job.semantics.event_time import is_behind
from job.semantics.events import (
    Evicted,
    FailedPreJoinFilter,
    Late,
    Matched,
    NotStored,
    Observer,
    RemovedByMatch,
    Stored,
)
from job.semantics.rows import JoinedRow, Key, Row, Side, joined, other
from job.semantics.state_manager_v4 import KeyToValuePair, SymmetricHashJoinStateManagerV4
from job.semantics.watermark_predicates import WatermarkPredicate
from job.spec.join_conditions import JoinType


@dataclass(frozen=True)
class SideRules:
    """Rules of the join type for one side."""

    side: Side
    join_type: JoinType

    @property
    def null_pads_unmatched(self) -> bool:
        """Whether an unmatched row of this side is emitted, with nulls for the other side."""
        return self.side in self.join_type.outer_sides

    @property
    def first_match_is_enough(self) -> bool:
        """Whether a row of this side is emitted at most once, alone: the side of a semi join."""
        return self.join_type.semi_side == self.side

    @property
    def removes_matches(self) -> bool:
        """Whether a row of this side removes the stored rows it matches: the other side of a semi
        join."""
        return self.join_type.semi_side == other(self.side)

    @property
    def is_left_input(self) -> bool:
        """Whether this side is the left input of Spark's join, which has no right semi join."""
        return self.side == (self.join_type.semi_side or "left")


@dataclass(frozen=True)
class SideInput:
    """Compiled expressions of the plan for one side."""

    key: Callable[[Row], Key]
    """keyGenerator."""
    event_time: Callable[[Row], int | None] | None
    """Microseconds since the epoch. None: the side has no watermark."""
    pre_join_filter: Callable[[Row], bool]
    """The one-sided part of ON; a row that fails it cannot match."""


class OneSideHashJoiner:
    """One side in one batch. Its state manager lives as long as the query."""

    def __init__(
        self,
        rules: SideRules,
        side_input: SideInput,
        state: SymmetricHashJoinStateManagerV4,
        post_join_filter: Callable[[JoinedRow], bool],
        predicate: WatermarkPredicate | None,
        key_time: Callable[[Key], int | None],
        observer: Observer,
    ) -> None:
        self.rules = rules
        self.side = rules.side
        self.state = state
        self._input = side_input
        self._post_join_filter = post_join_filter
        self._predicate = predicate
        self._key_time = key_time
        self._observer = observer
        self.updated_state_rows_count = 0
        self.removed_state_rows_count = 0
        self.late_rows_count = 0

    def store_and_join_with_other_side(
        self, rows: Iterable[Row], other_side: "OneSideHashJoiner", late_watermark_ms: int
    ) -> Iterator[JoinedRow]:
        for row in self._rows_not_late(rows, late_watermark_ms):
            # A row that fails cannot satisfy the whole condition, so it is not stored. A row of an
            # outer side is emitted now, and not after the watermark.
            if self._input.pre_join_filter(row):
                yield from self._join_and_store(row, other_side)
            else:
                null_padded = self.rules.null_pads_unmatched
                self._observer(FailedPreJoinFilter(self.side, row, null_padded))
                if null_padded:
                    yield joined(self.side, row, None)

    def _rows_not_late(self, rows: Iterable[Row], watermark_ms: int) -> Iterator[Row]:
        """applyRemovingRowsOlderThanWatermark: a row at the watermark is late, too."""
        for row in rows:
            if self._input.event_time and is_behind(self._input.event_time(row), watermark_ms):
                self.late_rows_count += 1
                self._observer(Late(self.side, row, watermark_ms))
            else:
                yield row

    def _join_and_store(self, row: Row, other_side: "OneSideHashJoiner") -> Iterator[JoinedRow]:
        key = self._input.key(row)
        matches = list(self._matches(row, key, other_side))
        if self.rules.first_match_is_enough:
            yield from matches[:1]
        else:
            yield from matches
        self._store(key, row, matched=bool(matches))

    def _matches(self, row: Row, key: Key, other_side: "OneSideHashJoiner") -> Iterator[JoinedRow]:
        look_up = (
            other_side.state.get_joined_rows_and_remove_matched
            if self.rules.removes_matches
            else other_side.state.get_joined_rows
        )
        for match in look_up(
            key, lambda that: joined(self.side, row, that), self._post_join_filter
        ):
            stored = match.right if self.side == "left" else match.left
            self._observer(Matched(self.side, row, stored))
            if self.rules.removes_matches:
                other_side.removed_state_rows_count += 1
                self._observer(RemovedByMatch(other_side.side, stored))
            yield match

    def _store(self, key: Key, row: Row, *, matched: bool) -> None:
        if self.rules.first_match_is_enough and matched:
            self._observer(NotStored(self.side, row, "it was emitted, and is emitted only once"))
        elif self._is_needed_later(key, row, matched=matched):
            self.state.append(key, row, matched=matched)
            self.updated_state_rows_count += 1
            self._observer(Stored(self.side, row, key, matched))
        else:
            reason = "the state watermark has passed it: no later row can match it"
            self._observer(NotStored(self.side, row, reason))

    def _is_needed_later(self, key: Key, row: Row, *, matched: bool) -> bool:
        """True for rows of the left input, also for one that this batch evicts: rows of the right
        input follow.

        A row of the right input that this batch evicts is stored only if its eviction emits it as
        unmatched.
        """
        if self.rules.is_left_input:
            return True
        return not self._is_evictable(key, row) or (self.rules.null_pads_unmatched and not matched)

    def _is_evictable(self, key: Key, row: Row) -> bool:
        """stateKeyWatermarkPredicateFunc and stateValueWatermarkPredicateFunc."""
        if self._predicate is None:
            return False
        if self._predicate.on == "key":
            return is_behind(self._key_time(key), self._predicate.watermark_ms)
        at = self._input.event_time(row) if self._input.event_time else None
        return is_behind(at, self._predicate.watermark_ms)

    def remove_old_state(self) -> Iterator[KeyToValuePair]:
        """Removes rows while it yields them: exhaust it before other calls on this side."""
        if self._predicate is None:
            return
        for pair in self.state.evict(self._predicate):
            self.removed_state_rows_count += 1
            null_padded = self.rules.null_pads_unmatched and not pair.matched
            self._observer(Evicted(self.side, pair.value, self._predicate, null_padded))
            yield pair
