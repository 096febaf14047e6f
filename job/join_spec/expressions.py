"""The SQL a spec may hold: parsed, its columns resolved, checked against an allow-list.

Spark's expr() reaches static Java methods and local files (reflect, java_method, subqueries over
`text.<path>`), so nothing of the user's text is handed on: Spark gets what is written back from
the checked tree.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from job.errors import Problem, SpecError
from job.join_spec.sides import SIDES as SIDES
from job.join_spec.sides import Side as Side
from job.join_spec.value_schema import ValueSchema
from job.sql.checker import ALLOWED_FUNCTIONS, type_of
from job.sql.ddl import parsed_type, type_from
from job.sql.dialect import SpecSql, calls_as_written, parse
from job.sql.literals import canonical
from job.sql.signatures import SIGNATURES
from job.sql.types import BOOLEAN, VOID, SqlType

_DEPTH_MAX = 100
_DEPTH_OF_TYPES_MAX = 6
_READ_TWICE = {"struct", "decimal", "dec", "numeric", "char", "varchar", "array", "map"}
"""What may be a type or a call: the parser tries both."""

_SYNTAX: tuple[type[exp.Expr], ...] = (
    exp.Column, exp.Identifier, exp.Dot, exp.Bracket, exp.Paren, exp.Literal, exp.Boolean,
    exp.Null, exp.Interval, exp.IntervalSpan, exp.Var, exp.DataType, exp.DataTypeParam,
    exp.Cast, exp.TryCast,
    exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE,
    exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.Between, exp.In, exp.Like, exp.RegexpLike,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg, exp.DPipe, exp.Concat,
    exp.Case, exp.If,
)  # fmt: skip

# Written with parentheses but no function call.
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


@dataclass(frozen=True)
class Expression:
    """A checked expression over columns of the two sides."""

    text: str
    """As the user wrote it."""
    tree: exp.Expr = field(repr=False)
    """Every Column in it has `table` left or right, and its name as the schema spells it."""
    calls: exp.Expr = field(repr=False)
    """As `tree`, with each function as a call by the name the user wrote."""
    type: SqlType

    @cached_property
    def sql(self) -> str:
        """Spark SQL over the columns that `column_name` names."""
        return self.tree.transform(_physical).sql(dialect=SpecSql, comments=False)

    @cached_property
    def conjuncts(self) -> tuple["Expression", ...]:
        """The parts that must all hold, in their order."""
        parts = zip(_split(self.tree), _split(self.calls), strict=True)
        return tuple(
            Expression(part.sql(dialect=SpecSql), part, calls, BOOLEAN) for part, calls in parts
        )

    @cached_property
    def sides(self) -> frozenset[Side]:
        """The sides it mentions."""
        return frozenset(side for side, _ in self.columns)

    @cached_property
    def columns(self) -> frozenset[tuple[Side, str]]:
        """The columns it mentions."""
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
    """The name of a side's column in the dataflow, e.g. `left_ad_id`."""
    return f"{side}_{column}"


def _physical(node: exp.Expr) -> exp.Expr:
    if isinstance(node, exp.Column) and node.table:
        side: Side = "left" if node.table == "left" else "right"
        return exp.column(exp.to_identifier(column_name(side, node.name), quoted=True))
    return node


