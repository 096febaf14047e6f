"""How Spark's optimizer simplifies an expression before and after it computes the constants.

A constant in a part that these rules remove is never computed, so it cannot fail. Each rule changes
the tree in place, and returns whether it changed something. The tree comes from `analyzed`, and has
parentheses as its root.
"""

from collections.abc import Callable, Iterator
from functools import reduce

from sqlglot import exp

from job.evaluation.sql_types import BOOLEAN
from job.sql.arithmetic import TRY_SIGNS
from job.sql.nodes import (
    cast_to,
    constants_of,
    field_of,
    is_call,
    is_null,
    is_value,
    null_of,
    operands,
    replace,
    type_of,
    typed,
)
from job.sql.nullability import nullable
from job.sql.signatures import SIGNATURES

_NULL_INTOLERANT = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Neg, exp.Not, exp.Cast,
    exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Like, exp.RegexpLike, exp.Dot, exp.Bracket,
)  # fmt: skip
_INTOLERANT_WITH_ONE_ARGUMENT = {
    "ceil", "floor", "to_date", "to_timestamp", "try_to_date", "try_to_timestamp",
}  # fmt: skip
_PUSHED = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.IntDiv, exp.Cast, exp.EQ, exp.LT, exp.LTE,
    exp.GT, exp.GTE, exp.NullSafeEQ, exp.Like, exp.RegexpLike, exp.Is, exp.Dot,
)  # fmt: skip
_PUSHED_CALLS = (
    "abs", "ceil", "floor", "round", "sqrt", "sign", "power", "hex", "lower", "upper", "length",
    "year", "month", "day", "dayofweek", "date_add", "date_sub", "datediff", "startswith",
    "endswith", "contains",
)  # fmt: skip
Rule = Callable[[exp.Expr], exp.Expr | None]
"""The replacement of a node whose operands are simplified; None: it stays."""


def propagate_nulls(root: exp.Expr) -> bool:
    """NullPropagation: NULL for an operation that an operand NULL makes NULL."""
    return _apply(root, _null_propagated)


def simplify(root: exp.Expr) -> bool:
    """The rules that come after the constants are computed."""
    rules = [
        _without_connector,
        _without_branches,
        _pushed_into_branches,
        _simpler_comparison,
        _reordered,
        _field,
        _as_equality,
        _first_argument,
    ]
    changes = [_apply(root, rule) for rule in rules]
    return any(changes)


def _apply(root: exp.Expr, rule: Rule) -> bool:
    changed = False
    for node in reversed(list(root.walk())):  # operands first
        if isinstance(node, (exp.Paren, exp.Identifier, exp.DataType)):
            continue
        new = rule(node)
        if new is not None:
            replace(node, new)
            changed = True
    return changed


def _null_propagated(node: exp.Expr) -> exp.Expr | None:
    if is_null(node):
        return None
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return None if nullable(operands(node)[0]) else _boolean(False)
    if isinstance(node, exp.NullSafeEQ):
        return _compared_with_null(node)
    if is_call(node, "coalesce"):
        return _without_nulls(node)
    are_null = [is_null(operand) for operand in operands(node)]
    if isinstance(node, exp.In):
        return null_of(BOOLEAN) if are_null[0] else None
    return null_of(type_of(node)) if any(are_null) and _is_null_intolerant(node) else None


def _is_null_intolerant(node: exp.Expr) -> bool:
    """Whether Spark replaces `node` by NULL if one of its operands is NULL."""
    if not isinstance(node, exp.Anonymous):
        return isinstance(node, _NULL_INTOLERANT)
    name = node.name.lower()
    if len(node.expressions) == 1 and name in _INTOLERANT_WITH_ONE_ARGUMENT:
        return True
    signature = SIGNATURES.get(name)
    return name.startswith("try_") if signature is None else signature.null_intolerant


def _boolean(value: bool) -> exp.Expr:
    return typed(exp.Boolean(this=value), BOOLEAN)


def _compared_with_null(node: exp.NullSafeEQ) -> exp.Expr | None:
    left, right = operands(node)
    if not (is_null(left) or is_null(right)):
        return None
    other = right if is_null(left) else left
    return typed(exp.Is(this=exp.Paren(this=other), expression=exp.Null()), BOOLEAN)


def _without_nulls(call: exp.Expr) -> exp.Expr | None:
    """COALESCE without its NULL arguments."""
    parts = operands(call)
    left = [part for part in parts if not is_null(part)]
    if not left:
        return null_of(type_of(call))
    if len(left) == 1:
        return left[0]
    if len(left) < len(parts):
        call.set("expressions", [exp.Paren(this=part) for part in left])
    return None


def _reordered(node: exp.Expr) -> exp.Expr | None:
    """ReorderAssociativeOperator: the constants of a sum or a product of integers become one."""
    kind = type_of(node)
    if not (isinstance(node, (exp.Add, exp.Mul)) and kind.is_integral) or _continues(node):
        return None
    constants = constants_of(node)
    terms = list(_terms(node))
    fixed = [term for term in terms if id(term) in constants]
    others = [term for term in terms if id(term) not in constants]
    if len(fixed) < 2 or not others:
        return None
    for index, term in enumerate(fixed):
        if type_of(term) != kind:
            fixed[index] = cast_to(exp.Paren(this=term), kind)
    return _chain(node, [_chain(node, others), _chain(node, fixed)])


def _continues(node: exp.Expr) -> bool:
    """Whether `node` is a term of a longer sum or product, which is reordered as a whole."""
    parent = node.parent
    while isinstance(parent, exp.Paren):
        parent = parent.parent
    return type(parent) is type(node) and type_of(parent) == type_of(node)


