"""SQL expressions of a spec, as Spark reads them: their names are resolved here, the rest by Spark.

Spark receives the text of the spec with the names of the dataflow's columns in it, once the SQL
worker has allowed all its parts.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from job.errors import Problem, SpecError
from job.spec.sides import SIDES, Side
from job.spec.value_schema import ValueSchema
from job.sql.questions import Analysis, Columns, Name, SqlError, SqlQuestions
from job.sql.time_zones import UTC
from job.sql.types import BOOLEAN, STRING, VOID, SqlType


@dataclass(frozen=True)
class Expression:
    """A checked expression over columns of the two sides."""

    text: str
    """Text in the spec."""
    sql: str
    """Spark SQL over the columns of the dataflow (`column_name`)."""
    type: SqlType
    columns: frozenset[tuple[Side, str]] = frozenset()
    """Columns in the expression."""
    canonical: str = ""
    """One text for all spellings of the expression, with the definitions of computed columns in
    place of their names."""
    is_column: bool = False
    """It is a column, and nothing else."""
    is_constant: bool = False
    """Spark replaces it by one value, even if it contains a column."""
    value: str | None = None
    """The value of an expression without columns, as text."""
    compares: bool = False
    """It compares columns, which Spark does not cast, with constants."""
    can_fail: bool = False
    """It can fail on a record or a result."""
    casts_number_to_time: bool = False
    """It casts a number to TIMESTAMP, which reads it as seconds."""
    terms: tuple["Expression", ...] = field(default=(), repr=False)
    """The terms of its ANDs. Empty: it has no AND."""

    @property
    def conjuncts(self) -> tuple["Expression", ...]:
        """The terms joined by AND, in order."""
        return self.terms or (self,)

    @property
    def sides(self) -> frozenset[Side]:
        """Sides of the columns in the expression."""
        return frozenset(side for side, _ in self.columns)


def column_name(side: Side, column: str) -> str:
    """Name of a side's column in the dataflow, e.g. `left_ad_id`."""
    return f"{side}_{column}"


def columns_of(sides: Mapping[Side, ValueSchema]) -> Columns:
    """The columns of the dataflow."""
    return [
        (column_name(side, column.name), str(column.type))
        for side, schema in sides.items()
        for column in schema.columns
    ]


def conjunction(parts: Sequence[Expression]) -> Expression | None:
    """All of `parts`. None: there are none."""
    if not parts:
        return None
    return Expression(
        text=" AND ".join(part.text for part in parts),
        sql=" AND ".join(f"({part.sql})" for part in parts),
        type=BOOLEAN,
        canonical=" AND ".join(part.canonical for part in parts),
        columns=frozenset().union(*(part.columns for part in parts)),
        can_fail=any(part.can_fail for part in parts),
        casts_number_to_time=any(part.casts_number_to_time for part in parts),
        terms=tuple(parts),
    )


