"""Equalities of a filter: in `id = 0 AND 1 / id > 1` Spark's optimizer divides 1 by 0.

The tree comes from `analyzed`, and has parentheses as its root.
"""

from collections.abc import Iterable, Iterator
from functools import reduce

from sqlglot import exp

from job.evaluation.sql_types import BOOLEAN, INT_RANGES
from job.sql.dialect import SpecSql
from job.sql.nodes import is_call, is_null, is_value, operands, replace, type_of, typed

_COMPARISONS = (
    exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.Like, exp.RegexpLike,
)  # fmt: skip
_COMPARISON_CALLS = ("startswith", "endswith", "contains", "array_contains")


def group_by_side(root: exp.Expr) -> None:
    """PushDownPredicates: the terms of the left side and constants, the right side, both sides.

    `a AND (FALSE AND b)` becomes `(a AND FALSE) AND b`, so Spark computes a constant `b`.
    """
    terms = list(_terms(root.unnest()))
    groups: dict[int, list[exp.Expr]] = {0: [], 1: [], 2: []}
    for term in terms:
        sides = _sides(term)
        groups[2 if len(sides) > 1 else int("right" in sides)].append(term)
    root.set("this", _all_of([_all_of(group) for group in groups.values() if group]))


def _all_of(terms: list[exp.Expr]) -> exp.Expr:
    def joined(left: exp.Expr, right: exp.Expr) -> exp.Expr:
        both = exp.And(this=exp.Paren(this=left), expression=exp.Paren(this=right))
        return typed(both, BOOLEAN)

    return reduce(joined, terms)


def propagate_constants(root: exp.Expr) -> bool:
    """ConstantPropagation: a constant for each column that must be equal to it.

    Spark moves each term with columns of one side to that side first. It changes no other terms.
    """
    terms = list(_terms(root.unnest()))
    known = _equalities(term for term in terms if len(_sides(term)) == 1)
    for term in terms:
        known |= _inferred(term, known)
    changed = False
    for term in terms:
        if _is_of_one_side(term) and _equality(term) is None:
            changed |= _insert(known, term) | _inside_or(term)
    return changed


def _is_of_one_side(term: exp.Expr) -> bool:
    """Also for an equality of an expression of each side, on which Spark joins."""
    parts = operands(term) if isinstance(term, exp.EQ) else [term]
    return all(len(_sides(part)) <= 1 for part in parts)


def _sides(term: exp.Expr) -> set[str]:
    return {column.name.partition("_")[0] for column in term.find_all(exp.Column)}


def _inferred(term: exp.Expr, known: dict[str, exp.Expr]) -> dict[str, exp.Expr]:
    """The constant of a column that is equal to a column with a constant."""
    if not isinstance(term, exp.EQ):
        return {}
    names = [side.sql() for side in operands(term) if isinstance(side, exp.Column)]
    pairs = [names, names[::-1]] if len(names) > 1 else []
    return {other: known[name] for name, other in pairs if name in known and other not in known}


def _inside_or(term: exp.Expr) -> bool:
    """As `propagate_constants`, in each operand of OR."""
    if not isinstance(term, exp.Or):
        return False
    changed = False
    for operand in operands(term):
        terms = list(_terms(operand))
        known = _equalities(terms)
        for part in terms:
            if known and _equality(part) is None:
                changed |= _insert(known, part)
            changed |= _inside_or(part)
    return changed


def _terms(node: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(node, exp.And):
        for operand in operands(node):
            yield from _terms(operand)
    else:
        yield node


def _equalities(terms: Iterable[exp.Expr]) -> dict[str, exp.Expr]:
    return dict(pair for term in terms if (pair := _equality(term)) is not None)


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
