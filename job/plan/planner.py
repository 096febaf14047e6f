"""Creates the JoinPlan of a spec, and reports all problems beyond the types of single fields.

No broker, no registry, no clock, no environment. Spark reads the SQL (job/sql).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from job.errors import SpecError
from job.formats.schemas import Part, ReaderSchema
from job.plan import join_operator, real_time, tuning
from job.plan.checks import result_checks, side_checks
from job.plan.deduplication import deduplication_problems
from job.plan.keys import key_problems
from job.plan.mirrored import mirrored_filters
from job.plan.output_planner import output_plan
from job.plan.plan import DeadLetterPlan, JoinPlan, subscription
from job.plan.problems import Problems, optional
from job.plan.retention import check_state_is_bounded, longest_retention
from job.plan.side_columns import SideColumns, event_time, schema_of_side, side_columns
from job.plan.side_filter import fields_read, side_filter
from job.plan.side_plan import Deduplication, SidePlan
from job.plan.tables import has_table, table_plan
from job.spec.csv import CsvSpec
from job.spec.expressions import (
    Expression,
    Scope,
    condition,
    expression,
)
from job.spec.side_spec import SideSpec
from job.spec.sides import SIDES, Side
from job.spec.spec import JoinSpec
from job.spec.start_positions import start_options
from job.spec.value_format import Operation
from job.spec.windows import TumblingWindow
from job.sql.questions import SqlError, SqlQuestions
from job.sql.time_zones import UTC
from job.sql.types import SqlType

Zoned = TypeVar("Zoned", SideSpec, TumblingWindow)


def join_plan(
    spec: JoinSpec,
    sql: SqlQuestions,
    *,
    state_partitions: int,
    readers: Mapping[Part, ReaderSchema] | None = None,
) -> JoinPlan:
    """The plan of `spec`. SpecError with all problems.

    `sql` reads the expressions and the schemas.
    `state_partitions`: number of partitions of the join state, frozen by the checkpoint.
    `readers`: schemas from the registry. Values without one need `schema` in the spec, and keys
    `key_schema`.
    """
    problems = Problems()
    problems.found.extend(join_operator.unsupported(spec))
    problems.found.extend(real_time.unsupported(spec))
    readers = readers or {}
    null_safe = _null_safe(problems, spec)
    spec = _with_known_time_zones(problems, spec, sql)
    columns = _columns(problems, spec, readers, sql)
    sides = {
        side: _side_plan(problems, spec, side, of_side, readers, sql)
        for side, of_side in columns.items()
    }
    in_key = _event_time_in_key(spec, sides)
    if not has_table(spec):
        check_state_is_bounded(problems, spec, in_key)
    if len(columns) < len(SIDES):  # the other expressions cannot be checked without the columns
        raise SpecError(problems.found)

    scope = Scope(sql, {side: columns[side].usable for side in SIDES})
    left, right = (
        replace(sides[side], retention=longest_retention(spec, side, in_key, sql)) for side in SIDES
    )
    on = optional(problems, condition, spec.join.condition, scope, "join.condition")
    output = output_plan(problems, spec, scope)

    plan = JoinPlan(
        name=spec.name,
        join_type=spec.join.type,
        left=left,
        right=right,
        null_safe=null_safe,
        match_window=spec.join.match_window,
        window=spec.join.tumbling_window,
        event_time_in_key=in_key,
        condition=on,
        output=output,
        bootstrap_servers=spec.kafka.bootstrap_servers,
        security=spec.kafka.security,
        schema_registry=spec.schema_registry,
        checkpoint=spec.checkpoint,
        state_partitions=state_partitions,
        pick=spec.join.pick,
        null_keys_pass=spec.on_null_key == "pass",
        dead_letter=_dead_letter_plan(spec),
        fails_on_bad_records=spec.on_bad_record == "fail",
        operator=join_operator.operator_of(spec),
        chooses_operator=spec.join.operator is not None,
        real_time=real_time.real_time_plan(spec),
    )
    plan = _with_checks(plan)
    if len(left.key) == len(right.key) == len(spec.left.key):
        problems.found.extend(key_problems(plan, scope))
    problems.found.extend(deduplication_problems(plan))
    _check_semi_condition(problems, plan)
    if problems.found:
        raise SpecError(problems.found)
    return replace(
        plan,
        key_types=_key_types(plan, scope),
        left=_completed(plan, plan.left, scope),
        right=_completed(plan, plan.right, scope),
    )


def _side_spec(spec: JoinSpec, side: Side) -> SideSpec:
    return spec.left if side == "left" else spec.right


def _columns(
    problems: Problems,
    spec: JoinSpec,
    readers: Mapping[Part, ReaderSchema],
    sql: SqlQuestions,
) -> dict[Side, SideColumns]:
    """Columns by side, of the sides whose schema is valid."""
    written = {side: _side_spec(spec, side) for side in SIDES}
    schemas = {
        side: problems.of(
            partial(schema_of_side, written[side], side, readers.get(Part(side)), sql)
        )
        for side in SIDES
    }
    return {
        side: side_columns(
            problems, written[side], side, schema, readers.get(Part(side, "key")), sql
        )
        for side, schema in schemas.items()
        if schema is not None
    }


def _side_plan(
    problems: Problems,
    spec: JoinSpec,
    side: Side,
    columns: SideColumns,
    readers: Mapping[Part, ReaderSchema],
    sql: SqlQuestions,
) -> SidePlan:
    """Without what has a problem: then the plan is not used."""
    written = _side_spec(spec, side)
    scope = Scope(sql, {side: columns.usable}, bare=side, time_zone=written.time_zone)
    key = [
        problems.of(partial(expression, text, scope, f"{side}.key[{index}]"))
        for index, text in enumerate(written.key)
    ]
    row_filter = side_filter(problems, written, side, scope)
    deduplicate = written.deduplicate
    by = [
        problems.of(partial(expression, text, scope, f"{side}.deduplicate.by[{index}]"))
        for index, text in enumerate(deduplicate.by if deduplicate else ())
    ]
    time = problems.of(
        partial(event_time, written.event_time, side, columns, sql, written.time_zone)
    )
    event_time_name, of_event_time = time or (written.event_time, None)
    all_computed = columns.computed if of_event_time is None else (*columns.computed, of_event_time)
    used = [*key, row_filter, *by, *(each.value for each in all_computed)]
    return SidePlan(
        side=side,
        topics=written.source_topics,
        format=written.format,
        subject=written.registry_subject,
        reader=readers.get(Part(side)),
        schema=columns.schema,
        envelope=written.envelope,
        reads_snapshots=written.envelope is not None
        and written.table is None
        and Operation.READ in written.read_operations,
        drops_tombstones=written.drops_tombstones,
        csv=written.csv or CsvSpec(),
        key_format=written.key_format,
        key_subject=written.key_registry_subject,
        key_reader=readers.get(Part(side, "key")),
        record_key=columns.record[0],
        key=tuple(part for part in key if part is not None),
        null_checked=_null_checked(spec),
        computed=all_computed,
        event_time=event_time_name,
        event_time_text=event_time_name if of_event_time is None else written.event_time,
        time_zone=written.time_zone,
        watermark_delay=written.watermark_delay,
        min_event_time=written.min_event_time,
        max_event_time_ahead=written.max_event_time_ahead,
        idle_after=written.idle_after,
        expected_rate=written.expected_rate,
        filter=row_filter,
        filter_columns=fields_read(row_filter, side, columns.schema, scope),
        retention=None,
        kept_columns=(),
        reads_headers=_mentions_headers(used),
        source_options=_source_options(spec, written),
        table=table_plan(problems, written, side, scope),
        deduplication=None
        if deduplicate is None or None in by
        else Deduplication(tuple(part for part in by if part is not None), deduplicate.within),
    )


def _event_time_in_key(spec: JoinSpec, sides: Mapping[Side, SidePlan]) -> bool:
    """Whether the event times of both sides are a pair of the key."""
    if len(sides) < len(SIDES):  # the columns of a side are not known
        texts = (spec.left.event_time, spec.right.event_time)
        return texts in zip(spec.left.key, spec.right.key, strict=True)
    times = tuple(f"`{sides[side].event_time_column}`" for side in SIDES)
    pairs = zip(sides["left"].key, sides["right"].key, strict=False)
    return any((left.sql, right.sql) == times for left, right in pairs)


def _null_safe(problems: Problems, spec: JoinSpec) -> tuple[bool, ...]:
    """Per pair of keys: whether a null matches a null."""
    written, pairs = spec.join.null_safe, len(spec.left.key)
    if isinstance(written, bool):
        return (written,) * pairs
    if len(written) != pairs:
        shown = f"[{', '.join(str(each).lower() for each in written)}]"
        message = f"has {len(written)} entries and the keys have {pairs}: write one for each pair"
        problems.add("join.null_safe", shown, message)
    return written


def _null_checked(spec: JoinSpec) -> tuple[int, ...]:
    """Indexes of the parts of a key whose nulls are counted, and handled by on_null_key."""
    written = spec.join.null_safe
    if isinstance(written, bool):
        return tuple(range(len(spec.left.key)))
    return tuple(index for index, null_safe in enumerate(written) if not null_safe)


def _source_options(spec: JoinSpec, side: SideSpec) -> Mapping[str, str]:
    topics = side.source_topics
    source = {"kafka.bootstrap.servers": spec.kafka.bootstrap_servers, **subscription(topics)}
    if side.table is None:
        return {**source, **start_options(spec.start_from, topics), **tuning.SOURCE_OPTIONS}
    return {**source, **start_options("earliest", topics), **tuning.TABLE_SOURCE_OPTIONS}


def _dead_letter_plan(spec: JoinSpec) -> DeadLetterPlan | None:
    if spec.dead_letter is None:
        return None
    return DeadLetterPlan(
        topic=spec.dead_letter.topic,
        takes_null_keys=spec.on_null_key == "dead_letter",
        takes_late_rows=spec.on_late_row == "dead_letter",
    )


def _with_known_time_zones(problems: Problems, spec: JoinSpec, sql: SqlQuestions) -> JoinSpec:
    """With UTC in place of unknown ones, so that the expressions can be checked."""

    def with_known(field: str, written: Zoned) -> Zoned:
        try:
            sql.check_time_zone(written.time_zone)
        except SqlError as error:
            problems.add(f"{field}.time_zone", written.time_zone, str(error))
            return written.model_copy(update={"time_zone": UTC})
        return written

    sides: dict[str, Any] = {side: with_known(side, _side_spec(spec, side)) for side in SIDES}
    window = spec.join.window
    if isinstance(window, TumblingWindow):
        window = with_known("join.window", window)
    return spec.model_copy(
        update={**sides, "join": spec.join.model_copy(update={"window": window})}
    )


def _check_semi_condition(problems: Problems, plan: JoinPlan) -> None:
    """A failing pair becomes a dead letter after the join, and a semi join emits no pairs. A join
    that picks would pick it."""
    failing = plan.checks.condition
    kind = f"{plan.join_type} join" if plan.pick is None else "join with pick"
    if (plan.join_type.semi_side is not None or plan.pick is not None) and failing is not None:
        problems.add(
            "join.condition",
            failing.text,
            "can fail on a pair of records (a cast, a division, an overflow), and a "
            f"{kind} cannot report the pair: write it so that it cannot fail, e.g. "
            "with try_cast or on DOUBLE columns",
        )


def _with_checks(plan: JoinPlan) -> JoinPlan:
    left, right = (
        replace(
            side,
            checks=side_checks(
                side.side,
                (column.value for column in side.computed),
                side.key,
                side.filter,
                plan.condition,
            ),
        )
        for side in (plan.left, plan.right)
    )
    output = plan.output
    checks = result_checks(
        plan.condition,
        output.filter,
        output.columns,
        output.headers,
        output.key,
        output.partition_by,
    )
    return replace(plan, left=left, right=right, checks=checks)


def _key_types(plan: JoinPlan, scope: Scope) -> tuple[SqlType, ...]:
    """The types in which Spark compares the parts of both keys."""
    return tuple(
        left.type
        if left.type == right.type
        else scope.sql.analysis(f"coalesce({left.sql}, {right.sql})", scope.columns).type
        for left, right in zip(plan.left.key, plan.right.key, strict=True)
    )


def _completed(plan: JoinPlan, side: SidePlan, scope: Scope) -> SidePlan:
    """`side` with the filters of the other side, and the columns that expressions after the side
    filter use."""
    output = plan.output
    record = [output.key, output.partition_by, output.filter]
    shown = [*output.columns.values(), *output.headers.values(), *record]
    used = {
        name
        for part in [*side.key, plan.condition, *shown]
        if part is not None
        for mentioned, name in part.columns
        if mentioned == side.side
    } | {side.event_time}
    columns = (*side.columns, *side.record_columns)
    return replace(
        side,
        mirrored=mirrored_filters(plan, side.side, scope),
        kept_columns=tuple(column for column in columns if column.name in used),
        reads_headers=side.reads_headers or "record_headers" in used,
    )


def _mentions_headers(parts: Iterable[Expression | None]) -> bool:
    return any(name == "record_headers" for part in parts if part for _, name in part.columns)
