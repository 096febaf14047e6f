"""SQL of a change, as text: late rows of the old query, and results that are kept back.

Positions are those of job/plan/position.py, so that one comparison checks the offset of a
partition.
"""

from collections.abc import Mapping, Sequence

from job.plan.plan import JoinPlan, window_end_column
from job.plan.position import partition_sql, position_column, position_sql
from job.replay.cut import LateBelow
from job.replay.replay import Expired, Replay
from job.spec.sides import OTHER_SIDE, Side
from job.spec.windows import window_end_sql

_MICROSECONDS = 1000


def was_not_late(replay: Replay, plan: JoinPlan, side: Side) -> str:
    """Condition on a row of `side`: the old query has not dropped the row as late.

    The event time of a row, or the end of its tumbling window, decides whether it is late.
    """
    if plan.side(side).table is not None or not any(late.watermark_ms for late in replay.late):
        return "true"
    time = plan.side(side).event_time_column
    if plan.window is not None:
        time = window_end_column(side)
    return f"coalesce(unix_micros(`{time}`) > {_watermark_micros(side, replay.late)}, true)"


def _watermark_micros(side: Side, late: Sequence[LateBelow]) -> str:
    """The watermark up to which a row was late. Null: no old batch has read the row."""
    cases = " ".join(
        f"WHEN {_is_before(side, each.ends[side])} THEN {each.watermark_ms * _MICROSECONDS}"
        for each in late
    )
    return f"CASE {cases} END"


def is_before_cut(replay: Replay, side: Side) -> str:
    """Condition on a record of `side`: the old query has read it."""
    return _is_before(side, replay.ends[side])


def kept_back(replay: Replay, plan: JoinPlan) -> str | None:
    """Condition on a result: the old query has emitted it as unmatched. None: no result is kept
    back."""
    terms = [_was_emitted(replay, plan, expired) for expired in replay.expired]
    return " OR ".join(terms) or None


def _was_emitted(replay: Replay, plan: JoinPlan, expired: Expired) -> str:
    side = expired.side
    column = plan.side(side).event_time_column
    if expired.window_ms is not None:
        end = window_end_sql(f"`{column}`", *expired.window_ms, expired.window_time_zone)
        leaves_after = f"({end} - 1)"
    else:
        # Watermarks are whole milliseconds, so an event time is rounded up.
        rounded = f"(unix_micros(`{column}`) + {_MICROSECONDS - 1}) div {_MICROSECONDS}"
        leaves_after = f"({rounded} + {expired.kept_ms})"
    ends = replay.ends if expired.ends is None else expired.ends
    watermark_ms = replay.watermark_ms if expired.watermark_ms is None else expired.watermark_ms
    return (
        f"({position_column(OTHER_SIDE[side])} IS NULL "
        f"AND coalesce({_is_before(side, ends[side])}, false) "
        f"AND {leaves_after} < {watermark_ms})"
    )


def _is_before(side: Side, ends: Mapping[int, int]) -> str:
    position = position_column(side)
    cases = " ".join(
        f"WHEN {number} THEN {position_sql(str(number), str(end))}" for number, end in ends.items()
    )
    return f"{position} < CASE {partition_sql(position)} {cases} ELSE -1 END"
