"""SQL expressions of a spec: parsed, resolved to columns, and checked against an allow-list.

Spark's expr() reaches static Java methods and local files (reflect, java_method, subqueries over
`text.<path>`). So Spark never receives the user's text, only SQL generated from the checked tree.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from job.errors import Problem, SpecError
from job.evaluation.sql_types import BOOLEAN, STRING, VOID, SqlType
from job.join_spec.grouping import check_grouping, grouped
from job.join_spec.sides import SIDES, Side
from job.join_spec.value_schema import ValueSchema
from job.sql.checker import ALLOWED_FUNCTIONS, kind_of, type_of
from job.sql.constants import is_false
from job.sql.ddl import parsed_type, type_from
from job.sql.dialect import SpecSql, calls_as_written, parse
from job.sql.literals import canonical
from job.sql.signatures import SIGNATURES

_DEPTH_MAX = 100
_DEPTH_OF_TYPES_MAX = 6
_READ_TWICE = {"struct", "decimal", "dec", "numeric", "char", "varchar", "array", "map"}
"""Words that begin a type or a call: the parser tries both."""

_SYNTAX: tuple[type[exp.Expr], ...] = (
    exp.Column, exp.Identifier, exp.Dot, exp.Bracket, exp.Paren, exp.Literal, exp.Boolean,
    exp.Null, exp.Interval, exp.IntervalSpan, exp.Var, exp.DataType, exp.DataTypeParam,
    exp.Cast, exp.TryCast,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE,
    exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.Between, exp.In, exp.Like, exp.RegexpLike,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg, exp.DPipe, exp.Concat,
    exp.Case, exp.If,
)  # fmt: skip

# Words before a parenthesis that are not function names.
_KEYWORDS = {"in", "and", "or", "not", "when", "then", "else", "case", "between", "is", "like"}
_KEYWORDS |= {
    "rlike",
    "regexp",
    "div",
    "cast",
    "try_cast",
    "decimal",
    "dec",
    "numeric",
    "char",
    "varchar",
    "interval",
}

_TIME_OR_CHANCE = {
    "now", "current_timestamp", "current_date", "localtimestamp", "rand", "randn", "random",
    "uuid", "shuffle", "monotonically_increasing_id", "unix_timestamp",
}  # fmt: skip


Parse = Callable[[str], exp.Expr]
# Each field of a spec has its own Scope over the same columns.
_column_type = lru_cache(maxsize=1_000)(type_from)


@dataclass(frozen=True)
class Expression:
    """A checked expression over columns of the two sides."""

    text: str
    """Text in the spec."""
    tree: exp.Expr = field(repr=False)
    """Each Column has the table left or right, and the name in the spelling of the schema."""
    calls: exp.Expr = field(repr=False)
    """As `tree`, but each function is a call with the name in the spec."""
    type: SqlType

    @cached_property
    def sql(self) -> str:
        """Spark SQL over the columns of the dataflow (`column_name`).

        Written from `calls`: sqlglot's own nodes lose arguments, e.g. the default format of
        to_date, or a column as the unit of date_trunc.
        """
        return self.calls.transform(_physical).sql(dialect=SpecSql, comments=False)

    @cached_property
    def conjuncts(self) -> tuple["Expression", ...]:
        """The terms joined by AND, in order."""
        parts = zip(_split(self.tree), _split(self.calls), strict=True)
        return tuple(
            Expression(part.sql(dialect=SpecSql), part, calls, BOOLEAN) for part, calls in parts
        )

    @cached_property
    def sides(self) -> frozenset[Side]:
        """Sides of the columns in the expression."""
        return frozenset(side for side, _ in self.columns)

    @cached_property
    def columns(self) -> frozenset[tuple[Side, str]]:
        """Columns in the expression."""
        return frozenset(
            (side, column.name)
            for column in self.tree.find_all(exp.Column)
            for side in SIDES
            if column.table == side
        )


def _split(tree: exp.Expr) -> Iterator[exp.Expr]:
    tree = tree.unnest()
    if isinstance(tree, exp.And):
        yield from _split(tree.this)
        yield from _split(tree.expression)
    else:
        yield tree


def column_name(side: Side, column: str) -> str:
    """Name of a side's column in the dataflow, e.g. `left_ad_id`."""
    return f"{side}_{column}"


def _physical(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Column) and node.table:
        side: Side = "left" if node.table == "left" else "right"
        return exp.column(exp.to_identifier(column_name(side, node.name), quoted=True))
    return node


def _with_named_fields(tree: exp.Expr) -> exp.Expr:
    """`tree`, with a name for each field of struct() that Spark would name after a column."""
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name.casefold() == "struct":
            for part in call.expressions:
                if isinstance(part, (exp.Column, exp.Dot)):
                    name = exp.to_identifier(part.name, quoted=True)
                    part.replace(exp.alias_(part.copy(), name))
    return tree


