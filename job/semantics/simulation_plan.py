"""From a JoinPlan to the plan of the operator: reads the records, and splits the ON clause.

Follows dataflow.py and Spark's optimizer, in their order. A row that fails a filter before the join
is not counted as late; a row that fails a filter in the join is. Spark's own expressions run all
SQL (job/sql/rows.py).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from job.plan.deduplication import id_kept_after
from job.plan.plan import JoinPlan
from job.semantics.deduplication import DeduplicationPlan
from job.semantics.one_side_joiner import SideInput, SideRules
from job.semantics.operator import JoinOperatorPlan, Processor
from job.semantics.pick import PickPlan
from job.semantics.rows import MICROS_PER_MS, Key, Row
from job.semantics.simulated_output import SimulatedOutput
from job.semantics.simulated_pairs import PairCondition
from job.semantics.simulated_side import DecodedRow, SideReader
from job.semantics.table_join import AsOf, Place, TableJoinPlan
from job.semantics.topic_records import TopicRecords
from job.semantics.watermark_predicates import JoinCondition
from job.spec.durations import milliseconds
from job.spec.join_conditions import JoinOperator, JoinType
from job.spec.sides import OTHER_SIDE, SIDES, Side
from job.sql.rows import SqlRows

# The job runs an anti join as an outer join, and keeps the unmatched rows.
_OUTER_JOIN = {
    JoinType.LEFT_ANTI: JoinType.LEFT_OUTER,
    JoinType.RIGHT_ANTI: JoinType.RIGHT_OUTER,
}


class NotExactError(ValueError):
    """A part of the plan cannot be simulated. The message names it."""


@dataclass(frozen=True)
class SimulatedSide:
    reader: SideReader
    passes_job_filters: Callable[[DecodedRow], bool]
    """Filters of the job before the join: null keys, and mirrored filters of the other side
    (plan.mirrored)."""
    enters_join: Callable[[DecodedRow], bool]
    """Filters that Spark moves below the join: null keys and one-sided conditions of an inner
    side."""


@dataclass(frozen=True)
class SimulationPlan:
    join: JoinPlan
    left: SimulatedSide
    right: SimulatedSide
    operator: JoinOperatorPlan | TableJoinPlan | PickPlan
    pairs: PairCondition
    output: SimulatedOutput
    deduplication: Mapping[Side, DeduplicationPlan]
    """Plans of the deduplicated sides."""

    def close(self) -> None:
        for side in SIDES:
            self.side(side).reader.close()

    def side(self, side: Side) -> SimulatedSide:
        return self.left if side == "left" else self.right


def simulation_plan(
    plan: JoinPlan,
    rows: SqlRows,
    *,
    processor: Processor | None = None,
    topics: TopicRecords | None = None,
) -> SimulationPlan:
    """`processor`: None, in a plan with the operator streamjoin, is "batch". `topics`: as of
    SideReader.

    Raises NotExactError for a part of the plan that cannot be simulated.
    """
    if processor is None and plan.operator is JoinOperator.STREAMJOIN:
        processor = "batch"
    return _Planner(plan, rows).plan(processor, topics)


class _Planner:
    def __init__(self, plan: JoinPlan, rows: SqlRows) -> None:
        self._plan = plan
        self._rows = rows
        for side in SIDES:
            if plan.side(side).idle_after is not None:
                raise NotExactError(f"{side}.idle_after, which follows the clock")
        self._join_type = _OUTER_JOIN.get(plan.join_type, plan.join_type)

    def plan(self, processor: Processor | None, topics: TopicRecords | None) -> SimulationPlan:
        readers = {side: SideReader(self._plan, side, self._rows, topics=topics) for side in SIDES}
        sides = {side: self._side(side, readers[side]) for side in SIDES}
        inputs = {side: self._side_input(side) for side in SIDES}
        of = (readers["left"], readers["right"])
        pairs = PairCondition(self._plan, of, self._rows)
        operator = self._operator(inputs, pairs, processor)
        return SimulationPlan(
            self._plan,
            sides["left"],
            sides["right"],
            operator,
            pairs,
            SimulatedOutput(self._plan, of, self._rows),
            {side: self._deduplication(side, inputs[side]) for side in self._plan.deduplicated},
        )

    def _operator(
        self, inputs: Mapping[Side, SideInput], pairs: PairCondition, processor: Processor | None
    ) -> JoinOperatorPlan | TableJoinPlan | PickPlan:
        table, pick = self._plan.table_side, self._plan.pick
        if table is not None:
            return TableJoinPlan(
                *(self._join_type, table, inputs["left"], inputs["right"]),
                *(pairs.is_met, _place_of, _deletes),
                as_of=self._as_of(table),
                waits_ms=self._waits_ms(table),
                processor=processor or "batch",
            )
        if pick is not None:
            window = self._plan.match_window
            assert window is not None, "the spec requires it"
            assert window.before is not None, "the state is bounded"
            assert window.after is not None, "the state is bounded"
            return PickPlan(
                *(self._join_type, inputs["left"], inputs["right"], pairs.is_met, _place_of, pick),
                *(milliseconds(window.before), milliseconds(window.after), processor or "batch"),
            )
        return self._of_streams(inputs, pairs, processor)

    def _waits_ms(self, table: Side) -> int | None:
        is_over = not self._plan.stream_waits or self._plan.is_final
        retention = self._plan.side(OTHER_SIDE[table]).retention
        return None if is_over or retention is None else milliseconds(retention)

    def _as_of(self, side: Side) -> AsOf | None:
        table, stream = self._plan.table, self._plan.side(OTHER_SIDE[side])
        if table is None or not table.is_as_of:
            return None
        delay, retention, wait = (
            None if time is None else milliseconds(time)
            for time in (
                self._plan.side(side).watermark_delay,
                table.retention,
                stream.retention if table.is_final else None,
            )
        )
        return AsOf(
            (delay or 0) * MICROS_PER_MS,
            None if retention is None else retention * MICROS_PER_MS,
            table.takes_first,
            wait,
        )

    def _of_streams(
        self, inputs: Mapping[Side, SideInput], pairs: PairCondition, processor: Processor | None
    ) -> JoinOperatorPlan:
        has_time_in_key = self._plan.window is not None or self._plan.event_time_in_key
        return JoinOperatorPlan(
            join_type=self._join_type,
            left=inputs["left"],
            right=inputs["right"],
            condition=self._condition(),
            post_join_filter=pairs.is_met,
            key_time=self._key_time() if has_time_in_key else _no_time,
            processor=processor,
        )

    def _side(self, side: Side, reader: SideReader) -> SimulatedSide:
        padded = SideRules(side, self._join_type).null_pads_unmatched
        nulls_pass = self._plan.null_keys_pass

        def passes_job_filters(row: DecodedRow) -> bool:
            return row.passes_mirrored and (nulls_pass or not row.has_null_key)

        def enters_join(row: DecodedRow) -> bool:
            return padded or (row.passes_one_sided and not row.has_unequal_null)

        return SimulatedSide(reader, passes_job_filters, enters_join)

    def _deduplication(self, side: Side, joined: SideInput) -> DeduplicationPlan:
        deduplication = self._plan.side(side).deduplication
        assert deduplication is not None, "the caller passes a deduplicated side"

        def id_of(row: Row) -> Key | None:
            assert isinstance(row, DecodedRow)
            return (*joined.key(row), "id", *row.row_id) if row.row_id else None

        within, kept = (
            milliseconds(time) * MICROS_PER_MS
            for time in (deduplication.within, id_kept_after(self._plan, deduplication))
        )
        return DeduplicationPlan(id_of, _event_time_of, _late_time, within, kept)

    def _side_input(self, side: Side) -> SideInput:
        padded = SideRules(side, self._join_type).null_pads_unmatched

        def pre_join_filter(row: Row) -> bool:
            assert isinstance(row, DecodedRow)
            # ON of the plan requires keys compared with `=` to be not null, so a row with a null
            # key is emitted at once, and not stored.
            return not row.has_unequal_null and (row.passes_one_sided or not padded)

        return SideInput(self._key(side), _late_time_of, pre_join_filter)

    def _key(self, side: Side) -> Callable[[Row], Key]:
        timed = None if not self._plan.event_time_in_key else self._watermark_ordinal()
        windowed = self._plan.window is not None

        def key(row: Row) -> Key:
            assert isinstance(row, DecodedRow)
            values = list(row.key)
            if timed is not None:
                values[timed] = row.event_time_us
            if windowed:
                values.append(row.late_time_us)
            if row.has_unequal_null:
                # Equal to null keys of the same side, so that the state counts are those of Spark,
                # and to no key of the other side: null = null is not true.
                values.append(f"null key of {side}")
            return tuple(values)

        return key

    def _key_time(self) -> Callable[[Key], int | None]:
        """The part of the key that carries the watermark."""
        ordinal = self._watermark_ordinal()

        def key_time(key: Key) -> int | None:
            value = key[ordinal]
            return value if isinstance(value, int) else None

        return key_time

    def _watermark_ordinal(self) -> int:
        if self._plan.window is not None:
            return len(self._plan.left.key)
        column = self._plan.left.event_time_column
        return [part.sql for part in self._plan.left.key].index(f"`{column}`")

    def _condition(self) -> JoinCondition:
        if self._plan.window is not None or self._plan.event_time_in_key:
            return JoinCondition(has_time_in_key=True)
        window = self._plan.match_window
        if window is None:
            return JoinCondition()
        before, after = (
            None if bound is None else milliseconds(bound)
            for bound in (window.before, window.after)
        )
        return JoinCondition(before_ms=before, after_ms=after)


def _late_time_of(row: Row) -> int | None:
    return row.late_time_us if isinstance(row, DecodedRow) else None


def _late_time(row: Row) -> int:
    assert isinstance(row, DecodedRow)
    return row.late_time_us


def _event_time_of(row: Row) -> int:
    assert isinstance(row, DecodedRow)
    return row.event_time_us


def _place_of(row: Row) -> Place:
    assert isinstance(row, DecodedRow)
    return row.record.partition_of_side, row.record.offset


def _deletes(row: Row) -> bool:
    assert isinstance(row, DecodedRow)
    return row.deletes_key


def _no_time(_: Key) -> int | None:
    return None
