"""Creates the JoinPlan of a spec, and reports all problems beyond the types of single fields.

No broker, no registry, no clock, no environment. Spark reads the SQL (job/sql).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial

from job.errors import Problem, SpecError
from job.formats.schemas import ReaderSchema
from job.plan import tuning
from job.plan.checks import result_checks, side_checks
from job.plan.deduplication import deduplication_problems
from job.plan.keys import key_problems
from job.plan.mirrored import mirrored_filters
from job.plan.output_planner import output_plan
from job.plan.plan import (
    DeadLetterPlan,
    Deduplication,
    JoinPlan,
    SidePlan,
    subscription,
)
from job.plan.problems import Problems, optional
from job.plan.real_time import real_time_plan, unsupported
from job.spec.expressions import Expression, Scope, condition, expression, predicate
from job.spec.join_conditions import JoinType
from job.spec.side_spec import SideSpec
from job.spec.sides import SIDES, Side
from job.spec.spec import JoinSpec
from job.spec.start_positions import start_options
from job.spec.value_schema import (
    RECORD_COLUMN_NAMES,
    RECORD_COLUMNS,
    ValueSchema,
    refuse_other_keys,
    value_schema,
)
from job.sql.questions import SqlQuestions
from job.sql.types import TIMESTAMP, SqlType

_NO_STATE_BOUND = (
    "has no bound on event time, so the state would grow indefinitely: set before and after of "
    "join.match_window, set join.window, or put both event times into the key"
)


def join_plan(
    spec: JoinSpec,
    sql: SqlQuestions,
    *,
    state_partitions: int,
    readers: Mapping[Side, ReaderSchema] | None = None,
) -> JoinPlan:
    """The plan of `spec`. SpecError with all problems.

    `sql` reads the expressions and the schemas.
    `state_partitions`: number of partitions of the join state, frozen by the checkpoint.
    `readers`: schemas from the registry, by side. Other sides need `schema` in the spec.
    """
    problems = Problems()
    problems.found.extend(unsupported(spec))
    readers = readers or {}
    null_safe = _null_safe(problems, spec)
    _check_state_is_bounded(problems, spec)
    schemas = _schemas(problems, spec, readers, sql)
    sides = {
        side: _side_plan(problems, spec, side, schema, readers.get(side), sql)
        for side, schema in schemas.items()
    }
    if len(schemas) < len(SIDES):  # the other expressions cannot be checked without the columns
        raise SpecError(problems.found)

    scope = Scope(sql, {side: _with_record_columns(schemas[side]) for side in SIDES})
    left, right = (sides[side] for side in SIDES)
    on = optional(problems, condition, spec.join.condition, scope, "join.condition")
    output = output_plan(problems, spec, scope)
    if output is None:
        raise SpecError(problems.found)

    plan = JoinPlan(
        name=spec.name,
        join_type=spec.join.type,
        left=left,
        right=right,
        null_safe=null_safe,
        match_window=spec.join.match_window,
        window=spec.join.tumbling_window,
        event_time_in_key=_event_time_in_key(spec),
        condition=on,
        output=output,
        bootstrap_servers=spec.kafka.bootstrap_servers,
        security=spec.kafka.security,
        schema_registry=spec.schema_registry,
        checkpoint=spec.checkpoint,
        state_partitions=state_partitions,
        null_keys_pass=spec.on_null_key == "pass",
        dead_letter=_dead_letter_plan(spec),
        fails_on_bad_records=spec.on_bad_record == "fail",
        real_time=real_time_plan(spec),
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


def _schemas(
    problems: Problems,
    spec: JoinSpec,
    readers: Mapping[Side, ReaderSchema],
    sql: SqlQuestions,
) -> dict[Side, ValueSchema]:
    """Schemas by side, of the sides whose schema is valid."""
    read = {
        side: problems.of(partial(_schema, spec, side, readers.get(side), sql)) for side in SIDES
    }
    return {side: schema for side, schema in read.items() if schema is not None}


def _schema(
    spec: JoinSpec, side: Side, reader: ReaderSchema | None, sql: SqlQuestions
) -> ValueSchema:
    written = _side_spec(spec, side).schema_
    if reader is not None:
        schema = reader.columns
    elif written is not None:
        schema = value_schema(written, f"{side}.schema", sql)
        if not _side_spec(spec, side).format.has_registry:
            refuse_other_keys(schema, f"{side}.schema")
    else:
        message = "is required here, because no registry is read: write the columns of the value"
        raise SpecError([Problem(f"{side}.schema", None, message)])
    for name in schema.names:
        if name.casefold() in RECORD_COLUMN_NAMES:
            message = "is the name of a column with record metadata: rename the column"
            raise SpecError([Problem(f"{side}.schema", name, message)])
    return schema


def _with_record_columns(schema: ValueSchema) -> ValueSchema:
    return ValueSchema((*schema.columns, *RECORD_COLUMNS))


def _side_plan(
    problems: Problems,
    spec: JoinSpec,
    side: Side,
    schema: ValueSchema,
    reader: ReaderSchema | None,
    sql: SqlQuestions,
) -> SidePlan:
    """Without what has a problem: then the plan is not used."""
    written = _side_spec(spec, side)
    scope = Scope(sql, {side: _with_record_columns(schema)}, bare=side)
    key = [
        problems.of(partial(expression, text, scope, f"{side}.key[{index}]"))
        for index, text in enumerate(written.key)
    ]
    row_filter = optional(problems, predicate, written.filter, scope, f"{side}.filter")
    deduplicate = written.deduplicate
    by = [
        problems.of(partial(expression, text, scope, f"{side}.deduplicate.by[{index}]"))
        for index, text in enumerate(deduplicate.by if deduplicate else ())
    ]
    event_time = problems.of(partial(_event_time, written.event_time, schema, f"{side}.event_time"))
    return SidePlan(
        side=side,
        topics=written.source_topics,
        format=written.format,
        subject=written.registry_subject,
        reader=reader,
        schema=schema,
        key=tuple(part for part in key if part is not None),
        null_checked=_null_checked(spec),
        event_time=event_time or written.event_time,
        watermark_delay=written.watermark_delay,
        max_event_time_ahead=written.max_event_time_ahead,
        idle_after=written.idle_after,
        expected_rate=written.expected_rate,
        filter=row_filter,
        retention=_retention(spec, side),
        kept_columns=(),
        reads_headers=_mentions_headers([*key, row_filter, *by]),
        source_options=_source_options(spec, written),
        deduplication=None
        if deduplicate is None or None in by
        else Deduplication(tuple(part for part in by if part is not None), deduplicate.within),
    )


def _event_time(name: str, schema: ValueSchema, field: str) -> str:
    column = _with_record_columns(schema).column(name)
    if column is None:
        message = f"unknown column: the schema has {', '.join(schema.names)}"
        raise SpecError([Problem(field, name, message)])
    if column.type != TIMESTAMP:
        message = (
            f"is {column.type} and must be TIMESTAMP (in JSON an ISO-8601 string or epoch "
            "milliseconds): declare it as TIMESTAMP in the schema"
        )
        raise SpecError([Problem(field, name, message)])
    return column.name


def _retention(spec: JoinSpec, side: Side) -> timedelta | None:
    """How long after its event time a row can match. None: no bound.

    A left row at t matches right rows up to t + after, a right row at t left rows up to
    t + before. See semantics/watermark_predicates.py for Spark's own rule.
    """
    if spec.join.match_window is not None:
        window = spec.join.match_window
        return window.after if side == "left" else window.before
    if spec.join.tumbling_window is not None:
        return spec.join.tumbling_window.size
    return timedelta(0) if _event_time_in_key(spec) else None


def _event_time_in_key(spec: JoinSpec) -> bool:
    """Whether the event times of both sides are a pair of the key."""
    pairs = zip(spec.left.key, spec.right.key, strict=True)
    return any(
        _is_column(left, "left", spec.left.event_time)
        and _is_column(right, "right", spec.right.event_time)
        for left, right in pairs
    )


def _is_column(text: str, side: Side, column: str) -> bool:
    name = text.replace("`", "").casefold()
    return name.removeprefix(f"{side}.") == column.casefold()


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
    return {**source, **start_options(spec.start_from, topics), **tuning.SOURCE_OPTIONS}


def _dead_letter_plan(spec: JoinSpec) -> DeadLetterPlan | None:
    if spec.dead_letter is None:
        return None
    return DeadLetterPlan(
        topic=spec.dead_letter.topic,
        takes_null_keys=spec.on_null_key == "dead_letter",
        takes_late_rows=spec.on_late_row == "dead_letter",
    )


def _check_state_is_bounded(problems: Problems, spec: JoinSpec) -> None:
    bounded = all(_retention(spec, side) is not None for side in SIDES)
    if bounded and spec.join.unbounded_state:
        problems.add("join.unbounded_state", "true", "contradicts the window: remove it")
    if bounded or (spec.join.unbounded_state and spec.join.type is JoinType.INNER):
        return
    if spec.join.type is JoinType.INNER:
        remedy = f"{_NO_STATE_BOUND}; or write `unbounded_state: true` to allow it"
    else:
        remedy = f"{_NO_STATE_BOUND}. A {spec.join.type} join requires a bound: its unmatched "
        remedy += "rows are known only when they expire"
    problems.add("join", None, remedy)


def _check_semi_condition(problems: Problems, plan: JoinPlan) -> None:
    """A failing pair becomes a dead letter after the join, and a semi join emits no pairs."""
    failing = plan.checks.condition
    if plan.join_type.semi_side is not None and failing is not None:
        problems.add(
            "join.condition",
            failing.text,
            "can fail on a pair of records (a cast, a division, an overflow), and a "
            f"{plan.join_type} join cannot report the pair: write it so that it cannot fail, e.g. "
            "with try_cast or on DOUBLE columns",
        )


def _with_checks(plan: JoinPlan) -> JoinPlan:
    left, right = (
        replace(
            side,
            checks=side_checks(side.side, side.key, side.filter, plan.condition),
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
    columns = _with_record_columns(side.schema).columns
    return replace(
        side,
        mirrored=mirrored_filters(plan, side.side, scope),
        kept_columns=tuple(column for column in columns if column.name in used),
        reads_headers=side.reads_headers or "record_headers" in used,
    )


def _mentions_headers(parts: Iterable[Expression | None]) -> bool:
    return any(name == "record_headers" for part in parts if part for _, name in part.columns)