def _terms(node: exp.Expr) -> Iterator[exp.Expr]:
    waiting = [*reversed(operands(node))]
    while waiting:
        operand = waiting.pop()
        if type(operand) is type(node) and type_of(operand) == type_of(node):
            waiting += reversed(operands(operand))
        else:
            yield operand


def _chain(model: exp.Expr, terms: list[exp.Expr]) -> exp.Expr:
    def joined(left: exp.Expr, right: exp.Expr) -> exp.Expr:
        sides = {"this": exp.Paren(this=left), "expression": exp.Paren(this=right)}
        return typed(type(model)(**sides), type_of(model))

    return reduce(joined, terms)


def _without_connector(node: exp.Expr) -> exp.Expr | None:
    """BooleanSimplification: `x OR TRUE` is TRUE, `x AND TRUE` is `x`."""
    if not isinstance(node, (exp.And, exp.Or)):
        return None
    absorbing = isinstance(node, exp.Or)
    sides = operands(node)
    values = [bool(side.this) if isinstance(side, exp.Boolean) else None for side in sides]
    if absorbing in values:
        return _boolean(absorbing)
    if (not absorbing) in values:
        return sides[1 - values.index(not absorbing)]
    return sides[0] if sides[0] == sides[1] else None


def _without_branches(node: exp.Expr) -> exp.Expr | None:
    """SimplifyConditionals: the branch that is always taken."""
    if isinstance(node, exp.Case):
        return _shorter_case(node)
    if not isinstance(node, exp.If) or isinstance(node.parent, exp.Case):
        return None
    condition, true, false = operands(node)
    if isinstance(condition, exp.Boolean):
        return true if condition.this else false
    return false if is_null(condition) or true == false else None


def _shorter_case(case: exp.Case) -> exp.Expr | None:
    branches, default = case.args["ifs"], case.args.get("default")
    kept: list[exp.Expr] = []
    for branch in branches:
        condition = branch.this.unnest()
        is_true = isinstance(condition, exp.Boolean) and condition.this
        if is_true and not kept:
            first: exp.Expr = branch.args["true"].unnest()
            return first
        if is_true or not (is_null(condition) or isinstance(condition, exp.Boolean)):
            kept.append(branch)
        if is_true:
            default = None
            break
    while kept and default and kept[-1].args["true"].unnest() == default.unnest():
        kept.pop()
    if not kept:
        return default.unnest() if default else null_of(type_of(case))
    if len(kept) == len(branches):
        return None
    return typed(exp.Case(ifs=kept, default=default), type_of(case))


def _pushed_into_branches(node: exp.Expr) -> exp.Expr | None:
    """PushFoldableIntoBranches: an operation of a CASE and a constant, in each of its branches."""
    parts = operands(node)
    branching = [index for index, part in enumerate(parts) if isinstance(part, (exp.Case, exp.If))]
    if len(branching) != 1 or is_value(node) or not _moves_into_branches(node):
        return None
    constants = constants_of(node)
    if sum(id(part) not in constants for part in parts) != 1:
        return None
    [index] = branching
    branches = parts[index].copy()
    values = _branch_values(branches)
    if sum(value.find(exp.Column) is not None for value in values) > 1:
        return None
    for value in values:
        inner = node.copy()
        replace(operands(inner)[index], value.copy())
        replace(value, inner)
    return typed(branches, type_of(node))


def _moves_into_branches(node: exp.Expr) -> bool:
    if is_call(node, *TRY_SIGNS):  # operators in Spark, but for numbers only
        return type_of(node).is_numeric
    return isinstance(node, _PUSHED) or is_call(node, *_PUSHED_CALLS)


def _branch_values(node: exp.Expr) -> list[exp.Expr]:
    """The results of a CASE or an IF, which get a default if they have none."""
    if isinstance(node, exp.If):
        return operands(node)[1:]
    if not node.args.get("default"):
        node.set("default", null_of(type_of(node)))
    results = [branch.args["true"] for branch in node.args["ifs"]]
    return [result.unnest() for result in (*results, node.args["default"])]


def _first_argument(node: exp.Expr) -> exp.Expr | None:
    """COALESCE whose first argument is never NULL."""
    if not is_call(node, "coalesce"):
        return None
    first = operands(node)[0]
    return None if nullable(first) else first


def _field(node: exp.Expr) -> exp.Expr | None:
    """SimplifyExtractValueOps: the field of a STRUCT that the expression itself builds."""
    return field_of(node) if isinstance(node, exp.Dot) else None


def _as_equality(node: exp.Expr) -> exp.Expr | None:
    """OptimizeIn: an IN with one literal is an equality."""
    if not isinstance(node, exp.In):
        return None
    value, *options = operands(node)
    if not all(is_value(option) and option == options[0] for option in options):
        return None
    sides = [exp.Paren(this=part) for part in (value, options[0])]
    return typed(exp.EQ(this=sides[0], expression=sides[1]), BOOLEAN)


def _simpler_comparison(node: exp.Expr) -> exp.Expr | None:
    """SimplifyBinaryComparison: `x <=> x` is TRUE, `x = TRUE` is `x`."""
    if not isinstance(node, (exp.EQ, exp.NullSafeEQ)):
        return None
    left, right = operands(node)
    if isinstance(node, exp.NullSafeEQ):
        return _boolean(True) if left == right else None
    if isinstance(left, exp.Boolean):
        left, right = right, left
    if not isinstance(right, exp.Boolean):
        return None
    return left if right.this else typed(exp.Not(this=exp.Paren(this=left)), BOOLEAN)
