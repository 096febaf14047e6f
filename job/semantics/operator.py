"""StreamingSymmetricHashJoinExec: stores both sides, and joins each row with the other side.

                              /-----------------------\\
    left side input --------->|    left side state    |------\\
                              \\-----------------------/      |
                                                             |--------> joined output
                              /-----------------------\\      |
    right side input -------->|    right side state   |------/
                              \\-----------------------/

In a batch, left rows are joined with the stored right rows and stored; then right rows are joined
with the stored left rows, including those of this batch, and stored. So each pair is joined once. A
left semi join processes the right side first. Then old state is evicted, and unmatched rows of an
outer side are emitted with nulls.

One object represents all partitions of the operator: the partition of a row follows from its key
(partitioning.py), so the pairs do not depend on the number of partitions.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from job.semantics.event_time import BatchWatermarks
from job.semantics.events import Observer, ignore_event
from job.semantics.one_side_joiner import OneSideHashJoiner, SideInput, SideRules
from job.semantics.rows import SIDES, JoinedRow, Key, Row, Side, joined, other
from job.semantics.state_manager_v4 import StateTimes, SymmetricHashJoinStateManagerV4
from job.semantics.watermark_predicates import (
    JoinCondition,
    WatermarkPredicates,
    state_watermark_predicates,
)
from job.spec.join_conditions import JoinType

OPERATOR = "StreamingSymmetricHashJoinExec"

Processor: TypeAlias = Literal["batch", "interval"]
"""The operator `streamjoin`, job/join/StreamJoin.java, in a micro-batch or in an
interval of real time. In an interval rows are late by its own watermark."""

SUPPORTED_JOIN_TYPES = frozenset({
    JoinType.INNER, JoinType.LEFT_OUTER, JoinType.RIGHT_OUTER, JoinType.FULL_OUTER,
    JoinType.LEFT_SEMI, JoinType.RIGHT_SEMI,
})  # fmt: skip


class UnsupportedJoinError(ValueError):
    """The operator does not support this join. The message is Spark's."""


@dataclass(frozen=True)
class JoinOperatorPlan:
    """Parameters of StreamingSymmetricHashJoinExec."""

    join_type: JoinType
    left: SideInput
    right: SideInput
    condition: JoinCondition
    post_join_filter: Callable[[JoinedRow], bool] = field(default=lambda _: True)
    key_time: Callable[[Key], int | None] = field(default=lambda _: None)
    """Event time of a key that carries the watermark, in microseconds (a window's end)."""
    processor: Processor | None = None
    """None: Spark's operator."""

    def __post_init__(self) -> None:
        if self.join_type not in SUPPORTED_JOIN_TYPES:
            raise UnsupportedJoinError(
                f"{OPERATOR} should not take {self.join_type} as the JoinType"
            )

    def of(self, side: Side) -> SideInput:
        return self.left if side == "left" else self.right


@dataclass(frozen=True)
class OperatorMetrics:
    """Metrics of Spark's operator."""

    num_total_state_rows: int
    """number of total state rows"""
    num_updated_state_rows: int
    """number of updated state rows"""
    num_removed_state_rows: int
    """number of removed state rows: evicted, or removed by their only match"""
    num_dropped_by_watermark: int


@dataclass(frozen=True)
class OperatorOutput:
    rows: list[JoinedRow]
    metrics: OperatorMetrics
    predicates: WatermarkPredicates