@dataclass(frozen=True)
class Scope:
    """Names that one field of the spec can use."""

    sides: Mapping[Side, ValueSchema]
    bare: Side | None = None
    """Side of names without `left.` or `right.`. None: such names are output columns."""
    outputs: Mapping[str, Expression] | None = None
    """Output columns by name. In an expression they are replaced by their own expressions."""

    def resolve(self, parts: list[str], parser: Parse) -> tuple[exp.Expr, list[str]]:
        """The column that `parts` (`left.a.b` → [left, a, b]) names, and the rest: struct fields.

        `parser`: with `parse` an output column is replaced by its `tree`, otherwise by its `calls`.

        ValueError names the unknown part and the known names.
        """
        first = parts[0].casefold()
        for side, schema in self.sides.items():
            if first == side and len(parts) > 1:
                return self._column(side, schema, parts[1]), parts[2:]
        if first in SIDES and len(parts) > 1 and first not in self.sides:
            raise ValueError(f"{parts[0]}.{parts[1]} cannot be used here: {self._usable()}")
        for name, expression in (self.outputs or {}).items():
            if name.casefold() == first:
                tree = expression.tree if parser is parse else expression.calls
                return exp.paren(tree.copy()), parts[1:]
        if self.bare is not None:
            return self._column(self.bare, self.sides[self.bare], parts[0]), parts[1:]
        raise ValueError(f"unknown column {parts[0]}: {self._usable()}")

    def _column(self, side: Side, schema: ValueSchema, name: str) -> exp.Expr:
        column = schema.column(name)
        if column is None:
            raise ValueError(
                f"unknown column {name} of the {side} side: it has {', '.join(schema.names)}"
            )
        return exp.column(exp.to_identifier(column.name, quoted=True), table=side)

    @cached_property
    def types(self) -> dict[str, SqlType]:
        """Types by the column's name in the dataflow, in lower case."""
        return {
            column_name(side, column.name).lower(): _column_type(column.type)
            for side, schema in self.sides.items()
            for column in schema.columns
        }

    def _usable(self) -> str:
        columns = [
            name if side == self.bare else f"{side}.{name}"
            for side, schema in self.sides.items()
            for name in schema.names
        ]
        return f"use {', '.join([*(self.outputs or {}), *columns])}"


def expression(text: str, scope: Scope, field: str, *, is_filter: bool = False) -> Expression:
    """`text` parsed, resolved and checked. SpecError with `field` if `text` is invalid."""
    try:
        plain = canonical(text)
        _check_calls(plain)
        calls = grouped(_with_named_fields(_resolved(plain, scope, calls_as_written)))
        check_grouping(calls)
        kind = type_of(calls.transform(_physical), scope.types, is_filter=is_filter)
        tree = grouped(_resolved(plain, scope, parse))
        _check_nodes(tree)
        return Expression(text, tree, calls, kind)
    except ValueError as error:
        raise SpecError([Problem(field, text, str(error))]) from error
    except RecursionError as error:
        raise SpecError([Problem(field, text, "is nested too deep: simplify it")]) from error
    except SqlglotError as error:
        raise SpecError([Problem(field, text, "is not a valid Spark SQL expression")]) from error


def predicate(text: str, scope: Scope, field: str) -> Expression:
    """As `expression`, for a filter: the type must be BOOLEAN."""
    return _boolean(expression(text, scope, field, is_filter=True), scope, field, (BOOLEAN,))


def condition(text: str, scope: Scope, field: str) -> Expression:
    """As `expression`, for the ON clause: the type must be BOOLEAN, or VOID of a bare NULL."""
    parsed = expression(text, scope, field)
    parts = list(_split(parsed.calls))
    if len(parts) > 1 and any(is_false(part) for part in parts):
        # The dataflow evaluates each part, and Spark none after FALSE: another one may fail.
        return Expression(text, exp.false(), exp.false(), BOOLEAN)
    return _boolean(parsed, scope, field, (BOOLEAN, VOID))


def _boolean(
    parsed: Expression, scope: Scope, field: str, accepted: Sequence[SqlType]
) -> Expression:
    if parsed.type not in accepted:
        raise SpecError([Problem(field, parsed.text, _not_boolean(parsed.type))])
    return _with_boolean_conjuncts(parsed, scope)


def _with_boolean_conjuncts(parsed: Expression, scope: Scope) -> Expression:
    """`parsed` with a cast around each STRING operand of AND.

    Spark casts such an operand implicitly, but only next to a BOOLEAN: the dataflow evaluates each
    conjunct alone.
    """
    tree, calls = parsed.tree.copy(), parsed.calls.copy()
    for conjunct, as_calls in list(zip(_split(tree), _split(calls), strict=True)):
        if kind_of(as_calls.transform(_physical), scope.types) == STRING:
            for operand in (conjunct, as_calls):
                operand.replace(exp.cast(operand.copy(), BOOLEAN.name, dialect=SpecSql))
    return Expression(parsed.text, tree, calls, parsed.type)


