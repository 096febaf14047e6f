"""How long the rows of each side are in state."""

from datetime import timedelta

from job.plan.problems import Problems
from job.plan.tables import has_table
from job.spec.join_conditions import JoinType, MatchWindow
from job.spec.sides import OTHER_SIDE, SIDES, Side
from job.spec.spec import JoinSpec
from job.sql.questions import SqlQuestions

_NO_STATE_BOUND = (
    "has no bound on event time, so the state would grow indefinitely: set before and after of "
    "join.match_window, set join.window, or put both event times into the key"
)


def longest_retention(
    spec: JoinSpec, side: Side, event_time_in_key: bool, sql: SqlQuestions
) -> timedelta | None:
    """`_retention`, also on a calendar day on which clocks are set back."""
    retention, window = _retention(spec, side, event_time_in_key), spec.join.tumbling_window
    if retention is None or window is None:
        return retention
    return retention + sql.longest_set_back(window.time_zone)


def _retention(spec: JoinSpec, side: Side, event_time_in_key: bool) -> timedelta | None:
    """How long after its event time a row can match. None: no bound.

    A left row at t matches right rows up to t + after, a right row at t left rows up to
    t + before. See semantics/watermark_predicates.py for Spark's own rule.
    """
    if has_table(spec):
        return _until_joined(spec, side)
    if spec.join.match_window is not None:
        window = spec.join.match_window
        if side == "right" and spec.join.pick is not None:
            return _until_picked(window)
        return window.after if side == "left" else window.before
    if spec.join.tumbling_window is not None:
        return spec.join.tumbling_window.size
    return timedelta(0) if event_time_in_key else None


def _until_joined(spec: JoinSpec, side: Side) -> timedelta | None:
    """How long after its event time a row of a stream is needed: until no version of the table
    that is valid then is to be expected, or until it has waited. None: the side is the table, or
    its rows do not wait."""
    sides = {"left": spec.left, "right": spec.right}
    stream, table = sides[side], sides[OTHER_SIDE[side]]
    if table.table is None or not table.table.final:
        return None if table.table is None else table.table.wait
    return max(table.watermark_delay - stream.watermark_delay, timedelta())


def _until_picked(window: MatchWindow) -> timedelta | None:
    """How long after its event time a right row is needed: the left rows that can match it must
    have arrived, and their windows must have passed."""
    if window.before is None or window.after is None:
        return None
    return window.before + max(window.after, timedelta())


def check_state_is_bounded(problems: Problems, spec: JoinSpec, event_time_in_key: bool) -> None:
    bounded = all(_retention(spec, side, event_time_in_key) is not None for side in SIDES)
    if bounded and spec.join.unbounded_state:
        problems.add("join.unbounded_state", "true", "contradicts the window: remove it")
    if bounded or (spec.join.unbounded_state and spec.join.type is JoinType.INNER):
        return
    if spec.join.type is JoinType.INNER:
        remedy = f"{_NO_STATE_BOUND}; or write `unbounded_state: true` to allow it"
    else:
        remedy = f"{_NO_STATE_BOUND}. A {spec.join.type} join requires a bound: its unmatched "
        remedy += "rows are known only when they expire"
    problems.add("join", None, remedy)
