"""Parses types in Spark DDL without Spark."""

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from job.evaluation.sql_types import SqlType
from job.evaluation.type_trees import type_of
from job.sql.dialect import WRITTEN, SpecSql
from job.sql.type_grammar import check_type


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
    kind = type_of(tree, SpecSql)
    _check_names(kind)
    return kind


def _check_names(kind: SqlType) -> None:
    """Raises ValueError for a STRUCT whose fields Spark cannot resolve by name. An expression can
    have such a type, a schema cannot."""
    names = [name.lower() for name, _ in kind.fields]
    if len(set(names)) < len(names):
        raise ValueError(f"{kind} has a field twice (ignoring case)")
    for _, inner in kind.fields:
        _check_names(inner)
