"""Creates the plan of the output record. Pure."""

import re
from collections.abc import Mapping
from functools import partial

from job.formats.output_schemas import key_schema, value_schema
from job.plan import tuning
from job.plan.plan import OutputPlan
from job.plan.problems import Parser, Problems, optional
from job.spec.expressions import Expression, Scope, expression, predicate
from job.spec.output import OutputTimestamp
from job.spec.spec import JoinSpec
from job.spec.value_schema import RECORD_COLUMN_NAMES
from job.sql.questions import SqlError


def output_plan(problems: Problems, spec: JoinSpec, scope: Scope) -> OutputPlan:
    written = spec.output
    scope = Scope(scope.sql, {side: scope.sides[side] for side in spec.join.type.shown_sides})
    before = len(problems.found)
    texts = written.columns or _all_columns(problems, scope)
    are_known = len(problems.found) == before
    _refuse_colliding_names(problems, texts)
    columns: dict[str, Expression] = {}
    for name, text in texts.items():
        parsed = optional(problems, expression, text, scope, f"output.columns.{name}")
        if parsed is not None:
            columns[name] = parsed
    named = Scope(scope.sql, scope.sides, outputs=columns)
    invalid = [name for name in texts if name not in columns]

    def over_columns(parse: Parser, text: str | None, field: str) -> Expression | None:
        # An expression over an invalid or unknown column would only repeat that problem.
        is_read = text is None or not (
            any(_mentions(text, name) for name in invalid)
            if are_known
            else _has_bare_names(text, scope)
        )
        return optional(problems, parse, text, named, field) if is_read else None

    headers = {
        name: over_columns(expression, text, f"output.headers.{name}")
        for name, text in written.headers.items()
    }
    key = over_columns(expression, written.key, "output.key")
    servers = {"kafka.bootstrap.servers": spec.kafka.bootstrap_servers}
    return OutputPlan(
        topic=written.topic,
        columns=columns,
        headers={name: header for name, header in headers.items() if header is not None},
        has_event_time=written.timestamp is OutputTimestamp.EVENT_TIME,
        key=key,
        key_format=written.key_format,
        partition_by=over_columns(expression, written.partition_by, "output.partition_by"),
        filter=over_columns(predicate, written.filter, "output.filter"),
        delivery=written.delivery,
        commit_topic=commit_topic_of(spec),
        sink_options={**servers, **tuning.SINK_OPTIONS},
        schema=None if invalid else problems.of(partial(value_schema, spec, columns)),
        key_schema=None if key is None else problems.of(partial(key_schema, spec, key)),
    )


def commit_topic_of(spec: JoinSpec) -> str:
    return spec.output.commit_topic or f"{spec.name}.commits"


def _mentions(text: str, column: str) -> bool:
    """Whether `text` has the name of the output column, and not as `left.name` of a side."""
    name = rf"(?<![\w.`])`?{re.escape(column)}(?!\w)"
    return re.search(name, text, re.IGNORECASE) is not None


def _has_bare_names(text: str, scope: Scope) -> bool:
    """Whether `text` has names of output columns. False also if it is not SQL."""
    try:
        names = scope.sql.names(text)[1]
    except SqlError:
        return False
    return any(name.parts[0].casefold() not in scope.sides for name in names)


def _all_columns(problems: Problems, scope: Scope) -> dict[str, str]:
    """All value columns of the sides under their own names. Names that collide are a problem; the
    other expressions are then checked with the first of both."""
    columns: dict[str, str] = {}
    both: list[str] = []
    for side, schema in scope.sides.items():
        for name in schema.names:
            if name in RECORD_COLUMN_NAMES:
                continue
            if name.casefold() in (taken.casefold() for taken in columns):
                both.append(name)
            else:
                columns[name] = f"{side}.`{name}`"
    if both:
        message = (
            f"is required, because both sides have {', '.join(both)}: name each output column, "
            f"e.g. columns: {{{both[0]}: left.{both[0]}, right_{both[0]}: right.{both[0]}}}"
        )
        problems.add("output.columns", None, message)
    return columns


def _refuse_colliding_names(problems: Problems, names: Mapping[str, str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        first = seen.setdefault(name.casefold(), name)
        if first != name:
            message = f"collides with {first}, because Spark ignores case: rename one"
            problems.add(f"output.columns.{name}", name, message)
