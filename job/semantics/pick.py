"""A join that picks one match of each left row: what job/join/Picking.java does.

The rows of both sides are stored. Once the watermark has passed the end of its match window, a left
row expires: no later row can match it. Its result then has the latest, earliest or nearest of the
right rows that match it.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from job.semantics.event_time import BatchWatermarks, is_behind
from job.semantics.events import (
    Evicted,
    FailedPreJoinFilter,
    Late,
    Matched,
    Observer,
    Stored,
    ignore_event,
)
from job.semantics.one_side_joiner import SideInput
from job.semantics.operator import OperatorMetrics, OperatorOutput, Processor
from job.semantics.rows import MICROS_PER_MS, SIDES, JoinedRow, Key, Row, Side, joined
from job.semantics.table_join import Place
from job.semantics.watermark_predicates import WatermarkPredicate, WatermarkPredicates
from job.spec.join_conditions import JoinType, Pick


@dataclass(frozen=True)
class PickPlan:
    join_type: JoinType
    left: SideInput
    right: SideInput
    post_join_filter: Callable[[JoinedRow], bool]
    """With the match window."""
    place: Callable[[Row], Place]
    """Of the record of a row."""
    pick: Pick
    before_ms: int
    after_ms: int
    processor: Processor

    def of(self, side: Side) -> SideInput:
        return self.left if side == "left" else self.right

    def kept_ms(self, side: Side) -> int:
        """From the event time of a row to the last watermark at which it is needed. A right row is
        needed until the left rows that can match it have arrived, and their windows have passed."""
        return self.after_ms if side == "left" else self.before_ms + max(0, self.after_ms)


@dataclass
class PickState:
    rows: dict[Key, list[Row]] = field(default_factory=dict)

    def get(self, key: Key) -> list[Row]:
        return self.rows.get(key, [])

    @property
    def num_rows(self) -> int:
        return sum(map(len, self.rows.values()))


class PickJoin:
    """The join of one query, from its first batch on."""

    def __init__(self, plan: PickPlan, observer: Observer = ignore_event) -> None:
        self.plan = plan
        self._observer = observer
        self.states = {side: PickState() for side in SIDES}

    def process(
        self, left_rows: Iterable[Row], right_rows: Iterable[Row], watermarks: BatchWatermarks
    ) -> OperatorOutput:
        """One micro-batch."""
        is_interval = self.plan.processor == "interval"
        late_ms = watermarks.eviction if is_interval else watermarks.late
        of: dict[Side, Iterable[Row]] = {"left": left_rows, "right": right_rows}
        rows: list[JoinedRow] = []
        stored = late = 0
        for side in SIDES:
            for row in of[side]:
                if is_behind(self._time(side, row), late_ms):
                    late += 1
                    self._observer(Late(side, row, late_ms))
                elif not self.plan.of(side).pre_join_filter(row):
                    is_padded = side in self.plan.join_type.outer_sides
                    self._observer(FailedPreJoinFilter(side, row, is_padded))
                    rows += [joined(side, row, None)] if is_padded else []
                else:
                    self._store(side, row)
                    stored += 1
        before = sum(state.num_rows for state in self.states.values())
        rows += self._picked(watermarks.eviction)
        self._evict("right", watermarks.eviction)
        total = sum(state.num_rows for state in self.states.values())
        metrics = OperatorMetrics(total, stored, before - total, late)
        return OperatorOutput(rows, metrics, WatermarkPredicates())

    def should_run_another_batch(self, watermarks: BatchWatermarks, new_watermark_ms: int) -> bool:
        return new_watermark_ms > watermarks.eviction

    def _time(self, side: Side, row: Row) -> int:
        event_time = self.plan.of(side).event_time
        assert event_time is not None, "each side has a watermark"
        time = event_time(row)
        assert time is not None, "a row that enters the join has an event time"
        return time

    def _store(self, side: Side, row: Row) -> None:
        key = self.plan.of(side).key(row)
        self.states[side].rows.setdefault(key, []).append(row)
        self._observer(Stored(side, row, key, matched=False))

    def _picked(self, watermark_ms: int) -> Iterator[JoinedRow]:
        """The results of the left rows that expire."""
        is_padded = "left" in self.plan.join_type.outer_sides
        for key, row in self._evict("left", watermark_ms):
            pairs = (JoinedRow(row, right) for right in self.states["right"].get(key))
            matches = [pair for pair in pairs if self.plan.post_join_filter(pair)]
            if matches:
                best = min(matches, key=self._rank)
                assert best.right is not None
                self._observer(Matched("left", row, best.right))
                yield best
            else:
                predicate = WatermarkPredicate("value", watermark_ms - self.plan.after_ms)
                self._observer(Evicted("left", row, predicate, is_padded))
                yield from [joined("left", row, None)] if is_padded else []

    def _rank(self, pair: JoinedRow) -> tuple[int, ...]:
        """The best pair has the smallest."""
        assert pair.left is not None
        assert pair.right is not None
        distance = self._time("right", pair.right) - self._time("left", pair.left)
        partition, offset = self.plan.place(pair.right)
        newest = (-partition, -offset)
        match self.plan.pick:
            case Pick.LATEST:
                return (-distance, *newest)
            case Pick.EARLIEST:
                return (distance, *newest)
            case Pick.NEAREST:
                return (abs(distance), distance, *newest)

    def _evict(self, side: Side, watermark_ms: int) -> list[tuple[Key, Row]]:
        """Removes the rows of a side that are not needed any more. Returns them."""
        state, kept_us = self.states[side], self.plan.kept_ms(side) * MICROS_PER_MS
        last_us = watermark_ms * MICROS_PER_MS - kept_us
        evicted = [
            (key, row)
            for key, rows in state.rows.items()
            for row in rows
            if self._expires(self._time(side, row), last_us)
        ]
        for key, row in evicted:
            state.rows[key].remove(row)
        return evicted

    def _expires(self, time_us: int, last_us: int) -> bool:
        """A watermark has whole milliseconds: a row expires at the first one after its time."""
        return -(-time_us // MICROS_PER_MS) * MICROS_PER_MS < last_us
