"""SQL types of sqlglot's trees of types, in Spark's grammar."""

import re
from functools import cache

from sqlglot import exp
from sqlglot.dialects.dialect import DialectType

from job.evaluation.sql_types import (
    DAY,
    DAY_TIME,
    PRECISION_MAX,
    SIMPLE_TYPES,
    STRING,
    YEAR_MONTH,
    NotExactError,
    SqlType,
    array_of,
    decimal_type,
    map_of,
    struct_of,
)

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


@cache
def parse_type(ddl: str) -> SqlType:
    """Raises NotExactError if values of the type cannot be evaluated exactly as in Spark."""
    tree = exp.DataType.build(ddl, dialect="spark")
    try:
        kind = type_of(tree, "spark")
    except ValueError as error:
        raise NotExactError(f"type {ddl}") from error
    if not _is_exact(kind):
        raise NotExactError(f"type {ddl}")
    return kind


def _is_exact(kind: SqlType) -> bool:
    has_other_keys = kind.name == "MAP" and kind.inside("key") != STRING
    return not (kind.is_interval or has_other_keys) and all(_is_exact(k) for _, k in kind.fields)


def type_of(tree: exp.Expr, dialect: DialectType) -> SqlType:
    """Raises ValueError for a type that a spec may not use. `dialect`: for the message."""
    text = tree.sql(dialect=dialect)
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
        return _struct(text, params, dialect)
    if name in _PARTS:
        return _container(name, text, params, dialect)
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


def _container(name: str, text: str, params: list[exp.Expr], dialect: DialectType) -> SqlType:
    example = {"ARRAY": "ARRAY<INT>", "MAP": "MAP<STRING, INT>"}[name]
    if len(params) != _PARTS[name]:
        raise ValueError(f"{text} has no type of its elements: write e.g. {example}")
    inner = [type_of(param, dialect) for param in params]
    return array_of(inner[0]) if name == "ARRAY" else map_of(inner[0], inner[1])


def _struct(text: str, params: list[exp.Expr], dialect: DialectType) -> SqlType:
    fields = []
    for param in params:
        kind = param.args.get("kind")
        if not isinstance(param, exp.ColumnDef) or kind is None:
            raise ValueError(f"{text} has a field without a type: write e.g. STRUCT<city: STRING>")
        fields.append((param.name, type_of(kind, dialect)))
    if not fields:
        raise ValueError(f"{text} has no fields: write e.g. STRUCT<city: STRING>")
    return struct_of(fields)
