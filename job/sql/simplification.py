"""What Spark's optimizer simplifies before it computes constants: NULL operands, AND and OR.

A constant in a part that the optimizer removes is never computed, so it cannot fail.
"""

from collections.abc import Callable

from sqlglot import exp

from job.evaluation.evaluator import compile_constant
from job.evaluation.sql_types import VOID, SqlRuntimeError, SqlType
from job.sql.arguments import NOT_COMPUTED
from job.sql.dialect import SpecSql, parse
from job.sql.signatures import SIGNATURES

_NULL_INTOLERANT = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg, exp.Not, exp.Cast,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.RegexpLike, exp.Dot,
    exp.Bracket,
)  # fmt: skip
_CONDITIONAL = {"coalesce", "nvl", "nanvl", "nullif", "if", "right"}
_INTOLERANT_WITH_ONE_ARGUMENT = {
    "ceil", "floor", "to_date", "to_timestamp", "try_to_date", "try_to_timestamp",
}  # fmt: skip
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
    if _is_call(node, "nullif"):
        return isinstance(node.expressions[0], exp.Null)
    return _is_null_intolerant(node) and any(
        isinstance(operand, exp.Null) for operand in node.iter_expressions()
    )


def _is_null_intolerant(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Anonymous):
        return isinstance(node, _NULL_INTOLERANT)
    name = node.name.lower()
    if len(node.expressions) == 1 and name in _INTOLERANT_WITH_ONE_ARGUMENT:
        return True
    signature = SIGNATURES.get(name)
    return name.startswith("try_") if signature is None else signature.null_intolerant


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


def is_conditional(node: exp.Expr) -> bool:
    """Whether Spark computes no constants in the operands of `node`: a row may not need them."""
    return isinstance(node, (exp.Case, exp.If)) or _is_call(node, *_CONDITIONAL)


def computed_operand(conditional: exp.Expr) -> exp.Expr | None:
    """The operand of NULLIF that Spark evaluates separately, unless it is a constant."""
    operand: exp.Expr | None = None
    if _is_call(conditional, "nullif"):
        operand = conditional.expressions[0]
    return operand


def absorbed(tree: exp.Expr) -> exp.Expr:
    """`tree` with TRUE for `x OR TRUE` and FALSE for `x AND FALSE`: new constants for Spark.

    Follows BooleanSimplification, which comes after the constants were computed once.
    """
    if tree.find(exp.And, exp.Or) is None:
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
        return _computed_truth(node)
    values = [_truth(node.this), _truth(node.expression)]
    absorbing = isinstance(node, exp.Or)
    if absorbing in values:
        return absorbing
    return None if None in values else not absorbing


def _computed_truth(node: exp.Expr) -> bool | None:
    """Value of a constant condition. None: no constant, or not evaluated."""
    if node.find(exp.Column) is not None:
        return None
    try:
        value = compile_constant(parse(node.sql(dialect=SpecSql))).run(())
    except (SqlRuntimeError, *NOT_COMPUTED):
        return None
    return value if isinstance(value, bool) else None
