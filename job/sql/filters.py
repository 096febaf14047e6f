"""Equalities of a filter: in `id = 0 AND 1 / id > 1` Spark's optimizer divides 1 by 0.

The tree comes from `analyzed`, and has parentheses as its root.
"""

from collections.abc import Iterator

from sqlglot import exp

from job.sql.dialect import SpecSql
from job.sql.nodes import is_call, is_null, is_value, operands, replace, type_of
from job.sql.types import INT_RANGES

_COMPARISONS = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Like, exp.RegexpLike,
)  # fmt: skip
_COMPARISON_CALLS = ("startswith", "endswith", "contains")


def propagate_constants(root: exp.Expr) -> bool:
    """ConstantPropagation: a constant for each column that must be equal to it."""
    changed = False
    for conjunction in _conjunctions(root.unnest()):
        terms = list(_terms(conjunction))
        values = dict(found for term in terms if (found := _equality(term)) is not None)
        for term in terms:
            if values and _equality(term) is None:
                changed |= _insert(values, term)
    return changed


def _conjunctions(node: exp.Expr) -> Iterator[exp.Expr]:
    """The largest parts of OR."""
    if isinstance(node, exp.Or):
        for operand in operands(node):
            yield from _conjunctions(operand)
    else:
        yield node
        for term in _terms(node):
            if isinstance(term, exp.Or):
                yield from _conjunctions(term)


def _terms(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.And):
        for operand in operands(node):
            yield from _terms(operand)
    else:
        yield node


def _equality(term: exp.Expr) -> tuple[str, exp.Expr] | None:
    """Name and value of a column that `term` compares with a literal."""
    if not isinstance(term, (exp.EQ, exp.NullSafeEQ)):
        return None
    left, right = operands(term)
    column, value = (right, left) if is_value(left) else (left, right)
    if not is_value(value) or is_null(value):
        return None
    if isinstance(column, exp.Cast) and _fits(value, column):  # UnwrapCastInBinaryComparison
        [column] = operands(column)
    return (column.sql(), value) if isinstance(column, exp.Column) else None


def _fits(value: exp.Expr, cast: exp.Cast) -> bool:
    """Whether the operand of `cast` can be equal to the integer `value`."""
    low, high = INT_RANGES.get(type_of(operands(cast)[0]).name, (1, 0))
    text = value.sql(dialect=SpecSql).rstrip("LSY")
    return text.lstrip("-").isdigit() and low <= int(text) <= high


def _insert(values: dict[str, exp.Expr], term: exp.Expr) -> bool:
    """Replaces columns in the comparisons of `term`."""
    changed = False
    for column in list(term.find_all(exp.Column)):
        value = values.get(column.sql())
        if value is not None and _is_compared(column, term):
            replace(column, value.copy())
            changed = True
    return changed


def _is_compared(column: exp.Expr, term: exp.Expr) -> bool:
    node = column
    while node is not term and node.parent is not None:
        node = node.parent
        if isinstance(node, _COMPARISONS) or is_call(node, *_COMPARISON_CALLS):
            return True
    return False
