"""Expressions that Spark groups otherwise than sqlglot if they have no parentheses.

Spark receives SQL that is written from sqlglot's tree. `flag = i < 1` is `(flag = i) < 1` for Spark
and `flag = (i < 1)` for sqlglot, so such an expression is refused. Levels as in SqlBaseParser.g4 of
Spark 4.3.0 (booleanExpression, valueExpression).
"""

from collections.abc import Iterator

from sqlglot import exp

from job.sql.dialect import SpecSql

_AND, _NOT, _VALUE, _SUM, _PRODUCT, _SIGN, _PRIMARY = 1, 2, 4, 5, 6, 7, 8
_LEVELS: dict[type[exp.Expr], int] = {
    exp.Or: 0,
    exp.And: _AND,
    exp.Not: _NOT,
    **dict.fromkeys((exp.Between, exp.In, exp.Is, exp.Like, exp.RegexpLike), 3),
    # `<=>` is written as IS NOT DISTINCT FROM.
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), 3),
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE), _VALUE),
    **dict.fromkeys((exp.Add, exp.Sub, exp.DPipe), _SUM),
    **dict.fromkeys((exp.Mul, exp.Div, exp.Mod, exp.IntDiv), _PRODUCT),
    exp.Neg: _SIGN,
}


def grouped(tree: exp.Expr) -> exp.Expr:
    """`tree` with parentheses around intervals of several units, which are one literal for Spark
    and a sum for sqlglot. Changes `tree`."""
    root = exp.paren(tree, copy=False)
    intervals: set[int] = set()
    for node in reversed(list(root.find_all(exp.Add))):  # operands first
        assert node.parent is not None, "root is a Paren"
        if not all(_is_interval(side, intervals) for side in (node.this, node.expression)):
            continue
        intervals.add(id(node))
        if any(operand is node for operand in _regrouped(node.parent)):
            around = exp.Paren()
            node.replace(around)
            around.set("this", node)
    grouped_tree: exp.Expr = root.this.pop()
    return grouped_tree


def check_grouping(tree: exp.Expr) -> None:
    """Raises ValueError with the part that needs parentheses."""
    for node in tree.walk():
        for operand in _regrouped(node):
            part, whole = operand.sql(dialect=SpecSql), node.sql(dialect=SpecSql)
            raise ValueError(f"Spark groups `{whole}` in another way: write ({part})")


def _is_interval(node: exp.Expr, sums: set[int]) -> bool:
    """`sums`: ids of the sums below `node` that are intervals."""
    node = node.unnest()
    return isinstance(node, exp.Interval) or id(node) in sums


def _regrouped(node: exp.Expr) -> Iterator[exp.Expr]:
    """Operands of `node` that are no operands of it for Spark."""
    for operand, least in _operands(node):
        if isinstance(operand, exp.Expr) and _LEVELS.get(type(operand), _PRIMARY) < least:
            yield operand


def _operands(node: exp.Expr) -> Iterator[tuple[object, int]]:
    """Each operand of `node`, and the least level that it may have without parentheses."""
    level = _LEVELS.get(type(node), _PRIMARY)
    if level in {_NOT, _SIGN}:
        yield node.this, level
    elif level == _LEVELS[exp.In]:
        operands = (node.this, *(node.args.get(name) for name in ("expression", "low", "high")))
        yield from ((operand, _VALUE) for operand in operands)
    elif level < _PRIMARY:
        yield node.this, level
        yield node.expression, level if level <= _AND else level + 1