def _not_boolean(kind: SqlType) -> str:
    return (
        f"is not a condition: it is {kind} and must be BOOLEAN; write a comparison, e.g. with "
        "`=` or IS NOT NULL"
    )


def _check_calls(text: str) -> None:
    """Checks the function names in the spec, before the parser renames functions."""
    tokens = sqlglot.tokenize(text, dialect=SpecSql)
    _check_depth(tokens)
    for name, next_token in pairwise(tokens):
        if next_token.token_type is TokenType.L_PAREN and _is_word(name):
            word = name.text.casefold()
            if word in _TIME_OR_CHANCE:
                raise ValueError(
                    f"{word}() is not deterministic: a batch that runs again after a failure would "
                    "have different results"
                )
            if word not in ALLOWED_FUNCTIONS | _KEYWORDS:
                raise ValueError(f"{word}() is not one of the functions allowed in a spec")


def _check_depth(tokens: Sequence[Token]) -> None:
    """Limits the depth before parsing: each nested STRUCT( doubles the time of the parser."""
    open_words: list[str] = []
    for previous, token in pairwise([None, *tokens]):
        if token is None:
            continue
        if token.token_type in {TokenType.L_PAREN, TokenType.L_BRACKET}:
            open_words.append(previous.text.casefold() if previous is not None else "")
        elif token.token_type in {TokenType.R_PAREN, TokenType.R_BRACKET} and open_words:
            open_words.pop()
        if len(open_words) > _DEPTH_MAX:
            raise ValueError(f"is nested more than {_DEPTH_MAX} deep")
        if sum(word in _READ_TWICE for word in open_words) > _DEPTH_OF_TYPES_MAX:
            raise ValueError(f"nests struct() or types more than {_DEPTH_OF_TYPES_MAX} deep")


def _is_word(token: Token) -> bool:
    return token.text.replace("_", "").isalnum() and token.token_type is not TokenType.STRING


def _resolved(text: str, scope: Scope, parser: Parse) -> exp.Expr:
    """`text` parsed, with each name resolved to a column of the scope."""
    root = exp.paren(parser(text))
    if root.find(exp.Query) is not None:
        raise ValueError("contains a subquery: use only columns, literals and functions")
    for node in root.walk():
        if type(node) is exp.DataType:  # before the name of a collation is resolved as a column
            parsed_type(node)
    # A list: a replacement contains columns that are already resolved.
    for column in list(root.find_all(exp.Column)):
        target, members = scope.resolve([part.name for part in column.parts], parser)
        for member in members:
            target = exp.Dot(this=target, expression=exp.to_identifier(member, quoted=True))
        column.replace(target)
    resolved: exp.Expr = root.this
    return resolved


def _check_nodes(tree: exp.Expr) -> None:
    for node, depth in _with_depth(tree):
        if depth > _DEPTH_MAX:
            raise ValueError(f"is nested more than {_DEPTH_MAX} deep")
        if isinstance(node, (exp.CurrentTimestamp, exp.CurrentDate)):
            raise ValueError("is not deterministic: a batch that runs again would differ")
        if isinstance(node, exp.Anonymous) and node.name.casefold() in ALLOWED_FUNCTIONS:
            continue
        if type(node) not in _SYNTAX and type(node) not in _allowed_calls():
            raise ValueError(f"contains {node.sql(dialect='spark')[:60]}, which a spec may not use")


def _with_depth(tree: exp.Expr, depth: int = 0) -> Iterator[tuple[exp.Expr, int]]:
    """Each node with its depth. All terms of a chain of ANDs, or of ORs, have the same depth."""
    yield tree, depth
    if depth <= _DEPTH_MAX:
        for child in tree.iter_expressions():
            is_chained = isinstance(tree, (exp.And, exp.Or)) and type(child) is type(tree)
            yield from _with_depth(child, depth if is_chained else depth + 1)


@cache
def _allowed_calls() -> frozenset[type[exp.Expr]]:
    """Node types that the parser creates for the allowed functions."""
    nodes: set[type[exp.Expr]] = set()
    for name in ALLOWED_FUNCTIONS:
        signature = SIGNATURES.get(name)
        least, most = (signature.least, signature.most or 2) if signature else (2, 3)
        for count in range(max(least, 1), most + 1):
            call = f"{name}({', '.join('abcd'[:count])})"
            with suppress(SqlglotError):  # no call has this number of arguments
                nodes.update(type(node) for node in parse(call).walk())
    for call in ("named_struct('x', a)", "date_trunc('HOUR', a)"):
        nodes.update(type(node) for node in parse(call).walk())
    return frozenset(nodes) - {exp.Anonymous}
