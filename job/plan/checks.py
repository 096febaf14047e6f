"""Parts of a spec that can fail on a record or on a result, and where they are evaluated.

A condition is a conjunction. Its parts that cannot fail are evaluated first; if one of them is not
true, the others are not evaluated. Parts of `join.condition` over one side are evaluated before the
join.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from sqlglot import exp

from job.evaluation.sql_types import BOOLEAN
from job.join_spec.can_fail import ColumnTypes, can_fail
from job.join_spec.expressions import Expression
from job.join_spec.sides import SIDES, Side


@dataclass(frozen=True)
class Condition:
    """A condition in two parts. Both must be true."""

    safe: Expression | None = None
    """Terms that cannot fail. None: every term can fail."""
    failing: Expression | None = None
    """Terms that can fail, in order. None: no term can fail."""


@dataclass(frozen=True)
class SideChecks:
    """Expressions that can fail on a record of one side."""

    filter: Condition = Condition()
    keys: tuple[int, ...] = ()
    """Indexes of the key's parts that can fail."""
    condition: Expression | None = None
    """The failing part of join.condition over only this side."""

    @property
    def any(self) -> bool:
        return bool(self.filter.failing or self.keys or self.condition)


@dataclass(frozen=True)
class ResultChecks:
    """Expressions that can fail on a pair of rows or on a result."""

    condition: Expression | None = None
    """The failing part of join.condition over both sides."""
    filter: Condition = Condition()
    columns: tuple[str, ...] = ()
    """Names of the output columns that can fail."""
    headers: tuple[str, ...] = ()
    """Names of the output headers that can fail."""
    key: bool = False
    partition_by: bool = False

    @property
    def any(self) -> bool:
        written = self.columns or self.headers or self.key or self.partition_by
        return bool(self.condition or self.filter.failing or written)


def side_checks(
    side: Side,
    key: Iterable[Expression],
    row_filter: Expression | None,
    condition: Expression | None,
    types: ColumnTypes,
) -> SideChecks:
    own = [part for part in _failing(condition, types) if _side_of(part) == side]
    return SideChecks(
        filter=_split(row_filter, types),
        keys=tuple(index for index, part in enumerate(key) if can_fail(part, types)),
        condition=_all(own),
    )


def result_checks(
    condition: Expression | None,
    row_filter: Expression | None,
    columns: Mapping[str, Expression],
    headers: Mapping[str, Expression],
    key: Expression | None,
    partition_by: Expression | None,
    types: ColumnTypes,
) -> ResultChecks:
    both = [part for part in _failing(condition, types) if _side_of(part) is None]
    return ResultChecks(
        condition=_all(both),
        filter=_split(row_filter, types),
        columns=tuple(name for name, column in columns.items() if can_fail(column, types)),
        headers=tuple(name for name, header in headers.items() if can_fail(header, types)),
        key=key is not None and can_fail(key, types),
        partition_by=partition_by is not None and can_fail(partition_by, types),
    )


def _side_of(part: Expression) -> Side | None:
    """The side before whose join the part of join.condition is evaluated. None: it needs pairs. A
    part without columns belongs to the left side."""
    sides = [side for side in SIDES if side in part.sides]
    return None if len(sides) == len(SIDES) else (*sides, SIDES[0])[0]


def _split(condition: Expression | None, types: ColumnTypes) -> Condition:
    failing = _failing(condition, types)
    if condition is None or not failing:
        return Condition(safe=condition)
    safe = [part for part in condition.conjuncts if not can_fail(part, types)]
    return Condition(_all(safe), _all(failing))


def _failing(condition: Expression | None, types: ColumnTypes) -> list[Expression]:
    parts = condition.conjuncts if condition is not None else ()
    return [part for part in parts if can_fail(part, types)]


def _all(parts: Sequence[Expression]) -> Expression | None:
    if not parts:
        return None
    text = " AND ".join(part.text for part in parts)
    tree, calls = (_and(trees) for trees in zip(*((p.tree, p.calls) for p in parts), strict=True))
    return Expression(text, tree, calls, BOOLEAN)


def _and(trees: Iterable[exp.Expr]) -> exp.Expr:
    terms: Iterator[exp.Expr] = (exp.paren(tree.copy()) for tree in trees)
    return reduce(lambda left, right: exp.And(this=left, expression=right), terms)