@dataclass(frozen=True)
class Scope:
    """Names that one field of the spec can use."""

    sql: SqlQuestions
    sides: Mapping[Side, ValueSchema]
    bare: Side | None = None
    """Side of names without `left.` or `right.`. None: such names are output columns."""
    outputs: Mapping[str, Expression] | None = None
    """Output columns by name. In an expression they are replaced by their own expressions."""
    time_zone: str = UTC
    """Time zone in which the expressions are evaluated."""

    @cached_property
    def columns(self) -> Columns:
        """The columns of the dataflow."""
        return columns_of(self.sides)

    @cached_property
    def definitions(self) -> dict[str, str]:
        """Definitions of the computed columns, by their names in the dataflow."""
        return {
            column_name(side, column.name): column.definition
            for side, schema in self.sides.items()
            for column in schema.columns
            if column.definition is not None
        }

    def expanded(self, sql: str) -> str:
        """`sql` over the columns of the dataflow, with the definitions of computed columns in place
        of their names."""
        if not self.definitions:
            return sql
        plain, names, _ = self.sql.names(sql, is_of_spec=False)
        used = [name for name in names if name.parts[0] in self.definitions]
        return _with_names(plain, used, self._defined)

    def _defined(self, name: Name) -> str:
        fields = "".join(f".{_quoted(part)}" for part in name.parts[1:])
        target = f"({self.definitions[name.parts[0]]}){fields}"
        return f"{target} AS {_quoted(name.parts[-1])}" if name.names_a_field else target

    @cached_property
    def written(self) -> dict[str, str]:
        """Names of the columns in the spec, by their names in the dataflow."""
        return {
            column_name(side, name): name if side == self.bare else f"{side}.{name}"
            for side, schema in self.sides.items()
            for name in schema.names
        }

    def named(self, text: str) -> str:
        """`text` over the columns of the dataflow. SqlError for a name that is not known."""
        plain, names, variables = self.sql.names(text)
        columns = {name.casefold() for name in self.written}
        if columns & {variable.casefold() for variable in variables}:
            raise SqlError("has a lambda variable with the name of a side in it: rename it")
        return _with_names(plain, names, self._replaced)

    def _replaced(self, name: Name) -> str:
        column, fields = self._resolved(name.parts)
        target = ".".join([column, *map(_quoted, fields)])
        return f"{target} AS {_quoted(name.parts[-1])}" if name.names_a_field else target

    def _resolved(self, parts: Sequence[str]) -> tuple[str, Sequence[str]]:
        """SQL of the column that `parts` (`left.a.b` → [left, a, b]) names, and the fields in it.

        SqlError names the unknown part and the known names.
        """
        first = parts[0].casefold()
        for side, schema in self.sides.items():
            if first == side and len(parts) > 1:
                return self._column(side, schema, parts[1]), parts[2:]
        if first in SIDES and len(parts) > 1 and first not in self.sides:
            raise SqlError(f"{parts[0]}.{parts[1]} cannot be used here: {self._usable()}")
        for name, expression in (self.outputs or {}).items():
            if name.casefold() == first:
                return f"({expression.sql})", parts[1:]
        if self.bare is not None:
            return self._column(self.bare, self.sides[self.bare], parts[0]), parts[1:]
        known = [*(self.outputs or {}), *self.written.values()]
        meant = _meant(parts[0], {name.rpartition(".")[2]: name for name in reversed(known)})
        raise SqlError(f"unknown column {parts[0]}: {self._usable()}{meant}")

    def _column(self, side: Side, schema: ValueSchema, name: str) -> str:
        column = schema.column(name)
        if column is None and name.casefold() in schema.invalid:
            raise _KnownProblemError
        if column is None:
            meant = _meant(name, {each: each for each in schema.names})
            raise SqlError(
                f"unknown column {name} of the {side} side: it has {', '.join(schema.names)}{meant}"
            )
        return _quoted(column_name(side, column.name))

    def _usable(self) -> str:
        return f"use {', '.join([*(self.outputs or {}), *self.written.values()])}"


class _KnownProblemError(Exception):
    """An expression uses a column whose problem is reported at the column."""


def expression(text: str, scope: Scope, field: str) -> Expression:
    """`text` resolved and checked. SpecError with `field` if `text` is invalid; without a problem
    if it uses a computed column that has one."""
    with _problem_of(text, scope, field):
        named = scope.named(text)
        analysis = scope.sql.analysis(named, scope.columns, time_zone=scope.time_zone)
        return _of(analysis, text, scope)


def predicate(text: str, scope: Scope, field: str) -> Expression:
    """As `expression`, for a filter: the type must be BOOLEAN."""
    parsed = _boolean(expression(text, scope, field), scope, field, (BOOLEAN,))
    with _problem_of(text, scope, field):
        scope.sql.check_filter(scope.expanded(parsed.sql), scope.columns)
    return parsed


def condition(text: str, scope: Scope, field: str) -> Expression:
    """As `expression`, for the ON clause: the type must be BOOLEAN, or VOID of a bare NULL."""
    parsed = expression(text, scope, field)
    if len(parsed.terms) > 1 and any(part.value == "false" for part in parsed.terms):
        # The dataflow evaluates each term, and Spark none after FALSE: another one may fail.
        return Expression(text, "false", BOOLEAN, canonical="false")
    return _boolean(parsed, scope, field, (BOOLEAN, VOID))


