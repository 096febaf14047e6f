"""Bounds of the state that can be evicted. Ports StreamingSymmetricHashJoinHelper and
StreamingJoinHelper.

Three cases for each side, as in the class comment of StreamingSymmetricHashJoinExec:

1. A join key carries the watermark (of either side): a predicate on the key. Both sides evict rows
   with `key <= watermark`.
2. The ON condition bounds the event time of this side by that of the other: a predicate on the
   value. With `right < left + 8 minutes`, and no later right rows at or before the watermark, left
   rows at or before `watermark - 8 minutes` cannot match any more.
3. Neither: the state of this side is never evicted.

The arithmetic is that of Spark, in doubles. Spark takes any comparison with a column of this side
for a bound, not only one with event times: `left.cost > 5` in ON bounds left state by 5000 ms after
the epoch, and because the lowest bound counts, nothing is evicted. The plan must hide such
comparisons from Spark.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sqlglot import exp

from job.evaluation.intervals import interval
from job.semantics.rows import SIDES, Side, other


@dataclass(frozen=True)
class WatermarkPredicate:
    """JoinStateWatermarkPredicate: state with `key or value <= watermark` can be evicted."""

    on: Literal["key", "value"]
    watermark_ms: int
    previous_ms: int | None = None
    """Earlier batches have evicted all rows up to this time; format 4 starts its scan here."""

    def __str__(self) -> str:
        return f"{self.on} predicate: <= {self.watermark_ms * 1000}"


@dataclass(frozen=True)
class WatermarkPredicates:
    """JoinStateWatermarkPredicates."""

    left: WatermarkPredicate | None = None
    right: WatermarkPredicate | None = None

    def of(self, side: Side) -> WatermarkPredicate | None:
        return self.left if side == "left" else self.right

    @property
    def any_defined(self) -> bool:
        return self.left is not None or self.right is not None


@dataclass(frozen=True)
class JoinCondition:
    """Inputs of getStateWatermarkPredicates."""

    event_time: Mapping[Side, str]
    """Watermark column of each side; a side without a watermark has no entry."""
    watermark_keys: Mapping[Side, int] = field(default_factory=dict)
    """Ordinal of the first join key of a side that is its event-time column (or its window)."""
    conjuncts: Sequence[exp.Expr] = ()
    """The ON clause without the equality of keys; columns are qualified left and right."""


def state_watermark_predicates(
    condition: JoinCondition, *, eviction_ms: int, late_ms: int
) -> WatermarkPredicates:
    """getStateWatermarkPredicates for one micro-batch and its two watermarks."""
    predicates = {
        side: _one_side(condition, side, eviction_ms=eviction_ms, late_ms=late_ms) for side in SIDES
    }
    return WatermarkPredicates(**predicates)


def _one_side(
    condition: JoinCondition, side: Side, *, eviction_ms: int, late_ms: int
) -> WatermarkPredicate | None:
    """getOneSideStateWatermarkPredicate."""
    if condition.watermark_keys:  # cases 1 and 3 of the class comment
        # The last scan ended at the watermark only if the key is the event time of this side: rows
        # with another column may arrive behind it.
        previous = late_ms if side in condition.watermark_keys else None
        return WatermarkPredicate("key", eviction_ms, previous)
    if side not in condition.event_time:
        return None
    watermark = state_value_watermark(condition, side, eviction_ms)
    if watermark is None:
        return None
    # Rows between the late-row watermark and a bound above it are still accepted, and the next scan
    # must find them.
    previous = state_value_watermark(condition, side, late_ms)
    reached = previous is not None and previous <= late_ms
    return WatermarkPredicate("value", watermark, previous if reached else None)


def state_value_watermark(condition: JoinCondition, side: Side, watermark_ms: int) -> int | None:
    """getStateValueWatermark: the lowest bound of the conjuncts for the event time of `side`.

    Eviction includes the bound. `left > W` evicts left <= W; `left >= W` must keep W, so its bound
    is one millisecond less.
    """
    if other(side) not in condition.event_time:
        return None
    bounds = [
        bound
        for conjunct in condition.conjuncts
        if (bound := _bound(conjunct, condition, side, watermark_ms)) is not None
    ]
    return min(bounds, default=None)


def _bound(
    conjunct: exp.Expr, condition: JoinCondition, side: Side, watermark_ms: int
) -> int | None:
    low, high = conjunct.this, conjunct.args.get("expression", exp.Null())
    match conjunct:
        case exp.Paren():
            return _bound(low, condition, side, watermark_ms)
        case exp.LT():
            return _from_less_than(low, high, condition, side, watermark_ms)
        case exp.GT():
            return _from_less_than(high, low, condition, side, watermark_ms)
        case exp.LTE():
            bound = _from_less_than(low, high, condition, side, watermark_ms)
        case exp.GTE():
            bound = _from_less_than(high, low, condition, side, watermark_ms)
        case _:
            return None
    return None if bound is None else bound - 1


def _from_less_than(
    low: exp.Expr,
    high: exp.Expr,
    condition: JoinCondition,
    side: Side,
    watermark_ms: int,
) -> int | None:
    """getStateWatermarkFromLessThenPredicate.

        right + c1 < left + c2               with W for right, solved for left:
        right + c1 - left - c2 < 0           W + c1 - c2 < left

    The terms are doubles in microseconds. None: the comparison does not have this form.
    """
    try:
        terms = [*_terms(low, negated=False), *_terms(high, negated=True)]
    except ValueError:
        return None
    own = [term for term in terms if term.side == side]
    if len(own) != 1 or not own[0].negated:
        return None  # no bound, a bound of the wrong direction, or one that cannot be solved
    rest = [term for term in terms if term.side != side]
    if sum(term.side is not None for term in rest) > 1 or not rest:
        return None
    value = 0.0
    for position, term in enumerate(rest):
        number = term.value
        if term.side is not None:
            if term.column != condition.event_time.get(term.side):
                return None  # a column without a watermark has no bound
            number = watermark_ms * 1000.0
        signed = -number if term.negated else number
        value = signed if position == 0 else value + signed
    return int(value / 1000.0)


@dataclass(frozen=True)
class _Term:
    """A column (with a side) or a constant in microseconds, with a sign."""

    negated: bool
    side: Side | None = None
    column: str = ""
    value: float = 0.0


_CONSTANT_SCALE = 1_000_000.0  # a bare number is in seconds


def _terms(node: exp.Expr, *, negated: bool) -> Iterable[_Term]:
    """collectTerms: `node` as a sum; ValueError for other expressions."""
    match node:
        case exp.Paren():
            return _terms(node.this, negated=negated)
        case exp.Add():
            return [*_terms(node.this, negated=negated), *_terms(node.expression, negated=negated)]
        case exp.Sub():
            _refuse_difference_of_times(node)
            return [
                *_terms(node.this, negated=negated),
                *_terms(node.expression, negated=not negated),
            ]
        case exp.Neg():
            return _terms(node.this, negated=not negated)
        case exp.Cast() if node.to.this in _PASSED_CASTS and not isinstance(node.this, exp.Literal):
            return _terms(node.this, negated=negated)
        case exp.Column():
            side: Side = "left" if node.table == "left" else "right"
            return [_Term(negated, side, node.name)]
        case exp.Interval():
            length = interval(node)
            if length.months:
                raise ValueError("a month has no fixed length")
            return [_Term(negated, value=float(length.micros))]
        case exp.Mul(this=exp.Interval(), expression=exp.Literal()):
            (term,) = _terms(node.this, negated=negated)  # Spark has folded it already
            return [replace(term, value=term.value * float(node.expression.name))]
        case exp.Literal() if not node.is_string:
            return [_Term(negated, value=float(node.name) * _CONSTANT_SCALE)]
    raise ValueError(f"{type(node).__name__} is not a sum of columns and constants")


_PASSED_CASTS = frozenset({
    exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT, exp.DType.FLOAT,
    exp.DType.DOUBLE, exp.DType.DECIMAL, exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ,
})  # fmt: skip


def _refuse_difference_of_times(node: exp.Sub) -> None:
    """Raises ValueError for left.t - right.t: Spark does not analyze SubtractTimestamps."""
    if isinstance(node.this.unnest(), exp.Column) and isinstance(
        node.expression.unnest(), exp.Column
    ):
        raise ValueError("a difference of two columns is not a sum of times")
