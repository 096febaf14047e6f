"""Filters on a key column that also apply to the other side: rows that fail them cannot match.

Spark infers such filters by rules of its optimizer, which the plain-Python specification cannot
reproduce; the number of state rows would then be unpredictable. So the plan disables the inference
(spark.sql.constraintPropagation.enabled), and this module decides which filters apply to both
sides.
"""

from collections.abc import Iterator

from sqlglot import exp

from job.join_spec.expressions import Expression
from job.join_spec.sides import Side
from job.plan.plan import JoinPlan

_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_NUMBERS = ("TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL")


def mirrored_filters(plan: JoinPlan, side: Side) -> tuple[Expression, ...]:
    """Conditions on `side` that follow from the other side's filter and from `condition`.

    They come from comparisons of one key column with literals, such as `k = 7`, `k IN (1, 2)`,
    `k BETWEEN 1 AND 5`, which cannot fail on any row.
    """
    if side in plan.join_type.outer_sides:  # its rows are emitted without a match
        return ()
    other: Side = "right" if side == "left" else "left"
    columns = dict(_paired_columns(plan, other, side))
    written = [plan.side(other).filter, plan.condition]
    conjuncts = [part for condition in written if condition for part in condition.conjuncts]
    return tuple(
        _renamed(part, side, columns[name])
        for part in conjuncts
        for name in _compared_column(plan, other, part)
        if name in columns
    )


def _paired_columns(plan: JoinPlan, source: Side, target: Side) -> Iterator[tuple[str, str]]:
    """(key column of `source`, key column of `target`) for pairs of plain columns."""
    for left, right in zip(plan.side(source).key, plan.side(target).key, strict=True):
        if isinstance(left.tree, exp.Column) and isinstance(right.tree, exp.Column):
            yield left.tree.name, right.tree.name


def _compared_column(plan: JoinPlan, side: Side, part: Expression) -> Iterator[str]:
    """The column that `part` compares with literals; nothing for any other condition."""
    if len(part.columns) != 1 or part.sides != {side}:
        return
    ((_, name),) = part.columns
    column = plan.side(side).schema.column(name)
    if column is not None and _is_comparison(part.tree, column.type):
        yield name


def _is_comparison(tree: exp.Expr, kind: str) -> bool:
    """Whether `tree` compares its column of type `kind` with literals of a matching type."""
    if isinstance(tree, exp.In):
        operands = [tree.this, *tree.expressions]
        return not tree.args.get("query") and _are_operands(operands, kind)
    if isinstance(tree, exp.Between):
        return _are_operands([tree.this, tree.args["low"], tree.args["high"]], kind)
    if isinstance(tree, _COMPARISONS):
        return _are_operands([tree.this, tree.expression], kind)
    return False


def _are_operands(trees: list[exp.Expr], kind: str) -> bool:
    return all(isinstance(tree, exp.Column) or _is_literal(tree, kind) for tree in trees)


def _is_literal(tree: exp.Expr, kind: str) -> bool:
    if isinstance(tree, exp.Neg):
        return isinstance(tree.this, exp.Literal) and _is_literal(tree.this, kind)
    if isinstance(tree, exp.Literal):
        return kind == "STRING" if tree.is_string else kind.startswith(_NUMBERS)
    return False


def _renamed(part: Expression, side: Side, name: str) -> Expression:
    tree, calls = (_with_column(form, side, name) for form in (part.tree, part.calls))
    return Expression(tree.sql(dialect="spark"), tree, calls, part.type)


def _with_column(tree: exp.Expr, side: Side, name: str) -> exp.Expr:
    root = exp.paren(tree.copy())
    for column in list(root.find_all(exp.Column)):
        column.replace(exp.column(exp.to_identifier(name, quoted=True), table=side))
    renamed: exp.Expr = root.this
    return renamed
