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

from job.evaluation.sql_literals import SUFFIX, integer_with_suffix
from job.sql.literals import quoted

# sqlglot parses and walks recursively, with some twenty frames for each level. The default limit of
# 1,000 frames allows 49 parentheses.
sys.setrecursionlimit(max(sys.getrecursionlimit(), 20_000))


# sqlglot logs the text of a statement that it cannot parse; the text may contain a secret.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)


@contextmanager
def _parse_errors() -> Iterator[None]:
    """Raises ParseError when a parser of sqlglot fails with another error."""
    try:
        yield
    except (LookupError, ArithmeticError) as error:
        raise ParseError("is not SQL") from error


WRITTEN = "written"
"""Key of `meta`: text of a parsed DataType. sqlglot renders INT8 as TINYINT."""


IS_CALL = "is_call"
"""Key of `meta`: set for a Cast that is written CAST(…), and not date'…'."""


_INTEGER_SUFFIXES = {"L", "S", "Y"}


class _TypesAsWritten(SparkParser):
    def _parse_types(self, *args: Any, **options: Any) -> exp.Expr | None:
        first = self._index
        parsed = super()._parse_types(*args, **options)
        if isinstance(parsed, exp.DataType) and self._index > first:
            written = self._find_sql(self._tokens[first], self._prev)
            if not written[:1].isdigit():
                parsed.meta[WRITTEN] = written
            elif written[-1].upper() in _INTEGER_SUFFIXES:  # sqlglot parses 2L as a cast
                parsed.meta[SUFFIX] = written[-1].upper()
        return parsed

    def _parse_cast(self, *args: Any, **options: Any) -> exp.Expr:
        cast = super()._parse_cast(*args, **options)
        cast.meta[IS_CALL] = True
        return cast


def _date_trunc(arguments: list[exp.Expr]) -> exp.Expr:
    """sqlglot parses a column as the name of a unit, and Y as YEAR, not a unit of Spark."""
    if arguments and not isinstance(arguments[0], exp.Literal):
        return exp.Anonymous(this="DATE_TRUNC", expressions=arguments)
    built: exp.Expr = SparkParser.FUNCTIONS["DATE_TRUNC"](arguments)
    if arguments:
        built.set("unit", exp.var(arguments[0].name.upper()))
    return built


class SpecSql(Spark):
    """sqlglot's Spark SQL, which renders string literals so that Spark reads the same value.

    sqlglot renders the character NUL before `200` as `\\0200`; Spark reads `\\020` and `0`.
    """

    def parse(self, sql: str, **options: Any) -> list[exp.Expr | None]:
        with _parse_errors():
            return super().parse(sql, **options)

    def parse_into(self, expression_type: Any, sql: str, **options: Any) -> list[exp.Expr | None]:
        with _parse_errors():
            return super().parse_into(expression_type, sql, **options)

    class Parser(_TypesAsWritten):
        FUNCTIONS: ClassVar = {
            name: build
            for name, build in SparkParser.FUNCTIONS.items()
            # sqlglot parses the path, and supports fewer paths than Spark.
            if name != "GET_JSON_OBJECT"
        }
        FUNCTIONS["DATE_TRUNC"] = _date_trunc

    class Generator(SparkGenerator):
        TRANSFORMS: ClassVar = {
            **SparkGenerator.TRANSFORMS,
            exp.Literal: lambda _, literal: (
                quoted(literal.name) if literal.is_string else literal.name
            ),
        }

        def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
            value = integer_with_suffix(expression)
            if value is not None:
                return f"{value}{expression.to.meta_get(SUFFIX)}"
            return super().cast_sql(expression, safe_prefix)

        def trycast_sql(self, expression: exp.TryCast) -> str:
            if integer_with_suffix(expression) is not None:
                return self.cast_sql(expression)
            return super().trycast_sql(expression)


class _CallsAsWritten(SpecSql):
    """SpecSql with each function as an Anonymous node: its name, and its arguments in order."""

    class Parser(_TypesAsWritten):
        FUNCTIONS: ClassVar = {}
        NO_PAREN_FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {
            name: parse
            for name, parse in SparkParser.FUNCTION_PARSERS.items()
            if name in {"CAST", "TRY_CAST", "TRIM"}
        }


def parse(text: str) -> exp.Expr:
    """Parses `text`, in the form of `literals.canonical`, with sqlglot's nodes for functions."""
    return sqlglot.parse_one(text, dialect=SpecSql)


def calls_as_written(sql: str) -> exp.Expr:
    """As `parse`, but functions stay calls by name, as Spark reads them."""
    return sqlglot.parse_one(sql, dialect=_CallsAsWritten)


def shown(node: exp.Expr) -> str:
    """`node` as in a spec, for messages: left.id, not `left_id`. At most 60 characters."""
    text = node.sql(dialect=SpecSql, comments=False)
    text = re.sub(r"`(left|right)_([^`]*)`", r"\1.\2", text)
    return text if len(text) <= 60 else f"{text[:57]}..."
