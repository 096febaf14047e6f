"""Events of a row in the operator, from which traces are built."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from job.semantics.rows import Key, Row, Side
from job.semantics.watermark_predicates import WatermarkPredicate


@dataclass(frozen=True)
class Late:
    """Dropped: its event time is at or before the watermark."""

    side: Side
    row: Row
    watermark_ms: int


@dataclass(frozen=True)
class Duplicate:
    """A row was dropped before the join: it is a duplicate of an earlier row of its side."""

    side: Side
    row: Row


@dataclass(frozen=True)
class FailedPreJoinFilter:
    """Not stored: no row of the other side can match it."""

    side: Side
    row: Row
    null_padded: bool


@dataclass(frozen=True)
class Matched:
    """Joined with a stored row of the other side. `side`: of the arriving row."""

    side: Side
    row: Row
    stored: Row


@dataclass(frozen=True)
class Stored:
    side: Side
    row: Row
    key: Key
    matched: bool


@dataclass(frozen=True)
class NotStored:
    """Processed without being stored. `reason`: why no later row can need it."""

    side: Side
    row: Row
    reason: str


@dataclass(frozen=True)
class RemovedByMatch:
    """A row of the side of a semi join leaves the state with its first match."""

    side: Side
    row: Row


@dataclass(frozen=True)
class Evicted:
    """Evicted from state: the state watermark has passed it."""

    side: Side
    row: Row
    predicate: WatermarkPredicate
    null_padded: bool


@dataclass(frozen=True)
class Replaced:
    """A record of a table is the row of its key. `row`: the record."""

    side: Side
    row: Row
    before: Row | None
    """None: the key had no row."""


@dataclass(frozen=True)
class Deleted:
    """A record of a table has removed the row of its key."""

    side: Side
    row: Row
    before: Row | None
    """None: the key had no row."""


@dataclass(frozen=True)
class Outdated:
    """A record of a table changed nothing: a newer one of its key was read before or with it."""

    side: Side
    row: Row
    newer: Row


@dataclass(frozen=True)
class NoMatch:
    """A row of the stream was joined with no row of the table."""

    side: Side
    row: Row
    version: Row | None
    """Row of the key with which the condition is not met. None: the key had no row."""
    null_padded: bool


OfTable: TypeAlias = Replaced | Deleted | Outdated | NoMatch
OfJoin: TypeAlias = (
    Late | FailedPreJoinFilter | Matched | Stored | NotStored | RemovedByMatch | Evicted | OfTable
)
Event: TypeAlias = OfJoin | Duplicate
Observer: TypeAlias = Callable[[Event], None]


def ignore_event(_: Event) -> None:
    """Observer of a run without a trace."""