@dataclass(frozen=True)
class Scope:
    """What names mean in one field of the spec."""

    sides: Mapping[Side, ValueSchema]
    bare: Side | None = None
    """The side that a name without `left.` or `right.` belongs to."""
    outputs: Mapping[str, Expression] | None = None
    """Output columns, which may be named bare and stand for their expressions."""

    def resolve(self, parts: list[str], read: Parse) -> tuple[exp.Expr, list[str]]:
        """What `parts` (`left.a.b` → [left, a, b]) names, and the struct fields left over.

        `read`: whether an output column stands for its `tree` or its `calls`.

        Raises ValueError saying what is unknown and what is known.
        """
        first = parts[0].casefold()
        for side, schema in self.sides.items():
            if first == side and len(parts) > 1:
                return self._column(side, schema, parts[1]), parts[2:]
        if first in SIDES and len(parts) > 1 and first not in self.sides:
            raise ValueError(f"{parts[0]}.{parts[1]} cannot be used here: {self._usable()}")
        for name, expression in (self.outputs or {}).items():
            if name.casefold() == first:
                found = expression.tree if read is parse else expression.calls
                return exp.paren(found.copy()), parts[1:]
        if self.bare is not None:
            return self._column(self.bare, self.sides[self.bare], parts[0]), parts[1:]
        raise ValueError(f"{parts[0]} is not known: {self._usable()}")

    def _column(self, side: Side, schema: ValueSchema, name: str) -> exp.Expr:
        column = schema.column(name)
        if column is None:
            raise ValueError(
                f"{name} is no column of the {side} side: it has {', '.join(schema.names)}"
            )
        return exp.column(exp.to_identifier(column.name, quoted=True), table=side)

    @cached_property
    def types(self) -> dict[str, SqlType]:
        """By the columns' names in the dataflow, in lower case."""
        return {
            column_name(side, column.name).lower(): type_from(column.type)
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


def expression(text: str, scope: Scope, field: str) -> Expression:
    """`text` parsed, resolved and checked; SpecError naming `field` otherwise."""
    try:
        plain = canonical(text)
        _check_calls(plain)
        calls = _resolved(plain, scope, calls_as_written)
        kind = type_of(calls.transform(_physical), scope.types)
        tree = _resolved(plain, scope, parse)
        _check_nodes(tree)
        return Expression(text, tree, calls, kind)
    except ValueError as error:
        raise SpecError([Problem(field, text, str(error))]) from error
    except RecursionError as error:
        raise SpecError([Problem(field, text, "is nested too deep")]) from error
    except SqlglotError as error:
        raise SpecError([Problem(field, text, "is not an expression Spark SQL knows")]) from error


def predicate(text: str, scope: Scope, field: str) -> Expression:
    """As `expression`, for a filter: refused where it is not true or false."""
    parsed = expression(text, scope, field)
    if parsed.type != BOOLEAN:
        raise SpecError([Problem(field, text, _no_condition(parsed.type))])
    return parsed


def condition(text: str, scope: Scope, field: str) -> Expression:
    """As `predicate`, for the ON clause: each of the parts joined by AND; a part may be NULL."""
    parsed = expression(text, scope, field)
    for part in parsed.conjuncts:
        kind = type_of(part.calls.transform(_physical), scope.types)
        if kind not in {BOOLEAN, VOID}:
            raise SpecError([Problem(field, text, _no_condition(kind))])
    return parsed


def _no_condition(kind: SqlType) -> str:
    return (
        f"is no condition: it is {kind}, neither true nor false; compare it with something, "
        "e.g. with `=` or IS NOT NULL"
    )


def _check_calls(text: str) -> None:
    """Refuses functions by the name the user wrote, before the parser renames any."""
    tokens = sqlglot.tokenize(text, dialect=SpecSql)
    _check_depth(tokens)
    for name, following in pairwise(tokens):
        if following.token_type is TokenType.L_PAREN and _is_word(name):
            word = name.text.casefold()
            if word in _TIME_OR_CHANCE:
                raise ValueError(
                    f"{word}() gives another value each time: a batch that is run again after a "
                    "failure would give other rows"
                )
            if word not in ALLOWED_FUNCTIONS | _KEYWORDS:
                raise ValueError(f"{word}() is not one of the functions allowed in a spec")


def _check_depth(tokens: Sequence[Token]) -> None:
    """Before the parser, which would take long: twice as long for each STRUCT( in another."""
    open_words: list[str] = []
    for before, token in pairwise([None, *tokens]):
        if token is None:
            continue
        if token.token_type in {TokenType.L_PAREN, TokenType.L_BRACKET}:
            open_words.append(before.text.casefold() if before is not None else "")
        elif token.token_type in {TokenType.R_PAREN, TokenType.R_BRACKET} and open_words:
            open_words.pop()
        if len(open_words) > _DEPTH_MAX:
            raise ValueError(f"is nested more than {_DEPTH_MAX} deep")
        if sum(word in _READ_TWICE for word in open_words) > _DEPTH_OF_TYPES_MAX:
            raise ValueError(f"nests struct() or types more than {_DEPTH_OF_TYPES_MAX} deep")


def _is_word(token: Token) -> bool:
    return token.text.replace("_", "").isalnum() and token.token_type is not TokenType.STRING


def _resolved(text: str, scope: Scope, read: Parse) -> exp.Expr:
    """`text` parsed, with each column replaced by what the scope says it names."""
    root = exp.paren(read(text))
    # Listed first: what replaces a column holds columns that are resolved already.
    for column in list(root.find_all(exp.Column)):
        target, members = scope.resolve([part.name for part in column.parts], read)
        for member in members:
            target = exp.Dot(this=target, expression=exp.to_identifier(member, quoted=True))
        column.replace(target)
    resolved: exp.Expr = root.this
    return resolved


def _check_nodes(tree: exp.Expr) -> None:
    for node, depth in _with_depth(tree):
        if depth > _DEPTH_MAX:
            raise ValueError(f"is nested more than {_DEPTH_MAX} deep")
        if isinstance(node, exp.Query) or (isinstance(node, exp.In) and node.args.get("query")):
            raise ValueError("holds a subquery: only columns, literals and functions may be used")
        if isinstance(node, (exp.CurrentTimestamp, exp.CurrentDate)):
            raise ValueError("asks for the time of day: a batch run again would give other rows")
        if isinstance(node, exp.Anonymous) and node.name.casefold() in ALLOWED_FUNCTIONS:
            continue
        if type(node) is exp.DataType:
            parsed_type(node)
        if type(node) not in _allowed_nodes():
            raise ValueError(f"holds {node.sql(dialect='spark')[:60]}, which a spec may not use")


def _with_depth(tree: exp.Expr, depth: int = 0) -> Iterator[tuple[exp.Expr, int]]:
    """Terms joined by AND, or by OR, are as deep as the first of them."""
    yield tree, depth
    if depth <= _DEPTH_MAX:
        for child in tree.iter_expressions():
            is_chained = isinstance(tree, (exp.And, exp.Or)) and type(child) is type(tree)
            yield from _with_depth(child, depth if is_chained else depth + 1)


@cache
def _allowed_nodes() -> frozenset[type[exp.Expr]]:
    """What the parser makes of the allowed functions, and the syntax around them."""
    nodes: set[type[exp.Expr]] = set(_SYNTAX)
    for name in ALLOWED_FUNCTIONS:
        signature = SIGNATURES.get(name)
        least, most = (signature.least, signature.most or 2) if signature else (2, 3)
        for count in range(max(least, 1), most + 1):
            call = f"{name}({', '.join('abcd'[:count])})"
            with suppress(SqlglotError):  # of another number of arguments than the parser knows
                nodes.update(type(node) for node in parse(call).walk())
    for call in ("named_struct('x', a)", "date_trunc('HOUR', a)"):
        nodes.update(type(node) for node in parse(call).walk())
    return frozenset(nodes) - {exp.Anonymous}
