"""Parts of the sentences of `streamjoin plan` about keys and event times."""

from datetime import timedelta

from job.plan.plan import JoinPlan
from job.spec.durations import duration_text
from job.spec.sides import SIDES, Side
from job.sql.time_zones import UTC


def key_terms(plan: JoinPlan) -> str:
    pairs = zip(plan.left.key, plan.right.key, plan.null_safe, strict=True)
    terms = (f"left {a.text} {'<=>' if safe else '='} right {b.text}" for a, b, safe in pairs)
    return " and ".join(terms)


def time_bound(plan: JoinPlan) -> str:
    if plan.window is not None:
        offset = plan.window.offset
        begin = f"; windows begin {duration_text(offset)} after its multiples" if offset else ""
        zone = plan.window.time_zone
        days = "" if zone == UTC else f", calendar days of {zone}"
        return f"both in the same tumbling window of {duration_text(plan.window.size)}{days}{begin}"
    if plan.is_as_of:
        stream, table = plan.side(plan.streams[0]), plan.table_side
        time = stream.event_time_text
        return f"the version of the key on the {table} side that is valid at {stream.side} {time}"
    if plan.table_side is not None:
        return f"the newest row of the key on the {plan.table_side} side, whatever the event times"
    left, right = (f"{side} {plan.side(side).event_time_text}" for side in SIDES)
    if plan.match_window is None:
        if plan.event_time_in_key:
            return f"{left} = {right}, which is part of the key"
        return "no bound"
    before, after = plan.match_window.before, plan.match_window.after
    bounds = []
    if before is not None:
        bounds.append(f"{right} >= {left}{shift(-before)}")
    if after is not None:
        bounds.append(f"{right} <= {left}{shift(after)}")
    return " and ".join(bounds)


def shift(by: timedelta) -> str:
    if by == timedelta(0):
        return ""
    return f" + {duration_text(by)}" if by > timedelta(0) else f" - {duration_text(-by)}"


def passes(plan: JoinPlan, side: Side) -> str:
    if plan.window is not None:
        return "reaches the end of its window"
    retention = plan.side(side).retention
    assert retention is not None, "the planner refuses outer joins without a bound"
    return f"passes {plan.side(side).event_time_text}{shift(retention)}"
