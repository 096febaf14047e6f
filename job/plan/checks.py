"""Parts of a spec that can fail on a record or on a result, and where they are evaluated.

A condition is a conjunction. Its parts that cannot fail are evaluated first; if one of them is not
true, the others are not evaluated. Parts of `join.condition` over one side are evaluated before the
join.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from job.spec.expressions import Expression, conjunction
from job.spec.sides import SIDES, Side


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

    columns: bool = False
    """Whether a computed column or the event time can fail."""
    filter: Condition = Condition()
    keys: tuple[int, ...] = ()
    """Indexes of the key's parts that can fail."""
    condition: Expression | None = None
    """The failing part of join.condition over only this side."""

    @property
    def any(self) -> bool:
        return bool(self.columns or self.filter.failing or self.keys or self.condition)


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
    columns: Iterable[Expression],
    key: Iterable[Expression],
    row_filter: Expression | None,
    condition: Expression | None,
) -> SideChecks:
    own = [part for part in _failing(condition) if _side_of(part) == side]
    return SideChecks(
        columns=any(column.can_fail for column in columns),
        filter=_split(row_filter),
        keys=tuple(index for index, part in enumerate(key) if part.can_fail),
        condition=conjunction(own),
    )


def result_checks(
    condition: Expression | None,
    row_filter: Expression | None,
    columns: Mapping[str, Expression],
    headers: Mapping[str, Expression],
    key: Expression | None,
    partition_by: Expression | None,
) -> ResultChecks:
    both = [part for part in _failing(condition) if _side_of(part) is None]
    return ResultChecks(
        condition=conjunction(both),
        filter=_split(row_filter),
        columns=tuple(name for name, column in columns.items() if column.can_fail),
        headers=tuple(name for name, header in headers.items() if header.can_fail),
        key=key is not None and key.can_fail,
        partition_by=partition_by is not None and partition_by.can_fail,
    )


def _side_of(part: Expression) -> Side | None:
    """The side before whose join the part of join.condition is evaluated. None: it needs pairs. A
    part without columns belongs to the left side."""
    sides = [side for side in SIDES if side in part.sides]
    return None if len(sides) == len(SIDES) else (*sides, SIDES[0])[0]


def _split(condition: Expression | None) -> Condition:
    failing = _failing(condition)
    if condition is None or not failing:
        return Condition(safe=condition)
    safe = [part for part in condition.conjuncts if not part.can_fail]
    return Condition(conjunction(safe), conjunction(failing))


def _failing(condition: Expression | None) -> list[Expression]:
    parts = condition.conjuncts if condition is not None else ()
    return [part for part in parts if part.can_fail]
