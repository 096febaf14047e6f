"""A stream-stream join in a few lines, for the model of the real-time engine.

Rows of a key match if their event times differ by at most WINDOW. A row is late if its event time
is not past the watermark, and expires once the watermark passes the end of its match window.
"""

from collections import Counter
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Self

from tests.unit.delivery.interval_protocol import OutputRow

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")
Offsets = tuple[int, int]
"""Next offset of each side; a topic has one partition here."""

MatchType = Literal["table_outer", "table_inner", "table_anti", "pick_outer", "pick_inner"]
"""Of a join in interval_matches.py."""
JoinType = Literal["full_outer", "left_semi"] | MatchType
WINDOW = 2
DELAY = 1
FAR = 1_000
"""First event time of rows that only advance the watermark."""


@dataclass(frozen=True)
class Row:
    side: Side
    offset: int
    slot: int
    """State partition. All rows of a slot have one key."""
    event_time: int
    is_bad: bool = False

    @property
    def place(self) -> str:
        return f"{self.side[0]}{self.offset}"

    def matches(self, other: "Row") -> bool:
        return abs(self.event_time - other.event_time) <= WINDOW

    def is_late(self, watermark: int) -> bool:
        return self.event_time <= watermark

    def has_expired(self, watermark: int) -> bool:
        return self.event_time + WINDOW <= watermark


def result_id(left: Row | None, right: Row | None) -> str:
    return "|".join("" if row is None else row.place for row in (left, right))


def letter_id(row: Row) -> str:
    return f"dead/{row.place}"


@dataclass
class State:
    """Rows in the state of one slot, and the places of rows that have matched."""

    read_order: ClassVar[tuple[int, int]] = (0, 1)
    """The sides, as a task reads them."""

    join_type: JoinType
    rows: list[Row] = field(default_factory=list)
    matched: set[str] = field(default_factory=set)
    computed: set[str] = field(default_factory=set)
    """Ids of all rows that the batches up to here have emitted, whether they were written or
    skipped."""

    def copy(self) -> Self:
        return replace(
            self, rows=list(self.rows), matched=set(self.matched), computed=set(self.computed)
        )

    def take(
        self, row: Row, late_watermark: int, delivered: Set[str] = frozenset()
    ) -> list[OutputRow]:
        """The rows that a new row emits. `delivered`: ids of the interval that is repeated: a row
        that was late there is late, one that was unmatched there has expired."""
        if row.is_bad or row.is_late(late_watermark) or letter_id(row) in delivered:
            return [OutputRow(letter_id(row))]
        if self._was_unmatched(row, delivered):
            return []
        partners = [other for other in self.rows if other.side != row.side and row.matches(other)]
        self.rows.append(row)
        emitted = []
        for other in partners:
            left, right = (row, other) if row.side == "left" else (other, row)
            if self.join_type == "full_outer":
                emitted.append(OutputRow(result_id(left, right)))
            elif left.place not in self.matched:
                emitted.append(OutputRow(result_id(left, None)))
            self.matched |= {left.place, right.place}
        return emitted

    def drop(self, delivered: Set[str]) -> None:
        """Remove the rows that were unmatched in the interval that is repeated."""
        self.rows = [row for row in self.rows if not self._was_unmatched(row, delivered)]

    def _was_unmatched(self, row: Row, delivered: Set[str]) -> bool:
        return self.join_type == "full_outer" and unmatched_id(row) in delivered

    def evict(self, watermark: int, count: int) -> list[OutputRow]:
        """Remove up to `count` expired rows. Returns the unmatched rows."""
        expired = [row for row in self.rows if row.has_expired(watermark)][:count]
        self.rows = [row for row in self.rows if row not in expired]
        if self.join_type == "left_semi":
            return []
        return [OutputRow(unmatched_id(row)) for row in expired if row.place not in self.matched]


def unmatched_id(row: Row) -> str:
    return result_id(row, None) if row.side == "left" else result_id(None, row)


def expected(
    rows: Iterable[Row], letters: Set[str], gone: Set[str], join_type: JoinType
) -> Counter[str]:
    """Ids that must be delivered if exactly the rows with these `letters` were late or bad, and the
    rows with the unmatched ids `gone` had expired in an interval that was interrupted."""
    joined = [row for row in rows if letter_id(row) not in letters and row.event_time < FAR]
    out = Counter(letters)
    if join_type == "left_semi":
        return out + Counter({result_id(left, None) for left, _ in _pairs(joined)})
    pairs = _pairs([row for row in joined if unmatched_id(row) not in gone])
    matched = {row.place for pair in pairs for row in pair}
    unmatched = [unmatched_id(row) for row in joined if row.place not in matched]
    return out + Counter(result_id(*pair) for pair in pairs) + Counter(unmatched)


def _pairs(rows: Sequence[Row]) -> list[tuple[Row, Row]]:
    return [
        (left, right)
        for left in rows
        for right in rows
        if (left.side, right.side) == SIDES and left.slot == right.slot and left.matches(right)
    ]
