"""What can have happened to a record of a key, and why a row has no match. Values only."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from job.event_time.history import Bounds
from job.explain.facts import Letter, NoMatchPossible, NullKey, Problem, Result
from job.plan.result_id import Place
from job.spec.sides import Side


@dataclass(frozen=True)
class Unread:
    before: int
    """Unread records of the partition before this one."""


@dataclass(frozen=True)
class Excluded:
    problem: Problem
    letter: Letter | None
    """None: no dead letter was found."""


@dataclass(frozen=True)
class Late:
    watermark: Bounds | None
    """None: the watermark when the row was read is unknown; there is a dead letter."""
    letter: Letter | None = None


@dataclass(frozen=True)
class Untraced:
    """The row is neither in state nor in the output."""


@dataclass(frozen=True)
class ReadBeforeChange:
    """The query before the change has read the row, and nothing of it was found."""


@dataclass(frozen=True)
class Duplicate:
    of: Place


@dataclass(frozen=True)
class Matched:
    with_row: Place | None
    """None: the result contains only this record (semi join)."""
    results: tuple[Result, ...]
    """The first is that of `with_row`."""


@dataclass(frozen=True)
class MatchNotEmitted:
    """The row has matched, and the join type emits nothing for it (anti and semi joins)."""

    with_row: Place | None
    """None: only the state shows that it has matched."""


@dataclass(frozen=True)
class KeptBack:
    """The row would match, and both rows were read before the change."""

    other: Place


@dataclass(frozen=True)
class MatchKeptBack:
    """The row has matched during the replay of a change, which emits nothing."""

    because: KeptBack


@dataclass(frozen=True)
class ResultFiltered:
    """output.filter dropped the result."""

    with_row: Place | None
    """None: the result of the unmatched row."""
    is_null: bool = False
    """Whether output.filter is null, and not false."""
    earlier: str | None = None
    """As Pair.earlier_filter."""


@dataclass(frozen=True)
class ResultNotWritten:
    with_row: Place | None
    reason: str
    letter: Letter | None


@dataclass(frozen=True)
class NoRow:
    """The other side has no row with the key among the records that were read."""

    side: Side


@dataclass(frozen=True)
class NotCompared:
    """The other side has rows with the key, and it is not known whether one matches."""

    other: Place


@dataclass(frozen=True)
class OutsideWindow:
    other: Place
    distance_ms: int
    """Event time of the right row minus that of the left one."""


@dataclass(frozen=True)
class ConditionFalse:
    other: Place


@dataclass(frozen=True)
class OtherUnread:
    other: Place


@dataclass(frozen=True)
class OtherNotJoined:
    """The only row that could match is not joined."""

    other: Place
    cause: "Excluded | Late | Duplicate | None"
    """None: it was late, by the other facts."""


@dataclass(frozen=True)
class NotInTable:
    """The table had no row of the key when the row of the stream was read."""

    other: Place
    """The newest record of the key."""
    has_deleted: bool
    """Whether it was written before the row, and deletes the row of its key."""


@dataclass(frozen=True)
class NoVersion:
    """The table had no valid version of the key at the event time of the row."""

    other: Place
    """The version that should be valid then, or the first one, if all are later."""
    reason: Literal["deleted", "later", "ended", "unread"]
    """`later`: all versions are. `ended`: it was older than `retention`. `unread`: it was read
    after the row."""


NoMatch: TypeAlias = (
    NoRow
    | NotCompared
    | OutsideWindow
    | ConditionFalse
    | OtherUnread
    | KeptBack
    | OtherNotJoined
    | NotInTable
    | NoVersion
)


@dataclass(frozen=True)
class EmittedUnmatched:
    result: Result
    because: NoMatch | NullKey | NoMatchPossible


@dataclass(frozen=True)
class Waiting:
    until_ms: int | None
    """The row waits until the watermark is later than this. None: indefinitely."""
    is_emitted: bool
    """Whether it is then emitted as unmatched."""
    because: NoMatch


@dataclass(frozen=True)
class Expired:
    at_ms: int
    """The row expired once the watermark was later than this. Its join type emits nothing."""
    because: NoMatch


@dataclass(frozen=True)
class ResultNotFound:
    """The row has a result that is not in the part of the output topic that was read."""

    with_row: Place | None
    """None: the result of the unmatched row, or `has_matched`."""
    has_matched: bool = False
    """The state shows that the row has matched, and no row that was read is its match."""


@dataclass(frozen=True)
class ExpiredWithoutTrace:
    """The row has expired, and if it had a result, this would not have been found."""

    at_ms: int
    """As of Expired."""


@dataclass(frozen=True)
class OneOfBothLate:
    """Two rows match, and there is no result: one of them was late."""

    with_row: Place


@dataclass(frozen=True)
class WaitsForPick:
    """A left row of a join that picks has a match, and its match window has not passed yet."""

    other: Place
    until_ms: int


@dataclass(frozen=True)
class WaitsForVersion:
    """A row of a stream waits for its version of a table."""

    until_ms: int
    """Watermark that has to be passed."""


@dataclass(frozen=True)
class NotPicked:
    """A right row of a join that picks has a match, and is in no result that was found."""

    other: Place
    is_decided: bool
    """Whether the result of the left row has another row."""


@dataclass(frozen=True)
class UnmatchedAtOnce:
    """The row of a stream had no match in the table when it was read."""

    result: Result | None
    """None: the join type emits none."""
    because: NoMatch


@dataclass(frozen=True)
class InTable:
    """The record of a table is the row of its key, or was it."""

    replaced_by: Place | None
    """The next record of the key. None: it still is the row."""
    is_deleted: bool
    """Whether the next record has deleted it."""
    results: int
    """Number of results with it that were found."""
    is_gone: bool = False
    """Whether the state shows that it is not the row of its key any more."""


@dataclass(frozen=True)
class DeletedKey:
    """The record of a table has deleted the row of its key, or found none."""


Cause: TypeAlias = (
    Unread
    | Excluded
    | Late
    | Untraced
    | ReadBeforeChange
    | Duplicate
    | Matched
    | MatchKeptBack
    | MatchNotEmitted
    | ResultFiltered
    | ResultNotWritten
    | EmittedUnmatched
    | Waiting
    | Expired
    | ExpiredWithoutTrace
    | ResultNotFound
    | OneOfBothLate
    | WaitsForPick
    | WaitsForVersion
    | NotPicked
    | UnmatchedAtOnce
    | InTable
    | DeletedKey
)
