"""The tree that Spark's optimizer receives for an expression that is checked.

Implicit casts are written out. CASE with an operand, BETWEEN, NULLIF, NVL and RIGHT are replaced by
the expressions that Spark evaluates in their place.
"""

from collections.abc import Callable

from sqlglot import exp

from job.evaluation.sql_types import BOOLEAN, INT, STRING, SqlType
from job.sql.arguments import ArgumentError, comparison_type
from job.sql.arithmetic import TRY_SIGNS
from job.sql.dialect import shown
from job.sql.nodes import (
    CAST,
    IN_ANALYSIS,
    cast_to,
    is_call,
    operands,
    replace,
    type_of,
    typed,
    writes_cast,
)

_NODES_MAX = 20_000


_Parts = list[exp.Expr] | None
"""The operands that Spark computes first. None: it copies them, as in a filter."""


def analyzed(tree: exp.Expr, *, is_filter: bool = False) -> list[exp.Expr]:
    """The parts that Spark computes first, and the tree; each in parentheses.

    `tree`: `meta` of its nodes contains their types and implicit casts.
    """
    root = exp.Paren(this=tree)
    parts: list[exp.Expr] = []
    for node in reversed(list(root.walk())):  # operands first
        if node is root:
            continue
        new = _replacement(node, None if is_filter else parts)
        kind = node.meta.pop(CAST, None)
        if kind is not None:
            new = cast_to(_nested(new.copy() if new is node else new), kind)
            if _is_tried(node):
                new = _tried(new)
        if node.meta.pop(IN_ANALYSIS, False):
            parts.append(_nested(new.copy()))
        if new is not node:
            replace(node, new)
    return [*parts, root]


def _replacement(node: exp.Expr, parts: _Parts) -> exp.Expr:
    _check_size(node)
    if isinstance(node, exp.Case) and node.this is not None:
        return _searched_case(node)
    if isinstance(node, (exp.NEQ, exp.NullSafeNEQ)):
        kind = exp.EQ if isinstance(node, exp.NEQ) else exp.NullSafeEQ
        equal = typed(kind(this=node.this, expression=node.expression), BOOLEAN)
        return typed(exp.Not(this=_nested(equal)), BOOLEAN)
    if isinstance(node, exp.Between):
        return _bounds(node, parts)
    for name, replacement in _REPLACEMENTS.items():
        if is_call(node, name):
            return typed(replacement(node, parts), type_of(node))
    return node


def _is_tried(operand: exp.Expr) -> bool:
    """Whether Spark catches a failure of the operand's cast, as in try_add('a', 1)."""
    call = operand.parent
    is_try = isinstance(call, exp.Anonymous) and call.name.lower() in TRY_SIGNS
    return is_try and call is not None and call.find(exp.Column) is None


def _tried(cast: exp.Cast) -> exp.Expr:
    return typed(exp.TryCast(this=cast.this, to=cast.args["to"], safe=True), type_of(cast))


def _check_size(node: exp.Expr) -> None:
    """Spark copies some operands: nested in each other, they would grow exponentially."""
    operand, times = None, 2
    if isinstance(node, exp.Case):
        operand, times = node.this, len(node.args["ifs"])
    elif isinstance(node, exp.Between):
        operand = node.this
    elif is_call(node, "nullif", "right"):
        operand = node
    if operand is not None and times * sum(1 for _ in operand.walk()) > _NODES_MAX:
        raise ArgumentError(f"{shown(node)} is nested too deep: simplify it")


def _nested(node: exp.Expr) -> exp.Paren:
    return exp.Paren(this=node)


def _compared(kind: type[exp.Binary], left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Comparison of copies of the operands, cast to their common type."""
    common = comparison_type(type_of(left), type_of(right))
    sides = [_cast(side, common) for side in (left, right)]
    return typed(kind(this=sides[0], expression=sides[1]), BOOLEAN)


def _cast(node: exp.Expr, kind: SqlType | None) -> exp.Expr:
    copy = _nested(node.copy())
    if kind is None or not writes_cast(type_of(node), kind):
        return copy
    return cast_to(copy, kind)


def _searched_case(case: exp.Case) -> exp.Expr:
    subject = case.this
    for branch in case.args["ifs"]:
        branch.set("this", _compared(exp.EQ, subject, branch.this))
    case.set("this", None)
    return case


def _bounds(between: exp.Between, parts: _Parts) -> exp.Expr:
    value = _shared(between.this, parts)
    low = _compared(exp.GTE, value, between.args["low"])
    high = _compared(exp.LTE, value, between.args["high"])
    return typed(exp.And(this=_nested(low), expression=_nested(high)), BOOLEAN)


def _nullif(call: exp.Expr, parts: _Parts) -> exp.Expr:
    value, other = call.expressions
    value = _shared(value, parts)
    equal = _compared(exp.EQ, value, other)
    return exp.If(this=equal, true=exp.Null(), false=_cast(value, None))


def _nvl(call: exp.Expr, _: _Parts) -> exp.Expr:
    return exp.Anonymous(this="COALESCE", expressions=call.expressions)


def _right(call: exp.Expr, _: _Parts) -> exp.Expr:
    text, count = call.expressions
    start = typed(exp.Neg(this=_nested(count.copy())), INT)
    rest = exp.Anonymous(this="SUBSTRING", expressions=[_nested(text.copy()), start])
    none = exp.LTE(this=_nested(count), expression=typed(exp.Literal.number(0), INT))
    empty = typed(exp.Literal.string(""), STRING)
    part = typed(exp.If(this=typed(none, BOOLEAN), true=empty, false=typed(rest, STRING)), STRING)
    is_null = typed(exp.Is(this=_nested(text), expression=exp.Null()), BOOLEAN)
    return exp.If(this=is_null, true=exp.Null(), false=_nested(part))


_REPLACEMENTS: dict[str, Callable[[exp.Expr, _Parts], exp.Expr]] = {
    "nullif": _nullif,
    "nvl": _nvl,
    "right": _right,
}


def _shared(value: exp.Expr, parts: _Parts) -> exp.Expr:
    """A column in place of `value`, which is used twice: Spark computes `value` first.

    Spark copies constants and columns, and all that is in a branch which a row may not need.
    """
    if parts is None or _is_cheap(value.unnest()) or _in_branch(value):
        return value
    parts.append(exp.Paren(this=value.copy()))
    return typed(exp.column(f"_{len(parts)}"), type_of(value))


def _is_cheap(value: exp.Expr) -> bool:
    if isinstance(value, (exp.Dot, exp.Bracket)):
        return all(_is_cheap(operand) for operand in operands(value))
    return isinstance(value, exp.Column) or value.find(exp.Column) is None


def _in_branch(node: exp.Expr) -> bool:
    """Whether `node` is in an operand that a row may not need, or that Spark copies into one."""
    while (parent := node.parent) is not None:
        if _is_branch(node, parent):
            return True
        node = parent
    return False


def _is_branch(node: exp.Expr, parent: exp.Expr) -> bool:
    if isinstance(parent, exp.Case):
        return node is not parent.this and node is not parent.args["ifs"][0]
    if isinstance(parent, exp.If):
        return node is not parent.this
    if is_call(parent, "coalesce", "nvl", "nanvl", "nullif"):
        return node is not parent.expressions[0]
    return is_call(parent, "right")
