"""Parses types in Spark DDL without Spark."""

import re

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from job.evaluation.sql_types import (
    DAY,
    DAY_TIME,
    PRECISION_MAX,
    SIMPLE_TYPES,
    YEAR_MONTH,
    SqlType,
    array_of,
    decimal_type,
    map_of,
    struct_of,
)
from job.sql.dialect import WRITTEN, SpecSql
from job.sql.type_grammar import check_type

_PARTS = {"ARRAY": 1, "MAP": 2}
_INTERVALS = {"DAY": DAY, "DAY TO SECOND": DAY_TIME, "YEAR TO MONTH": YEAR_MONTH}


_READ = {
    getattr(exp.DType, name)
    for name in (
        "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL", "TEXT",
        "BINARY", "DATE", "TIMESTAMP", "TIMESTAMPTZ", "ARRAY", "MAP", "STRUCT",
    )
}  # fmt: skip
"""sqlglot renders other types, e.g. TIME and TINYINT UNSIGNED, as types of Spark."""


def type_from(ddl: str) -> SqlType:
    """The type of e.g. `STRUCT<city: STRING>`. ValueError for a type that a spec may not use."""
    try:
        tree = sqlglot.parse_one(ddl, into=exp.DataType, dialect=SpecSql)
    except SqlglotError as error:
        raise ValueError(f"{ddl} is not a type") from error
    return parsed_type(tree)


def parsed_type(tree: exp.Expr) -> SqlType:
    """As `type_from`, for a type that sqlglot has parsed."""
    written = tree.meta_get(WRITTEN)
    if written is not None:
        check_type(written)
    return _type(tree)


def _type(tree: exp.Expr) -> SqlType:
    text = tree.sql(dialect=SpecSql)
    if tree.this not in _READ and not isinstance(tree.this, exp.Interval):
        raise ValueError(f"{text} is not a type that a spec may use")
    name, params = re.match(r"\w*", text.upper())[0], tree.expressions  # type: ignore[index]
    if name in SIMPLE_TYPES:
        if params or text.upper() != name:
            raise ValueError(f"{text} is not a type of Spark: write {name}")
        return SIMPLE_TYPES[name]
    if name == "DECIMAL":
        return _decimal(text, params)
    if name == "STRUCT":
        return _struct(text, params)
    if name in _PARTS:
        return _container(name, text, params)
    if name == "INTERVAL" and (span := text.upper().removeprefix("INTERVAL ")) in _INTERVALS:
        return _INTERVALS[span]
    raise ValueError(f"{text} is not a type that a spec may use")


def _decimal(text: str, params: list[exp.Expr]) -> SqlType:
    numbers = [param.sql() for param in params]
    if not all(number.isdecimal() for number in numbers) or len(numbers) > len(("p", "s")):
        raise ValueError(f"{text} is not a type of Spark: write e.g. DECIMAL(10, 2)")
    precision, scale = (*map(int, numbers), *(10, 0)[len(numbers) :])
    if precision > PRECISION_MAX:
        raise ValueError(f"{text} has too many digits: at most {PRECISION_MAX}")
    if scale > precision:
        raise ValueError(f"{text} has a scale larger than its precision")
    return decimal_type(precision, scale)


def _container(name: str, text: str, params: list[exp.Expr]) -> SqlType:
    example = {"ARRAY": "ARRAY<INT>", "MAP": "MAP<STRING, INT>"}[name]
    if len(params) != _PARTS[name]:
        raise ValueError(f"{text} has no type of its elements: write e.g. {example}")
    inner = [_type(param) for param in params]
    return array_of(inner[0]) if name == "ARRAY" else map_of(inner[0], inner[1])


def _struct(text: str, params: list[exp.Expr]) -> SqlType:
    fields = []
    for param in params:
        kind = param.args.get("kind")
        if not isinstance(param, exp.ColumnDef) or kind is None:
            raise ValueError(f"{text} has a field without a type: write e.g. STRUCT<city: STRING>")
        fields.append((param.name, _type(kind)))
    if not fields:
        raise ValueError(f"{text} has no fields: write e.g. STRUCT<city: STRING>")
    names = [name.lower() for name, _ in fields]
    if len(set(names)) < len(names):
        raise ValueError(f"{text} has a field twice (ignoring case)")
    return struct_of(fields)
