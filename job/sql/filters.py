"""Equalities of a filter: in `id = 0 AND 1 / id > 1` Spark's optimizer divides 1 by 0.

The tree comes from `analyzed`, and has parentheses as its root.
"""

from collections.abc import Iterator

from sqlglot import exp

from job.sql.nodes import is_null, is_value, operands, replace

_COMPARISONS = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ)


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
    column, value = (left, right) if isinstance(left, exp.Column) else (right, left)
    if not (isinstance(column, exp.Column) and is_value(value)) or is_null(value):
        return None
    return column.sql(), value


def _insert(values: dict[str, exp.Expr], term: exp.Expr) -> bool:
    """Replaces columns in the comparisons of `term`."""
    changed = False
    for column in list(term.find_all(exp.Column)):
        value = values.get(column.sql())
        if value is not None and column.find_ancestor(*_COMPARISONS) is not None:
            replace(column, value.copy())
            changed = True
    return changed
