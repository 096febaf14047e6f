"""The part of the ON clause over both sides, for all possible pairs of a batch at once."""

from collections.abc import Iterable

from job.plan.plan import JoinPlan
from job.semantics.rows import MICROS_PER_MS, JoinedRow
from job.semantics.simulated_side import DecodedRow, SideReader
from job.spec.durations import milliseconds
from job.spec.join_conditions import MatchWindow
from job.sql.rows import SqlRows


class PairCondition:
    def __init__(self, plan: JoinPlan, sides: tuple[SideReader, SideReader], rows: SqlRows) -> None:
        self._rows = rows
        self._stores = (sides[0].store, sides[1].store)
        self._earliest_us, self._latest_us = bounds_us(plan.match_window)
        # A row that waits for its result needs the value of a pair when it expires.
        self._keeps = plan.pick is not None or plan.stream_waits
        self._met: dict[tuple[int, int], bool] = {}
        condition = plan.pair_condition
        self._program = (
            None
            if condition is None
            else rows.program(
                (sides[0].program, sides[1].program),
                [[f"coalesce({condition}, false) AS is_met"]],
                ["is_met"],
            )
        )

    def prepare(self, pairs: Iterable[tuple[DecodedRow, DecodedRow]]) -> None:
        """Evaluate the condition on the pairs of a batch, left and right row."""
        if not self._keeps:
            self._met.clear()
        if self._program is None:
            return
        wanted = {
            (left.number, right.number): None
            for left, right in pairs
            if self.is_in_window(left, right)
        }
        answers = self._rows.run_pairs(self._program, list(wanted), self._stores)
        self._met.update(
            (pair, answer["is_met"]) for pair, answer in zip(wanted, answers, strict=True)
        )

    def is_met(self, row: JoinedRow) -> bool:
        """True also if the condition fails: such a pair passes the join but is not a result."""
        left, right = row
        assert isinstance(left, DecodedRow)
        assert isinstance(right, DecodedRow)
        if not self.is_in_window(left, right):
            return False
        return self._program is None or self._met[left.number, right.number]

    def is_in_window(self, left: DecodedRow, right: DecodedRow) -> bool:
        distance = right.event_time_us - left.event_time_us
        return (self._earliest_us is None or distance >= self._earliest_us) and (
            self._latest_us is None or distance <= self._latest_us
        )


def bounds_us(window: MatchWindow | None) -> tuple[int | None, int | None]:
    """Least and greatest distance of the right row from the left row, in microseconds."""
    if window is None:
        return None, None
    return (
        None if window.before is None else -milliseconds(window.before) * MICROS_PER_MS,
        None if window.after is None else milliseconds(window.after) * MICROS_PER_MS,
    )
