"""What a filter decided when a record was read, if a restart has changed the filter since."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from job.event_time.filters import EarlierFilters
from job.explain.causes import leaves_after_ms
from job.explain.facts import KeyRecord
from job.instants import time_text
from job.plan.checks import Condition
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.semantics.simulated_side import DecodedRow, SideReader
from job.spec.sides import OTHER_SIDE, SIDES, Side
from job.sql.rows import Program, SqlRows

_OUTPUT = "output.filter"


@dataclass(frozen=True)
class Decided:
    passes: bool
    is_null: bool
    text: str | None
    """Field, text and end of the filter. None: the present filter decided."""


def without_changed_filters(plan: JoinPlan, earlier: Sequence[EarlierFilters]) -> JoinPlan:
    """The plan with which to read records: it drops none by a filter of a side that has changed."""
    changed = {
        side for side in SIDES for each in earlier if _has_changed(plan, f"{side}.filter", each)
    }

    def read_all(side: SidePlan) -> SidePlan:
        if OTHER_SIDE[side.side] in changed:
            side = replace(side, mirrored=())
        if side.side not in changed:
            return side
        return replace(side, filter=None, checks=replace(side.checks, filter=Condition()))

    return plan.with_sides(read_all)


class EarlierJudgement:
    """Evaluates filters on the rows that the readers have read."""

    def __init__(
        self,
        plan: JoinPlan,
        rows: SqlRows,
        readers: tuple[SideReader, SideReader],
        earlier: Sequence[EarlierFilters],
    ) -> None:
        """`earlier`: oldest first."""
        self._plan = plan
        self._rows = rows
        self._readers = readers
        self._earlier = earlier
        self._programs: dict[str, Program] = {}
        """By the SQL of a filter."""

    def of_side(
        self, side: Side, read: Sequence[tuple[DecodedRow, KeyRecord]]
    ) -> Iterator[tuple[DecodedRow, Decided]]:
        """What the filter of the side decided on the rows, if it has changed since some were
        read."""
        field = f"{side}.filter"
        if not any(_has_changed(self._plan, field, each) for each in self._earlier):
            return
        present = self._plan.side(side).filter
        for row, record in read:
            filters = self._read_with(side, record.partition, row.record.offset)
            if filters is not None and _has_changed(self._plan, field, filters):
                yield row, self._decided(filters, field, _pair(side, row))
            elif present is not None:
                passes = self._value(present.sql, _pair(side, row))
                text = f"{field} ({present.text})"
                yield row, Decided(passes is True, passes is None, text)

    def of_pair(self, left: DecodedRow, right: DecodedRow) -> Decided | None:
        """What output.filter decided on the pair. None: it is the same filter. The filter was that
        with which the later row was read."""
        for filters in self._earlier:
            if all(
                filters.has_read(side, row.record.partition_of_side, row.record.offset)
                for side, row in _sides(left, right)
            ):
                return self._of_result(filters, (left.number, right.number))
        return None

    def of_unmatched(self, row: DecodedRow, record: KeyRecord) -> Decided | None:
        """What output.filter decided on the row when it expired without a match."""
        until_ms = leaves_after_ms(self._plan, record.side, record.late_time_ms)
        for filters in self._earlier:
            is_read = filters.has_read(record.side, record.partition, row.record.offset)
            if is_read and until_ms is not None and until_ms < filters.watermark_ms:
                return self._of_result(filters, _pair(record.side, row))
        return None

    def _of_result(
        self, filters: EarlierFilters, pair: tuple[int | None, int | None]
    ) -> Decided | None:
        if not _has_changed(self._plan, _OUTPUT, filters):
            return None
        return self._decided(filters, _OUTPUT, pair)

    def _read_with(self, side: Side, partition: int, offset: int) -> EarlierFilters | None:
        """None: the present filters."""
        return next((f for f in self._earlier if f.has_read(side, partition, offset)), None)

    def _decided(
        self, filters: EarlierFilters, field: str, pair: tuple[int | None, int | None]
    ) -> Decided:
        before = filters.filters.get(field)
        changed = f"which was changed at {time_text(filters.until_ms)}"
        if before is None:
            return Decided(passes=True, is_null=False, text=f"{field}, {changed}")
        passes = self._value(before.sql, pair)
        return Decided(passes is True, passes is None, f"{field} ({before.text}), {changed}")

    def _value(self, sql: str, pair: tuple[int | None, int | None]) -> bool | None:
        left, right = self._readers
        if sql not in self._programs:
            step = [f"({sql}) AS passes"]
            programs = (left.program, right.program)
            self._programs[sql] = self._rows.program(programs, [step], ["passes"])
        stores = (left.store, right.store)
        [answer] = self._rows.run_pairs(self._programs[sql], [pair], stores)
        value: bool | None = answer["passes"]
        return value


def _has_changed(plan: JoinPlan, field: str, filters: EarlierFilters) -> bool:
    fields = {"left.filter": plan.left.filter, "right.filter": plan.right.filter}
    present = {**fields, _OUTPUT: plan.output.filter}[field]
    before = filters.filters.get(field)
    return (before and before.sql) != (present and present.sql)


def _pair(side: Side, row: DecodedRow) -> tuple[int | None, int | None]:
    return (row.number, None) if side == "left" else (None, row.number)


def _sides(left: DecodedRow, right: DecodedRow) -> tuple[tuple[Side, DecodedRow], ...]:
    return ("left", left), ("right", right)