def renamed(part: Expression, scope: Scope, columns: Mapping[str, str]) -> Expression:
    """The expression with other columns of the dataflow. SqlError if Spark refuses it then, or if
    its value depends on the time zone of its side."""
    text, names, _ = scope.sql.names(part.sql)
    sql = _with_names(text, names, lambda name: _quoted(columns[name.parts[0]]))
    return _of(scope.sql.analysis(sql, scope.columns), _with_names_of_the_spec(sql, scope), scope)


@contextmanager
def _problem_of(text: str, scope: Scope, field: str) -> Iterator[None]:
    """Raises SpecError in place of SqlError."""
    try:
        yield
    except _KnownProblemError as error:
        raise SpecError([]) from error
    except SqlError as error:
        message = _with_names_of_the_spec(str(error), scope)
        raise SpecError([Problem(field, text, message)]) from error


def _of(analysis: Analysis, text: str, scope: Scope) -> Expression:
    """SqlError if Spark refuses the expression once its optimizer has put the definitions of
    computed columns in place of their names."""
    expanded = analysis
    if analysis.columns & scope.definitions.keys():
        expanded = scope.sql.analysis(scope.expanded(analysis.sql), scope.columns)
    return Expression(
        text=text,
        sql=analysis.sql,
        type=analysis.type,
        columns=frozenset(
            (side, name.removeprefix(f"{side}_"))
            for name in analysis.columns
            for side in SIDES
            if name.startswith(f"{side}_")
        ),
        canonical=expanded.canonical,
        is_column=analysis.is_column,
        is_constant=expanded.is_constant,
        value=analysis.value,
        compares=analysis.compares,
        can_fail=analysis.can_fail,
        casts_number_to_time=analysis.casts_number_to_time,
        terms=tuple(
            _of(each, _with_names_of_the_spec(each.text, scope), scope) for each in analysis.terms
        ),
    )


def _boolean(
    parsed: Expression, scope: Scope, field: str, accepted: Sequence[SqlType]
) -> Expression:
    if parsed.type not in accepted:
        raise SpecError([Problem(field, parsed.text, _not_boolean(parsed.type))])
    if not any(part.type == STRING for part in parsed.terms):
        return parsed
    # Spark casts a STRING implicitly, but only next to a BOOLEAN: the dataflow evaluates each term
    # alone.
    terms = [
        f"cast({part.sql} AS BOOLEAN)" if part.type == STRING else f"({part.sql})"
        for part in parsed.terms
    ]
    return _of(scope.sql.analysis(" AND ".join(terms), scope.columns), parsed.text, scope)


def _not_boolean(kind: SqlType) -> str:
    return (
        f"is not a condition: it is {kind} and must be BOOLEAN; write a comparison, e.g. with "
        "`=` or IS NOT NULL"
    )


def _with_names_of_the_spec(text: str, scope: Scope) -> str:
    """`text` with left.k in place of the dataflow's `left_k`."""
    written = scope.written
    columns = "|".join(re.escape(name) for name in sorted(written, key=len, reverse=True))
    return re.sub(rf"`({columns})`|\b({columns})\b", lambda m: written[m[1] or m[2]], text)


def _with_names(text: str, names: Sequence[Name], other: Callable[[Name], str]) -> str:
    """`text` with `other` in place of each name."""
    for name in sorted(names, key=lambda each: each.start, reverse=True):
        text = f"{text[: name.start]}{other(name)}{text[name.end :]}"
    return text


def _quoted(name: str) -> str:
    return f"`{name}`"


def _meant(name: str, known: Mapping[str, str]) -> str:
    """The end of the message about an unknown column. `known`: names as shown, by the name that is
    compared."""
    by_case = {each.casefold(): shown for each, shown in known.items()}
    close = difflib.get_close_matches(name.casefold(), by_case, n=1)
    return f"; did you mean {by_case[close[0]]}?" if close else ""
