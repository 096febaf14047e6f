"""Columns of a topic's values, parsed from Spark DDL without Spark."""

from collections.abc import Callable
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from job.errors import Problem, SpecError
from job.evaluation.sql_types import INTERVALS, STRING
from job.sql.ddl import parsed_type, type_from
from job.sql.dialect import SpecSql
from job.sql.literals import canonical
from job.sql.type_grammar import check_columns

_NO_DDL = "is not Spark DDL, e.g. `id BIGINT, at TIMESTAMP`"
_DEEPEST = 20


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    """Spark DDL in upper case, e.g. `BIGINT`, `DECIMAL(10, 2)`, `STRUCT<city: STRING>`."""


@dataclass(frozen=True)
class ValueSchema:
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column | None:
        """The column with that name, ignoring case as Spark does."""
        for column in self.columns:
            if column.name.casefold() == name.casefold():
                return column
        return None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def value_schema(ddl: str, field: str) -> ValueSchema:
    """The columns in `ddl`. SpecError with `field` if `ddl` is not a supported schema."""
    columns = tuple(_column(definition, field) for definition in _definitions(ddl, field))
    _refuse_duplicates(columns, field)
    return ValueSchema(columns)


def refuse_other_keys(schema: ValueSchema, field: str) -> None:
    """Raises SpecError for a MAP whose keys are not strings: JSON has no other keys."""
    for column in schema.columns:
        kinds = [type_from(column.type)]
        while kinds:
            kind = kinds.pop()
            if kind.name == "MAP" and kind.inside("key") != STRING:
                message = "has a MAP with keys that are not strings, which JSON does not support: "
                raise _error(field, f"{column.name} {kind}", f"{message}write MAP<STRING, ...>")
            kinds += [inner for _, inner in kind.fields]


def _definitions(ddl: str, field: str) -> list[exp.Expression]:
    try:
        text = canonical(ddl)
        if max(text.count("<"), text.count("(")) > _DEEPEST and _depth(text) > _DEEPEST:
            raise _error(field, ddl, f"has types nested more than {_DEEPEST} deep")
        quoted = check_columns(text)
        tree = _table(text) or _table(quoted)
    except ValueError as error:
        raise _error(field, ddl, str(error)) from error
    if tree is None:
        raise _error(field, ddl, _NO_DDL)
    return tree


def _table(text: str) -> list[exp.Expression] | None:
    """Column definitions of sqlglot. None: it parses a part as something else, e.g. the column
    `like INT` as a keyword if the name is not in backquotes."""
    try:
        tree = sqlglot.parse_one(f"CREATE TABLE t ({text})", dialect=SpecSql)
    except SqlglotError:
        return None
    table = tree.this if isinstance(tree, exp.Create) else None
    definitions = table.expressions if isinstance(table, exp.Schema) else []
    if not definitions or not all(isinstance(part, exp.ColumnDef) for part in definitions):
        return None
    return list(definitions)


def _depth(text: str) -> int:
    depth = deepest = 0
    for character in text:
        depth += (character in "<(") - (character in ">)")
        deepest = max(deepest, depth)
    return deepest


def _column(definition: exp.Expression, field: str) -> Column:
    kind = definition.args.get("kind")
    if "`" in definition.name or not definition.name:
        raise _error(field, definition.name, "is not a name that Spark can resolve: rename it")
    if not isinstance(kind, exp.DataType):
        raise _error(field, definition.name, "has no type: write e.g. `id BIGINT`")
    _refuse_constraints(definition, field)
    _refuse_unknown_types(definition.name, kind, field)
    return Column(definition.name, kind.sql(dialect=SpecSql))


def _refuse_constraints(definition: exp.Expression, field: str) -> None:
    """A COMMENT on a column does not affect the join; every other constraint is refused."""
    for constraint in definition.find_all(exp.ColumnConstraint):
        text = constraint.sql(dialect=SpecSql)
        outermost = constraint.parent is definition
        if not (outermost and isinstance(constraint.kind, exp.CommentColumnConstraint)):
            raise _error(
                field,
                f"{definition.name} {text}",
                f"has {text}: remove it, a schema contains only names and types of columns",
            )


def _refuse_unknown_types(name: str, kind: exp.DataType, field: str) -> None:
    written = f"{name} {kind.sql(dialect=SpecSql)}"
    try:
        parsed = parsed_type(kind)
    except ValueError as error:
        raise _error(field, written, str(error)) from error
    if any(parsed.holds(interval) for interval in INTERVALS):
        raise _error(field, written, "has an INTERVAL, which no value can contain: use STRING")
    if any(inner.holds("TIMESTAMP") for _, inner in parsed.fields):
        raise _error(
            field,
            written,
            "contains a TIMESTAMP inside another type, where Spark would parse epoch milliseconds "
            "as seconds: declare it BIGINT or STRING and convert it in output.columns",
        )


def _refuse_duplicates(columns: tuple[Column, ...], field: str) -> None:
    seen: set[str] = set()
    for column in columns:
        spellings = {column.name.lower(), column.name.casefold(), _java_folded(column.name)}
        if spellings & seen:
            raise _error(field, column.name, "names a column twice (ignoring case): rename one")
        seen |= spellings


def _java_folded(name: str) -> str:
    """Equal for names that are equal by Java's equalsIgnoreCase, which compares characters."""
    return "".join(_single(_single(character, str.upper), str.lower) for character in name)


def _single(character: str, change: Callable[[str], str]) -> str:
    if character == "İ":
        return "i" if change is str.lower else character
    changed = change(character)
    return changed if len(changed) == 1 else character


def _error(field: str, value: str, message: str) -> SpecError:
    return SpecError([Problem(field, value, message)])
