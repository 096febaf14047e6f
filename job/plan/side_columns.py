"""Columns of a side: those of its value, the computed ones, and the event time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from job.errors import Problem, SpecError
from job.formats.schemas import ReaderSchema
from job.plan.problems import Problems
from job.plan.side_plan import ComputedColumn
from job.spec.expressions import Expression, Scope, expression
from job.spec.side_spec import SideSpec
from job.spec.sides import Side
from job.spec.value_format import Format
from job.spec.value_schema import (
    ENVELOPE_COLUMNS,
    RECORD_COLUMN_NAMES,
    RECORD_COLUMNS,
    Column,
    ValueSchema,
    free_name,
    name_problem,
    record_columns,
    refuse_duplicates,
    value_schema,
)
from job.spec.written_types import TEXT_SCHEMA, record_key_type, refuse_other_columns
from job.sql.questions import SqlError, SqlQuestions
from job.sql.types import STRING, TIMESTAMP, SqlType

_NUMBERS = {"TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL"}


def schema_of_side(
    written: SideSpec, side: Side, reader: ReaderSchema | None, sql: SqlQuestions
) -> ValueSchema:
    """The columns of the value. SpecError if the schema is missing or not valid."""
    if reader is not None:
        schema = reader.columns
    elif written.schema_ is not None:
        schema = value_schema(written.schema_, f"{side}.schema", sql)
        refuse_other_columns(schema, written.format, f"{side}.schema")
    elif written.format is Format.TEXT:
        schema = TEXT_SCHEMA
    else:
        message = "is required here, because no registry is read: write the columns of the value"
        raise SpecError([Problem(f"{side}.schema", None, message)])
    for name in schema.names:
        if name.casefold() in RECORD_COLUMN_NAMES:
            message = "is the name of a column with record metadata: rename the column"
            raise SpecError([Problem(f"{side}.schema", name, message)])
    return schema


@dataclass(frozen=True)
class SideColumns:
    """The columns that an expression of a side can use."""

    schema: ValueSchema
    record: tuple[Column, ...] = RECORD_COLUMNS
    computed: tuple[ComputedColumn, ...] = ()
    """Each after those that it uses."""
    invalid: frozenset[str] = frozenset()
    """Names of the computed columns that have a problem, in lower case."""

    @property
    def usable(self) -> ValueSchema:
        columns = (column.column for column in self.computed)
        return ValueSchema((*self.schema.columns, *columns, *self.record), self.invalid)


def side_columns(
    problems: Problems,
    written: SideSpec,
    side: Side,
    schema: ValueSchema,
    key_reader: ReaderSchema | None,
    sql: SqlQuestions,
) -> SideColumns:
    """The columns of a side without those that have a problem."""
    key_type = problems.of(partial(_record_key_type, written, side, key_reader, sql)) or STRING
    columns = SideColumns(
        schema,
        record_columns(key_type, has_envelope=written.envelope is not None),
        invalid=frozenset(map(str.casefold, written.columns)),
    )
    for name in _in_order(problems, written.columns, side, schema, sql):
        scope = Scope(sql, {side: columns.usable}, bare=side, time_zone=written.time_zone)
        read = partial(_value, written.columns[name], scope, f"{side}.columns.{name}")
        value = problems.of(read)
        if value is not None:
            column = _computed(name, value, scope, columns.computed)
            valid = columns.invalid - {name.casefold()}
            columns = replace(columns, computed=(*columns.computed, column), invalid=valid)
    return columns


def _record_key_type(
    written: SideSpec, side: Side, reader: ReaderSchema | None, sql: SqlQuestions
) -> SqlType:
    if reader is not None:
        return reader.type
    if written.key_schema is not None:
        return record_key_type(written.key_schema, f"{side}.key_schema", sql)
    if written.key_format.with_registry is None:
        return STRING
    message = "is required here, because no registry is read: write the type of the key"
    raise SpecError([Problem(f"{side}.key_schema", None, message)])


def _computed(
    name: str, value: Expression, scope: Scope, computed: Sequence[ComputedColumn]
) -> ComputedColumn:
    """`computed`: the columns that the value can use."""
    used = [each.level for each in computed if (scope.bare, each.name) in value.columns]
    column = Column(name, value.type, scope.expanded(value.sql))
    return ComputedColumn(column, value, level=max(used, default=0) + 1)


def event_time(
    text: str, side: Side, columns: SideColumns, sql: SqlQuestions, time_zone: str
) -> tuple[str, ComputedColumn | None]:
    """Name of the column with the event time, and the column if `text` is an expression. SpecError
    if its type is not TIMESTAMP."""
    usable = columns.usable
    field = f"{side}.event_time"
    column = usable.column(text)
    if column is not None:
        _check_is_time(column.type, text, field)
        return column.name, None
    scope = Scope(sql, {side: usable}, bare=side, time_zone=time_zone)
    value = expression(text, scope, field)
    _check_is_time(value.type, text, field)
    if value.is_column:
        ((_, name),) = value.columns
        return name, None
    name = free_name("event_time", usable.columns)
    return name, _computed(name, value, scope, columns.computed)


def _value(text: str, scope: Scope, field: str) -> Expression:
    value = expression(text, scope, field)
    if value.type.name == "VOID" or "INTERVAL" in str(value.type):
        message = (
            f"is {value.type}, which a column cannot be: write a cast, or a difference of "
            "times as a number, e.g. unix_millis(a) - unix_millis(b)"
        )
        raise SpecError([Problem(field, text, message)])
    return value


def _check_is_time(kind: SqlType, text: str, field: str) -> None:
    if kind == TIMESTAMP:
        return
    message = f"is {kind} and must be TIMESTAMP: "
    if kind.name in _NUMBERS:
        message += (
            f"write timestamp_seconds({text}), timestamp_millis({text}), timestamp_micros({text}) "
            f"or, for nanoseconds, timestamp_micros({text} div 1000)"
        )
    elif kind == STRING:
        message += (
            f"write cast({text} AS TIMESTAMP) for ISO-8601, to_timestamp({text}, 'dd/MM/yyyy "
            "HH:mm') for another format, or declare it as TIMESTAMP in the schema"
        )
    else:
        message += f"write another column, or cast({text} AS TIMESTAMP) if it is a time"
    raise SpecError([Problem(field, text, message)])


def _in_order(
    problems: Problems,
    written: Mapping[str, str],
    side: Side,
    schema: ValueSchema,
    sql: SqlQuestions,
) -> list[str]:
    """The valid names, each after those that its expression uses."""
    taken = (*schema.columns, *RECORD_COLUMNS, *ENVELOPE_COLUMNS)
    for name in written:
        message = name_problem(name)
        if name.casefold() in (column.name.casefold() for column in taken):
            message = "is the name of a column of the value or of the record: choose another name"
        if message is not None:
            problems.add(f"{side}.columns.{name}", name, message)
            return []
    columns = tuple(Column(name, STRING) for name in written)
    try:
        refuse_duplicates((*schema.columns, *columns), f"{side}.columns")
    except SpecError as error:
        problems.found.extend(error.problems)
        return []
    uses = {name: list(_uses(text, written, side, sql)) for name, text in written.items()}
    ordered: dict[str, None] = {}
    for name in written:
        if (cycle := _visit(name, uses, ordered, ())) is not None:
            message = f"depends on itself ({' -> '.join(cycle)}): write it without {name}"
            problems.add(f"{side}.columns.{name}", written[name], message)
            return []
    return list(ordered)


def _uses(text: str, written: Mapping[str, str], side: Side, sql: SqlQuestions) -> Iterator[str]:
    """The computed columns in `text`."""
    try:
        _, names, _ = sql.names(text)
    except SqlError:  # reported when the expression is read
        return
    for parts in (name.parts for name in names):
        of_side = len(parts) > 1 and parts[0].casefold() == side
        used = parts[1 if of_side else 0].casefold()
        yield from (name for name in written if name.casefold() == used)


def _visit(
    name: str, uses: Mapping[str, list[str]], ordered: dict[str, None], path: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Adds the columns that `name` uses, then `name`. The names of a cycle, if there is one."""
    if name in path:
        return (*path[path.index(name) :], name)
    if name not in ordered:
        for used in uses[name]:
            if (cycle := _visit(used, uses, ordered, (*path, name))) is not None:
                return cycle
        ordered[name] = None
    return None
