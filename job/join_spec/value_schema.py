"""The columns of a topic's JSON value, read from Spark DDL without Spark."""

import logging
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from job.errors import Problem, SpecError

_SCALARS = {
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL",
    "STRING", "BINARY", "DATE", "TIMESTAMP",
}  # fmt: skip

# What sqlglot raises on text that is no SQL: some of its parsers do not check what they read.
PARSER_ERRORS = (SqlglotError, RecursionError, LookupError, ArithmeticError)
# It logs the text of a statement that it cannot read; the text may hold a secret.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    """Spark DDL in upper case, e.g. `BIGINT`, `DECIMAL(10, 2)`, `STRUCT<city: STRING>`."""


@dataclass(frozen=True)
class ValueSchema:
    columns: tuple[Column, ...]

    def column(self, name: str) -> Column | None:
        """The column of that name; case does not count, as in Spark."""
        for column in self.columns:
            if column.name.casefold() == name.casefold():
                return column
        return None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def value_schema(ddl: str, field: str) -> ValueSchema:
    """The columns in `ddl`; SpecError naming `field` where it is no schema we can read."""
    try:
        return _read(ddl, field)
    except PARSER_ERRORS as error:
        raise _refused(field, ddl, "is not Spark DDL, e.g. `id BIGINT, at TIMESTAMP`") from error


def _read(ddl: str, field: str) -> ValueSchema:
    tree = sqlglot.parse_one(f"CREATE TABLE t ({ddl})", dialect="spark")
    table = tree.this if isinstance(tree, exp.Create) else None
    definitions = table.expressions if isinstance(table, exp.Schema) else []
    if not definitions or not all(_is_column(definition) for definition in definitions):
        raise _refused(field, ddl, "is not Spark DDL, e.g. `id BIGINT, at TIMESTAMP`")
    columns = tuple(_column(definition, field) for definition in definitions)
    _refuse_doubles(columns, field)
    return ValueSchema(columns)


def _is_column(definition: exp.Expression) -> bool:
    return isinstance(definition, exp.ColumnDef) and not definition.args.get("constraints")


def _column(definition: exp.Expression, field: str) -> Column:
    kind = definition.args.get("kind")
    if not isinstance(kind, exp.DataType):
        raise _refused(field, definition.name, "has no type: write e.g. `id BIGINT`")
    _refuse_unknown_types(definition.name, kind, field)
    return Column(definition.name, kind.sql(dialect="spark"))


def _refuse_unknown_types(name: str, kind: exp.DataType, field: str) -> None:
    containers = (exp.DType.ARRAY, exp.DType.MAP, exp.DType.STRUCT)
    for part in kind.find_all(exp.DataType):
        text = part.sql(dialect="spark")
        if part.this in containers:
            continue
        if text.split("(")[0] not in _SCALARS:
            raise _refused(field, f"{name} {text}", "has a type that JSON values cannot have here")
        if text == "TIMESTAMP" and part is not kind:
            raise _refused(
                field,
                f"{name} {kind.sql(dialect='spark')}",
                "holds a TIMESTAMP inside another type, where epoch milliseconds would be read "
                "as seconds: declare it BIGINT or STRING and convert it in output.columns",
            )


def _refuse_doubles(columns: tuple[Column, ...], field: str) -> None:
    seen: set[str] = set()
    for column in columns:
        if column.name.casefold() in seen:
            raise _refused(field, column.name, "names a column twice (case does not count)")
        seen.add(column.name.casefold())


def _refused(field: str, value: str, message: str) -> SpecError:
    return SpecError([Problem(field, value, message)])
