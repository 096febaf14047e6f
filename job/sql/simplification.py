"""What Spark's optimizer simplifies before it computes constants: NULL operands, AND and OR.

A constant in a part that the optimizer removes is never computed, so it cannot fail.
"""

from collections.abc import Callable

from sqlglot import exp

from job.sql.signatures import SIGNATURES
from job.sql.types import VOID, SqlType

_NULL_INTOLERANT = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg, exp.Not, exp.Cast,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.RegexpLike, exp.Dot,
    exp.Bracket,
)  # fmt: skip
_OF_FIRST_OPERAND = (exp.In, exp.Between)
_TYPE = "sql_type"


def null_propagated(tree: exp.Expr, type_of: Callable[[exp.Expr], SqlType]) -> exp.Expr:
    """`tree` with a NULL of the same type for each operation that a NULL operand makes NULL.

    Follows NullPropagation. `type_of`: the type of a node of `tree`.
    """
    if tree.find(exp.Null) is None:
        return tree
    root = exp.paren(tree)
    pairs = list(zip(tree.walk(), root.this.walk(), strict=True))
    for original, node in reversed(pairs):  # operands first
        if _is_null(node):
            node.replace(_typed_null(type_of(original)))
        elif _is_call(node, "coalesce", "nvl"):
            _drop_nulls(node, type_of(original))
    propagated: exp.Expr = root.this
    return propagated


def null_type(node: exp.Null) -> SqlType:
    """VOID for a NULL of the user."""
    kind = node.meta_get(_TYPE)
    return kind if isinstance(kind, SqlType) else VOID


def _typed_null(kind: SqlType) -> exp.Null:
    node = exp.Null()
    node.meta[_TYPE] = kind
    return node


def _is_null(node: exp.Expr) -> bool:
    """Whether the value of `node`, whose operands are propagated already, is NULL."""
    if isinstance(node, (exp.Paren, *_OF_FIRST_OPERAND)):
        return isinstance(node.this, exp.Null)
    if isinstance(node, exp.Anonymous):
        signature = SIGNATURES.get(node.name.lower())
        if _is_call(node, "nullif"):
            return isinstance(node.expressions[0], exp.Null)
        is_intolerant = node.name.lower().startswith("try_") or (
            signature is not None and signature.null_intolerant
        )
        if signature is not None and not signature.null_intolerant:
            return False
    else:
        is_intolerant = isinstance(node, _NULL_INTOLERANT)
    return is_intolerant and any(
        isinstance(operand, exp.Null) for operand in node.iter_expressions()
    )


def _is_call(node: exp.Expr, *names: str) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.lower() in names


def _drop_nulls(call: exp.Expr, kind: SqlType) -> None:
    """COALESCE without its NULL arguments; with one argument left, Spark computes that argument."""
    left = [argument for argument in call.expressions if not isinstance(argument, exp.Null)]
    if not left:
        call.replace(_typed_null(kind))
    elif len(left) == 1:
        call.replace(exp.paren(left[0]))
    else:
        call.set("expressions", left)


def absorbed(tree: exp.Expr) -> exp.Expr:
    """`tree` with TRUE for `x OR TRUE` and FALSE for `x AND FALSE`: new constants for Spark.

    Follows BooleanSimplification, which comes after the constants were computed once.
    """
    if tree.find(exp.Boolean) is None:
        return tree
    return tree.transform(_without_operands)


def _without_operands(node: exp.Expr) -> exp.Expr:
    value = _truth(node) if isinstance(node, (exp.And, exp.Or)) else None
    return node if value is None else exp.Boolean(this=value)


def _truth(node: exp.Expr) -> bool | None:
    """None: it depends on a row."""
    if isinstance(node, exp.Paren):
        return _truth(node.this)
    if isinstance(node, exp.Boolean):
        return bool(node.this)
    if isinstance(node, exp.Not):
        value = _truth(node.this)
        return None if value is None else not value
    if not isinstance(node, (exp.And, exp.Or)):
        return None
    values = [_truth(node.this), _truth(node.expression)]
    absorbing = isinstance(node, exp.Or)
    if absorbing in values:
        return absorbing
    return None if None in values else not absorbing