class StreamingSymmetricHashJoin:
    """The operator of one query, from its first batch on."""

    def __init__(self, plan: JoinOperatorPlan, observer: Observer = ignore_event) -> None:
        self.plan = plan
        self._observer = observer
        self.states = {side: _state(plan, side) for side in SIDES}

    def process(
        self, left_rows: Iterable[Row], right_rows: Iterable[Row], watermarks: BatchWatermarks
    ) -> OperatorOutput:
        """processPartitions: one micro-batch."""
        predicates = state_watermark_predicates(
            self.plan.condition, eviction_ms=watermarks.eviction, late_ms=watermarks.late
        )
        left, right = (self._joiner(side, predicates) for side in SIDES)
        is_interval = self.plan.processor == "interval"
        late_ms = watermarks.eviction if is_interval else watermarks.late
        rows = self._matched_rows(left, left_rows, right, right_rows, late_ms)
        rows += self._unmatched_rows(left, right)
        self._evict_inner_sides(left, right)
        metrics = OperatorMetrics(
            num_total_state_rows=sum(state.num_keys for state in self.states.values()),
            num_updated_state_rows=left.updated_state_rows_count + right.updated_state_rows_count,
            num_removed_state_rows=left.removed_state_rows_count + right.removed_state_rows_count,
            num_dropped_by_watermark=left.late_rows_count + right.late_rows_count,
        )
        return OperatorOutput(rows, metrics, predicates)

    def should_run_another_batch(self, watermarks: BatchWatermarks, new_watermark_ms: int) -> bool:
        """Whether a batch without data would evict state by a newer watermark."""
        predicates = state_watermark_predicates(
            self.plan.condition, eviction_ms=watermarks.eviction, late_ms=watermarks.late
        )
        has_timers = predicates.any_defined or self.plan.processor is not None
        return has_timers and new_watermark_ms > watermarks.eviction

    def _joiner(self, side: Side, predicates: WatermarkPredicates) -> OneSideHashJoiner:
        return OneSideHashJoiner(
            SideRules(side, self.plan.join_type),
            self.plan.of(side),
            self.states[side],
            self.plan.post_join_filter,
            predicates.of(side),
            self.plan.key_time,
            self._observer,
        )

    def _matched_rows(
        self,
        left: OneSideHashJoiner,
        left_rows: Iterable[Row],
        right: OneSideHashJoiner,
        right_rows: Iterable[Row],
        late_ms: int,
    ) -> list[JoinedRow]:
        """Left input then right input; for a left semi join right then left (since Spark 4.3).

        With the right side first, a left row that matches at once is not stored. But a right row
        behind the state watermark is not stored, so left rows of its batch do not match it. The
        operator streamjoin finds the match. A right semi join is a left semi join with exchanged
        inputs.
        """
        matches = {
            "left": left.store_and_join_with_other_side(left_rows, right, late_ms),
            "right": right.store_and_join_with_other_side(right_rows, left, late_ms),
        }
        return [*matches[self._first_side], *matches[other(self._first_side)]]

    @property
    def _first_side(self) -> Side:
        """The side whose rows of a batch are joined first."""
        semi = self.plan.join_type.semi_side or "left"
        is_plain = self.plan.join_type.semi_side is None or self.plan.processor is not None
        return semi if is_plain else other(semi)

    def _unmatched_rows(self, *joiners: OneSideHashJoiner) -> Iterator[JoinedRow]:
        """Evicts the outer side, left first, and emits its unmatched rows.

        Runs after all matches of the batch (SPARK-38684): a row must not be emitted both matched
        and unmatched.
        """
        for joiner in joiners:
            if joiner.rules.null_pads_unmatched:
                for pair in joiner.remove_old_state():
                    if not pair.matched:
                        yield joined(joiner.side, pair.value, None)

    def _evict_inner_sides(self, *joiners: OneSideHashJoiner) -> None:
        """Evicts the sides whose unmatched rows are not emitted."""
        for joiner in joiners:
            if not joiner.rules.null_pads_unmatched:
                for _ in joiner.remove_old_state():
                    pass


def _state(plan: JoinOperatorPlan, side: Side) -> SymmetricHashJoinStateManagerV4:
    event_time = plan.of(side).event_time
    times = StateTimes(of_key=plan.key_time, of_value=event_time or (lambda _: None))
    return SymmetricHashJoinStateManagerV4(times)
