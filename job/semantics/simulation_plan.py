"""From a JoinPlan to the plan of the operator: compiles the SQL and splits the ON clause.

Follows dataflow.py and Spark's optimizer, in their order. A row that fails a filter before the join
is not counted as late; a row that fails a filter in the join is.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from job.evaluation.compiled import Compiled, Env, Run
from job.evaluation.evaluator import Layout, compile_expression
from job.evaluation.sql_types import NotExactError, Value
from job.join_spec.durations import milliseconds
from job.join_spec.join_conditions import JoinType
from job.join_spec.sides import SIDES, Side
from job.plan.mirrored import mirrored_filters
from job.plan.plan import JoinPlan, window_end_column
from job.semantics.deduplication import DeduplicationPlan
from job.semantics.json_records import DecodedRow, RecordDecoder
from job.semantics.one_side_joiner import SideInput, SideRules
from job.semantics.operator import JoinOperatorPlan, Processor
from job.semantics.rows import MICROS_PER_MS, JoinedRow, Key, Row, key_of
from job.semantics.simulated_output import (
    Predicate,
    SimulatedOutput,
    conjunction,
    fails,
    in_parts,
    simulated_output,
)
from job.semantics.state_manager import StateFormatVersion
from job.semantics.watermark_predicates import JoinCondition

# The job runs an anti join as an outer join, and keeps the unmatched rows.
_OUTER_JOIN = {
    JoinType.LEFT_ANTI: JoinType.LEFT_OUTER,
    JoinType.RIGHT_ANTI: JoinType.RIGHT_OUTER,
}


@dataclass(frozen=True)
class SimulatedSide:
    decoder: RecordDecoder
    failed_field: Callable[[DecodedRow], str | None]
    """The field of the spec that fails on the row, a bad record then. None: no field fails."""
    passes_filter: Callable[[DecodedRow], bool]
    """The filter of the side."""
    passes_job_filters: Callable[[DecodedRow], bool]
    """Filters of the job before deduplication: null keys, and mirrored filters of the other side
    (plan.mirrored)."""
    enters_join: Callable[[DecodedRow], bool]
    """Filters that Spark moves below the join: null keys and one-sided conditions of an inner
    side."""
    has_null_key: Callable[[DecodedRow], bool]
    late_time_us: Callable[[int], int]
    """The event time, or the end of its tumbling window."""


@dataclass(frozen=True)
class SimulationPlan:
    join: JoinPlan
    left: SimulatedSide
    right: SimulatedSide
    operator: JoinOperatorPlan
    output: SimulatedOutput
    env: Callable[[JoinedRow], Env]
    deduplication: Mapping[Side, DeduplicationPlan]
    """Plans of the deduplicated sides."""

    def side(self, side: Side) -> SimulatedSide:
        return self.left if side == "left" else self.right


def simulation_plan(
    plan: JoinPlan,
    *,
    state_format_version: StateFormatVersion = 4,
    processor: Processor | None = None,
) -> SimulationPlan:
    """Raises NotExactError for a part of the plan that cannot be evaluated exactly as in Spark."""
    return _Planner(plan).plan(state_format_version, processor=processor)


class _Planner:
    def __init__(self, plan: JoinPlan) -> None:
        self._plan = plan
        for side in SIDES:
            if plan.side(side).idle_after is not None:
                raise NotExactError(f"{side}.idle_after, which follows the clock")
        self._decoders = {side: RecordDecoder(plan.side(side)) for side in SIDES}
        self._layout = _layout(self._decoders)
        self._widths = {side: len(decoder.columns) for side, decoder in self._decoders.items()}
        self._join_type = _OUTER_JOIN.get(plan.join_type, plan.join_type)
        condition = plan.condition.conjuncts if plan.condition else ()
        self._conjuncts = [part.tree for part in condition]
        self._key_parts = self._spec_key_parts()

    def _spec_key_parts(self) -> list["_KeyPart"]:
        plan = self._plan
        return [
            self._key_part(_equality(left.tree, right.tree, null_safe=null_safe))
            for left, right, null_safe in zip(
                plan.left.key, plan.right.key, plan.null_safe, strict=True
            )
        ]

    def _key_part(self, equality: exp.Binary) -> "_KeyPart":
        trees = (equality.left, equality.right)
        of_left, of_right = trees if _sides(equality.left) == {"left"} else trees[::-1]
        kind = compile_expression(equality, self._layout)  # both operands in their common type
        assert kind.type.name == "BOOLEAN"
        part = _KeyPart(
            compile_expression(of_left, self._layout),
            compile_expression(of_right, self._layout),
            isinstance(equality, exp.NullSafeEQ),
        )
        if not part.left.type.is_orderable:
            raise NotExactError(f"the key {of_left.sql('spark')}, a {part.left.type}")
        return part

    def plan(
        self, state_format_version: StateFormatVersion, processor: Processor | None
    ) -> SimulationPlan:
        sides = {side: self._side(side) for side in SIDES}
        inputs = {side: self._side_input(side) for side in SIDES}
        has_window = self._plan.window is not None
        operator = JoinOperatorPlan(
            join_type=self._join_type,
            left=inputs["left"],
            right=inputs["right"],
            condition=self._condition(),
            post_join_filter=self._post_join_filter(),
            key_time=self._key_time() if has_window or self._plan.event_time_in_key else _no_time,
            state_format_version=state_format_version,
            processor=processor,
        )
        output = simulated_output(self._plan, self._layout, self._env)
        return SimulationPlan(
            self._plan,
            sides["left"],
            sides["right"],
            operator,
            output,
            self._env,
            {side: self._deduplication(side, sides[side]) for side in self._plan.deduplicated},
        )

    def _env(self, row: JoinedRow) -> Env:
        left, right = (self._values(side, value) for side, value in zip(SIDES, row, strict=True))
        return left + right

    def _values(self, side: Side, row: Row | None) -> tuple[Value, ...]:
        return row.values if isinstance(row, DecodedRow) else (None,) * self._widths[side]

    def _alone(self, side: Side, row: Row) -> Env:
        return self._env(JoinedRow(row, None) if side == "left" else JoinedRow(None, row))

    def _side(self, side: Side) -> SimulatedSide:
        plan = self._plan.side(side)
        keep = in_parts(self._layout, plan.checks.filter)
        parts = [compile_expression(part.tree, self._layout) for part in plan.key]
        checked = [parts[index] for index in plan.null_checked]
        never_null = [
            part for part, safe in zip(parts, self._plan.null_safe, strict=True) if not safe
        ]
        padded = SideRules(side, self._join_type).null_pads_unmatched
        mirrored = conjunction(
            self._layout, [part.tree for part in mirrored_filters(self._plan, side)]
        )
        before_join = conjunction(self._layout, [] if padded else self._one_sided(side))
        not_null = [] if self._plan.null_keys_pass else checked
        required = [] if padded else never_null

        def has_null(row: DecodedRow, parts: Sequence[Compiled]) -> bool:
            env = self._alone(side, row)
            # A key that can fail is not evaluated on a row that the filter drops.
            evaluated = not plan.checks.keys or keep(env)
            return evaluated and any(part.run(env) is None for part in parts)

        def passes_job_filters(row: DecodedRow) -> bool:
            return not has_null(row, not_null) and mirrored(self._alone(side, row))

        def enters_join(row: DecodedRow) -> bool:
            return not has_null(row, required) and before_join(self._alone(side, row))

        return SimulatedSide(
            self._decoders[side],
            self._failed_field(side, keep, parts),
            lambda row: keep(self._alone(side, row)),
            passes_job_filters,
            enters_join,
            lambda row: has_null(row, checked),
            self._late_time,
        )

    def _deduplication(self, side: Side, simulated: SimulatedSide) -> DeduplicationPlan:
        deduplication = self._plan.side(side).deduplication
        assert deduplication is not None, "the caller passes a deduplicated side"
        parts = [compile_expression(part.tree, self._layout) for part in deduplication.by]

        def id_of(row: Row) -> Key:
            assert isinstance(row, DecodedRow)
            env, record = self._alone(side, row), row.record
            values = tuple(part.run(env) for part in parts)
            # As in the last column of plan.deduplication.id_columns: it is never a duplicate.
            place = (record.partition_of_side, record.offset) if None in values else None
            return (*values, place)

        def enters_join(row: Row) -> bool:
            assert isinstance(row, DecodedRow)
            return simulated.enters_join(row)

        within_us = milliseconds(deduplication.within) * MICROS_PER_MS
        return DeduplicationPlan(id_of, _late_time_of, within_us, enters_join)

    def _failed_field(
        self, side: Side, keep: Predicate, key: Sequence[Compiled]
    ) -> Callable[[DecodedRow], str | None]:
        """Checks the fields in the order in which Spark evaluates them on a record."""
        checks = self._plan.side(side).checks
        condition = [checks.condition.tree] if checks.condition else []
        runs: list[tuple[str, Run]] = [
            *((f"{side}.key[{index}]", key[index].run) for index in checks.keys),
            *(("join.condition", conjunction(self._layout, [tree])) for tree in condition),
        ]

        def failed_field(row: DecodedRow) -> str | None:
            env = self._alone(side, row)
            if checks.filter.failing is not None and fails(keep, env):
                return f"{side}.filter"
            if not runs or not keep(env):
                return None
            return next((field for field, run in runs if fails(run, env)), None)

        return failed_field

    def _late_time(self, event_time_us: int) -> int:
        if self._plan.window is None:
            return event_time_us
        return self._plan.window.end_ms(event_time_us // 1000) * 1000

    def _side_input(self, side: Side) -> SideInput:
        padded = SideRules(side, self._join_type).null_pads_unmatched
        keep = conjunction(self._layout, self._one_sided(side) if padded else [])
        # ON of the plan requires keys compared with `=` to be not null, so a row with a null key is
        # emitted at once, and not stored.
        never_null = [part.of(side) for part in self._key_parts if not part.null_safe]

        def pre_join_filter(row: Row) -> bool:
            env = self._alone(side, row)
            return keep(env) and all(part.run(env) is not None for part in never_null)

        return SideInput(self._key(side), _late_time_of, pre_join_filter)

    def _key(self, side: Side) -> Callable[[Row], Key]:
        parts = [(part.of(side), part.null_safe) for part in self._key_parts]
        windowed = self._plan.window is not None

        def key(row: Row) -> Key:
            env = self._alone(side, row)
            values = tuple(part.run(env) for part, _ in parts)
            never_matches = any(
                value is None and not null_safe
                for value, (_, null_safe) in zip(values, parts, strict=True)
            )
            if windowed:
                values = (*values, _late_time_of(row))
            if never_matches:
                # Equal to null keys of the same side, so that the state counts are those of Spark,
                # and to no key of the other side: null = null is not true.
                values = (*values, f"null key of {side}")
            return key_of(values)

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
            return len(self._key_parts)
        column = self._plan.left.event_time_column
        return [part.sql for part in self._plan.left.key].index(f"`{column}`")

    def _condition(self) -> JoinCondition:
        if self._plan.window is not None:
            names: dict[Side, str] = {side: window_end_column(side) for side in SIDES}
            return JoinCondition(names, dict.fromkeys(SIDES, self._watermark_ordinal()))
        names = {side: self._plan.side(side).event_time for side in SIDES}
        if self._plan.event_time_in_key:
            return JoinCondition(names, dict.fromkeys(SIDES, self._watermark_ordinal()))
        return JoinCondition(names, {}, self._window_conjuncts())

    def _window_conjuncts(self) -> list[exp.Expr]:
        """left - before <= right <= left + after, as in ON of the plan.

        The condition of the spec bounds no state, because the plan hides its comparisons from
        Spark.
        """
        window = self._plan.match_window
        if window is None:
            return []
        left, right = (
            exp.column(exp.to_identifier(self._plan.side(side).event_time, quoted=True), side)
            for side in SIDES
        )
        conjuncts: list[exp.Expr] = []
        if window.before is not None:
            low = exp.Sub(this=left.copy(), expression=_interval(milliseconds(window.before)))
            conjuncts.append(exp.GTE(this=right.copy(), expression=low))
        if window.after is not None:
            high = exp.Add(this=left.copy(), expression=_interval(milliseconds(window.after)))
            conjuncts.append(exp.LTE(this=right.copy(), expression=high))
        return conjuncts

    def _post_join_filter(self) -> Callable[[JoinedRow], bool]:
        one_sided = [conjunct for side in SIDES for conjunct in self._one_sided(side)]
        failing = self._plan.checks.condition
        tried = {part.sql for part in failing.conjuncts} if failing else set()
        both = [
            part.tree
            for part in (self._plan.condition.conjuncts if self._plan.condition else ())
            if part.sql not in tried and not any(part.tree is other for other in one_sided)
        ]
        keep = conjunction(self._layout, [*self._window_conjuncts(), *both])
        matches = conjunction(self._layout, [failing.tree] if failing else [])

        def matches_or_fails(row: JoinedRow) -> bool:
            """True also if the condition fails: such a pair passes the join but is not a result."""
            env = self._env(row)
            return keep(env) and (fails(matches, env) or matches(env))

        return matches_or_fails

    def _one_sided(self, side: Side) -> list[exp.Expr]:
        """The conjuncts of the condition with columns of no other side."""
        return [c for c in self._conjuncts if _sides(c) <= {side}]


@dataclass(frozen=True)
class _KeyPart:
    """A pair of key expressions that must be equal for two rows to match."""

    left: Compiled
    right: Compiled
    null_safe: bool

    def of(self, side: Side) -> Compiled:
        return self.left if side == "left" else self.right


def _equality(left: exp.Expr, right: exp.Expr, *, null_safe: bool) -> exp.Binary:
    kind = exp.NullSafeEQ if null_safe else exp.EQ
    return kind(this=left.copy(), expression=right.copy())


def _layout(decoders: dict[Side, RecordDecoder]) -> Layout:
    columns = [(side, *column) for side in SIDES for column in decoders[side].columns]
    return {(side, name): (index, kind) for index, (side, name, kind) in enumerate(columns)}


def _sides(tree: exp.Expr) -> set[str]:
    return {column.table for column in tree.find_all(exp.Column)}


def _interval(millis: int) -> exp.Expr:
    tree = sqlglot.parse_one(f"INTERVAL '{abs(millis)}' MILLISECONDS", dialect="spark")
    return exp.Neg(this=tree) if millis < 0 else tree


def _late_time_of(row: Row) -> int | None:
    return row.late_time_us if isinstance(row, DecodedRow) else None


def _no_time(_: Key) -> int | None:
    return None
