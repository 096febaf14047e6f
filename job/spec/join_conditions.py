"""Type and conditions of the join."""

from collections.abc import Iterator
from datetime import timedelta
from enum import StrEnum

from job.spec.durations import Duration
from job.spec.field_types import Expression, NullSafety
from job.spec.frozen import Frozen
from job.spec.sides import SIDES, Side
from job.spec.windows import TumblingWindow, WindowField


class JoinType(StrEnum):
    INNER = "inner"
    LEFT_OUTER = "left_outer"
    RIGHT_OUTER = "right_outer"
    FULL_OUTER = "full_outer"
    LEFT_SEMI = "left_semi"
    LEFT_ANTI = "left_anti"
    RIGHT_SEMI = "right_semi"
    RIGHT_ANTI = "right_anti"

    @property
    def shown_sides(self) -> tuple[Side, ...]:
        """Sides whose columns results can contain."""
        only = self.semi_side or self.anti_side
        return SIDES if only is None else (only,)

    @property
    def semi_side(self) -> Side | None:
        """Side whose matched rows are emitted alone, each once. None: no semi join."""
        return {JoinType.LEFT_SEMI: SIDES[0], JoinType.RIGHT_SEMI: SIDES[1]}.get(self)

    @property
    def anti_side(self) -> Side | None:
        """Side of which only unmatched rows are emitted. None: no anti join."""
        return {JoinType.LEFT_ANTI: SIDES[0], JoinType.RIGHT_ANTI: SIDES[1]}.get(self)

    @property
    def outer_sides(self) -> tuple[Side, ...]:
        """Sides whose unmatched rows are emitted."""
        match self:
            case JoinType.LEFT_OUTER | JoinType.LEFT_ANTI:
                return ("left",)
            case JoinType.RIGHT_OUTER | JoinType.RIGHT_ANTI:
                return ("right",)
            case JoinType.FULL_OUTER:
                return SIDES
            case _:
                return ()


class JoinOperator(StrEnum):
    SPARK = "spark"
    STREAMJOIN = "streamjoin"


class Pick(StrEnum):
    LATEST = "latest"
    EARLIEST = "earliest"
    NEAREST = "nearest"


class MatchWindow(Frozen):
    """Rows match if left - before <= right <= left + after (event times, both inclusive)."""

    before: Duration | None = None
    """How far the right row may be before the left row; may be negative. Omitted: no bound."""
    after: Duration | None = None
    """How far the right row may be after the left row; may be negative. Omitted: no bound."""

    def contradictions(self) -> Iterator[str]:
        if self.before is None and self.after is None:
            yield "is empty: set before, after or both, e.g. {after: 1 hour}"
        earliest, latest = self.before, self.after
        if earliest is not None and latest is not None and -earliest > latest:
            yield "is empty: before + after is negative, so no rows can match"


class JoinConditions(Frozen):
    """Type and conditions of the join."""

    type: JoinType
    """Kind of join. It decides which rows are emitted."""
    match_window: MatchWindow | None = None
    """Allowed distance of the event times: left - before <= right <= left + after. Alternatives:
    `window`, or both event times in the keys."""
    window: WindowField | None = None
    """Length of a tumbling window that must contain both rows, or a mapping with `size`, `offset`
    and `time_zone`. Replaces `match_window`."""
    null_safe: NullSafety = False
    """Whether a null key matches a null key (`<=>` instead of `=`). A list has one value for each
    pair of keys, e.g. `[true, false]`."""
    condition: Expression | None = None
    """Further part of the ON clause, over `left.<column>` and `right.<column>`. An outer row that
    fails it is emitted as unmatched."""
    pick: Pick | None = None
    """Which match is the result of a left row, once its match window has passed: `latest`,
    `earliest` or `nearest`, by event time. Of two that are equally near, the earlier one; of equal
    event times, the larger offset. Omitted: every match is a result. Only for `inner` and
    `left_outer`, with a `match_window`. The checkpoint freezes this setting."""
    unbounded_state: bool = False
    """Allows an inner join without bounds, whose state grows indefinitely."""

    operator: JoinOperator | None = None
    """Implementation of the join. `spark`: the join operator of Spark, with its rows in RocksDB.
    `streamjoin`: a stateful processor with its rows on the heap, the only one of `engine:
    real_time`, of a join with a table, of `pick` and of `deduplicate`. Omitted: the one of the
    checkpoint, and in a new checkpoint `streamjoin`. The checkpoint freezes it."""

    def contradictions(self) -> Iterator[str]:
        if self.match_window is not None and self.window is not None:
            yield "has match_window and window: remove one of them"
        yield from self._problems_of_picking()

    def _problems_of_picking(self) -> Iterator[str]:
        if self.pick is None:
            return
        if self.type not in {JoinType.INNER, JoinType.LEFT_OUTER}:
            yield (
                f"has pick and type {self.type}: one result for each left row has inner or "
                "left_outer; use one of them, or remove pick"
            )
        if self.match_window is None:
            yield "has pick and no match_window, whose matches it chooses from: set match_window"
        if self.operator is JoinOperator.SPARK:
            yield "has pick and operator spark, which emits every match: remove operator"

    @property
    def tumbling_window(self) -> TumblingWindow | None:
        if isinstance(self.window, timedelta):
            return TumblingWindow(size=self.window)
        return self.window
