"""The dialects in which expressions of a spec are parsed and written back."""

import logging
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser

from job.sql.literals import quoted

# Whatever parses or walks a tree does it by recursion, with some twenty frames for each level.
# Python's own limit of 1,000 frames ends at 49 parentheses.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))


# sqlglot logs the text of a statement that it cannot read; the text may hold a secret.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)


@contextmanager
def _parse_errors() -> Iterator[None]:
    """ParseError where one of sqlglot's parsers fails on text that it did not check."""
    try:
        yield
    except (LookupError, ArithmeticError) as error:
        raise ParseError("is not SQL") from error


class SpecSql(Spark):
    """sqlglot's Spark SQL, with the values of literals written so that Spark reads them back.

    sqlglot writes the character NUL before `200` as `\\0200`, which Spark reads as `\\020` and `0`.
    """

    def parse(self, sql: str, **options: Any) -> list[exp.Expr | None]:
        with _parse_errors():
            return super().parse(sql, **options)

    def parse_into(self, expression_type: Any, sql: str, **options: Any) -> list[exp.Expr | None]:
        with _parse_errors():
            return super().parse_into(expression_type, sql, **options)

    class Parser(SparkParser):
        FUNCTIONS: ClassVar = {
            name: build
            for name, build in SparkParser.FUNCTIONS.items()
            # sqlglot reads the path, and knows fewer paths than Spark.
            if name != "GET_JSON_OBJECT"
        }

    class Generator(SparkGenerator):
        TRANSFORMS: ClassVar = {
            **SparkGenerator.TRANSFORMS,
            exp.Literal: lambda _, literal: (
                quoted(literal.name) if literal.is_string else literal.name
            ),
        }


class _CallsAsWritten(SpecSql):
    """Each function is an Anonymous node with its name and its arguments in their order."""

    class Parser(SparkParser):
        FUNCTIONS: ClassVar = {}
        NO_PAREN_FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {
            name: parse
            for name, parse in SparkParser.FUNCTION_PARSERS.items()
            if name in {"CAST", "TRY_CAST", "TRIM"}
        }


def parse(text: str) -> exp.Expr:
    """`text`, which `literals.canonical` has written, with sqlglot's nodes for functions."""
    return sqlglot.parse_one(text, dialect=SpecSql)


def calls_as_written(sql: str) -> exp.Expr:
    """As `parse`, but functions stay calls by name: what Spark reads in `sql`."""
    return sqlglot.parse_one(sql, dialect=_CallsAsWritten)


def shown(node: exp.Expr) -> str:
    """As the user would write it, for messages: left.id, not `left_id`."""
    text = node.sql(dialect=SpecSql, comments=False)
    text = re.sub(r"`(left|right)_([^`]*)`", r"\1.\2", text)
    return text if len(text) <= 60 else f"{text[:57]}..."
