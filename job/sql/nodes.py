"""Nodes of a checked expression: their types and operands, for the rules of Spark's optimizer.

The rules ignore parentheses: `operands` skips them, and `replace` adds them.
"""

from collections.abc import Iterator
from typing import TypeVar

from sqlglot import exp

from job.evaluation.sql_literals import integer_with_suffix
from job.evaluation.sql_types import STRING, VOID, SqlType
from job.sql.dialect import IS_CALL, SpecSql, shown

TYPE = "sql_type"
"""Key of `meta`: the SqlType of a node."""
CAST = "implicit_cast"
"""Key of `meta`: the SqlType to which Spark casts an operand."""
IN_ANALYSIS = "is_computed_in_analysis"
"""Key of `meta`: set for a constant that Spark computes even if no row needs it."""
IS_IMPLICIT = "is_implicit"
"""Key of `meta`: set for a Cast that is not in the spec."""
VALUE = "is_value"
"""Key of `meta`: set for a constant that Spark has computed. Its value is not NULL."""

_LEAVES = (exp.Literal, exp.Null, exp.Boolean, exp.Interval, exp.Column)
_NO_OPERANDS = (exp.Identifier, exp.DataType, exp.Var)
_DIVISIONS = (exp.Div, exp.Mod, exp.IntDiv)
_LAST_FIRST = ("ltrim", "rtrim", "round", "get_json_object")
"""Functions whose last argument Spark computes first: the text, the digits or the path."""
_CONDITIONAL = ("coalesce", "nanvl")
_Node = TypeVar("_Node", bound=exp.Expr)


def type_of(node: exp.Expr) -> SqlType:
    """The type that the checker found. VOID: `node` is not an operand."""
    kind = node.unnest().meta_get(TYPE)
    return kind if isinstance(kind, SqlType) else VOID


def typed(node: _Node, kind: SqlType) -> _Node:
    node.meta[TYPE] = kind
    return node


def cast_to(node: exp.Expr, kind: SqlType) -> exp.Cast:
    """`node` with an implicit cast."""
    to = exp.DataType.build(str(kind), dialect=SpecSql)
    cast = typed(exp.Cast(this=node, to=to), kind)
    cast.meta[IS_IMPLICIT] = True
    return cast


def writes_cast(source: SqlType, target: SqlType) -> bool:
    """Whether an implicit cast is written out: a constant can fail in it."""
    if source.name == target.name == "ARRAY":
        return writes_cast(source.inside("element"), target.inside("element"))
    simple = all(kind.is_atomic and not kind.is_interval for kind in (source, target))
    return simple and target != STRING and source != target


def null_of(kind: SqlType) -> exp.Expr:
    """NULL of type `kind`: a cast, because the SQL text must contain the type."""
    null = typed(exp.Null(), kind)
    return cast_to(null, kind) if kind.is_atomic and not kind.is_interval else null


def operands(node: exp.Expr) -> list[exp.Expr]:
    """Operands in the order in which Spark evaluates them."""
    return [part.unnest().unalias().unnest() for part in _parts(node) if isinstance(part, exp.Expr)]


def _parts(node: exp.Expr) -> Iterator[object]:
    if isinstance(node, _LEAVES):
        return
    if isinstance(node, exp.Case):
        for branch in node.args["ifs"]:
            yield from (branch.this, branch.args["true"])
        yield node.args.get("default")
    elif isinstance(node, exp.If):
        yield from (node.this, node.args["true"], node.args.get("false"))
    elif isinstance(node, _DIVISIONS):
        yield from (node.expression, node.this)
    elif is_call(node, *_LAST_FIRST):
        yield from reversed(node.expressions)
    else:
        parts = node.iter_expressions()
        yield from (part for part in parts if not isinstance(part, _NO_OPERANDS))


def replace(node: exp.Expr, new: exp.Expr) -> None:
    """`new` may be an operand of `node`."""
    node.replace(new if isinstance(new, _LEAVES) else exp.Paren(this=new))


def is_call(node: exp.Expr, *names: str) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in names


def is_null(node: exp.Expr) -> bool:
    """Whether `node` is NULL, with a type or without."""
    return isinstance(node, exp.Null) or (
        isinstance(node, exp.Cast) and isinstance(node.this.unnest(), exp.Null)
    )


def is_value(node: exp.Expr) -> bool:
    """Whether `node` is a literal, or a constant that Spark has computed."""
    if isinstance(node, exp.Neg):
        return isinstance(node.this, exp.Literal) and not node.this.is_string
    is_literal = isinstance(node, _LEAVES) and not isinstance(node, exp.Column)
    return is_literal or bool(node.meta_get(VALUE)) or is_null(node) or _is_typed_literal(node)


def _is_typed_literal(node: exp.Expr) -> bool:
    """Whether `node` is a literal with a type: DATE'…', TIMESTAMP'…' or 2L."""
    if integer_with_suffix(node) is not None:
        return True
    is_written = not (node.meta_get(IS_CALL) or node.meta_get(IS_IMPLICIT))
    return type(node) is exp.Cast and is_written and isinstance(node.this, exp.Literal)


def field_of(node: exp.Dot) -> exp.Expr | None:
    """The value of `struct(…).name`. None: the expression does not build the STRUCT itself."""
    [struct] = operands(node)
    if not is_call(struct, "struct", "named_struct"):
        return None
    values = operands(struct)[1::2] if is_call(struct, "named_struct") else operands(struct)
    names = [name.lower() for name, _ in type_of(struct).fields]
    return values[names.index(node.expression.name.lower())]


def constants_of(root: exp.Expr) -> set[int]:
    """The `id` of each node without a column."""
    constants: set[int] = set()
    for node in reversed(list(root.walk())):
        if not isinstance(node, exp.Column) and all(
            id(child) in constants for child in node.iter_expressions()
        ):
            constants.add(id(node))
    return constants


def is_conditional(node: exp.Expr) -> bool:
    """Whether a failing constant in `node` is not an error: a row may not need it."""
    return isinstance(node, (exp.Case, exp.If)) or is_call(node, *_CONDITIONAL)


def as_written(node: exp.Expr) -> str:
    """Text of `node` without implicit casts and needless parentheses, for messages."""
    root = exp.Paren(this=node.copy())
    for part in reversed(list(root.this.walk())):
        is_nested = isinstance(part, exp.Paren) and isinstance(
            part.this, (*_LEAVES, exp.Anonymous, exp.Cast)
        )
        if is_nested or part.meta_get(IS_IMPLICIT):
            part.replace(part.this)
    return shown(root.this.unnest())
