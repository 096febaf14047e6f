"""The first lines of `streamjoin plan`: what a user must know before the start."""

from collections.abc import Iterator

from job.plan.capacity import AvailableResources, Load, expected_load, stored_for, watermark_lag
from job.plan.explain_join import key_terms, time_bound
from job.plan.explain_load import rounded, size
from job.plan.explain_load import warnings as load_warnings
from job.plan.explain_table import LATE_ROWS, emitted_when, waited
from job.plan.explain_table import state_text as table_state
from job.plan.join_operator import sides_without_bound
from job.plan.plan import JoinPlan
from job.plan.warnings import expressions, warnings
from job.spec.durations import duration_text
from job.spec.output import Delivery
from job.spec.sides import SIDES, Side

_FIELDS_SHOWN = 3


def join_line(plan: JoinPlan) -> str:
    kind = plan.join_type.replace("_", " ")
    return (
        f"{plan.left.topic} {kind} join {plan.right.topic} on {key_terms(plan)}, {time_bound(plan)}"
    )


def summary_lines(
    plan: JoinPlan, resources: AvailableResources | None
) -> Iterator[tuple[str, str]]:
    """(name, text) of each line, at most nine. `resources` None: unknown."""
    load = expected_load(plan)
    yield "join", join_line(plan)
    yield "results", _results(plan)
    yield "unmatched rows", _unmatched(plan)
    yield "state", state_text(plan, load)
    yield "bad records", _bad_records(plan)
    yield "late rows", _late_rows(plan)
    yield "can fail", _can_fail(plan)
    yield "consumer group", f"{plan.consumer_group}: lag tools find the read offsets there"
    count = len([*warnings(plan), *(load_warnings(load, resources) if load else ())])
    if count:
        yield "WARNINGS", f"{count}: see `streamjoin plan --full`"


def _results(plan: JoinPlan) -> str:
    delivery = "at least once"
    if plan.output.delivery is Delivery.EXACTLY_ONCE:
        delivery = "exactly once for consumers with isolation.level=read_committed"
    emitted = "as soon as both rows are read, "
    if plan.table_side is not None:
        emitted = f"as soon as a {plan.streams[0]} row is read, "
        if plan.stream_waits:
            emitted = f"of a {plan.streams[0]} row {emitted_when(plan)}, "
    elif plan.pick is not None:
        emitted = f"the {plan.pick} match, {_emitted_after(plan, 'left')}, "
    elif plan.join_type.anti_side is not None:
        emitted = ""
    return f"{emitted}to topic {plan.output.topic}, {delivery}"


def _unmatched(plan: JoinPlan) -> str:
    sides = plan.join_type.outer_sides
    if not sides:
        return "are not emitted"
    if plan.table_side is not None:
        missing = "no version of its key is valid" if plan.is_as_of else "its key has no row"
        when = "at once"
        if plan.stream_waits:
            when = "then, too" if plan.is_final else waited(plan)
        return f"{sides[0]} {when}, if {missing} in the table"
    times = " and ".join(f"{side} {_emitted_after(plan, side)}" for side in sides)
    waiting = [side for side in SIDES if plan.side(side).idle_after is None]
    condition = f", while {_names(waiting)} receives records" if waiting else ""
    return f"{times}{condition}"


def _emitted_after(plan: JoinPlan, side: Side) -> str:
    """How much later than its event time an unmatched row is emitted, on the clock."""
    retention, whole = plan.side(side).retention, stored_for(plan, plan.side(side))
    assert retention is not None
    assert whole is not None, "the planner refuses outer joins without a bound"
    bound = "window" if plan.window is not None else "match window"
    until = "up to " if plan.window is not None else ""
    return (
        f"{until}{duration_text(whole)} after the event time ({duration_text(retention)} of "
        f"{bound}, {duration_text(watermark_lag(plan))} of watermark_delay), plus {_pace(plan)}"
    )


def _pace(plan: JoinPlan) -> str:
    return "two batches" if plan.real_time is None else "two seconds"


def _names(sides: list[Side]) -> str:
    return "each side" if len(sides) == len(SIDES) else f"the {sides[0]} side"


def state_text(plan: JoinPlan, load: Load | None) -> str:
    if plan.table_side is not None:
        return table_state(plan, plan.table_side, load)
    unbounded = sides_without_bound(plan)
    if unbounded:
        grows = f"WITHOUT BOUND on {_names(unbounded)} (unbounded_state)"
        if load is None:
            return grows
        return f"{grows}, grows by {size(load.growth_bytes_a_day)} per day"
    kept = []
    for side in SIDES:
        time = stored_for(plan, plan.side(side))
        assert time is not None
        kept.append(f"{side} rows for up to {duration_text(time)}")
    bound = f"bounded by the watermark: {', '.join(kept)}"
    if load is None or load.rows is None or load.state_bytes is None:
        return f"{bound}; set expected_rate on both sides for an estimate"
    return f"{bound}; about {rounded(load.rows)} rows, {size(load.state_bytes)} on disk"


def _bad_records(plan: JoinPlan) -> str:
    if plan.fails_on_bad_records:
        return "the query FAILS at the first one"
    if plan.dead_letter is not None:
        return f"counted, and written to topic {plan.dead_letter.topic}"
    return "counted and dropped"


def _late_rows(plan: JoinPlan) -> str:
    if plan.table_side is not None and not plan.is_as_of:
        return LATE_ROWS
    if plan.dead_letter is not None and plan.dead_letter.takes_late_rows:
        return f"counted, and written to topic {plan.dead_letter.topic}"
    return "counted and dropped"


def _can_fail(plan: JoinPlan) -> str:
    fields = [name for name, part in expressions(plan) if part is not None and part.can_fail]
    if not fields:
        return "no expression"
    more = len(fields) - _FIELDS_SHOWN
    names = ", ".join(fields[:_FIELDS_SHOWN]) + (f" and {more} more" if more > 0 else "")
    return f"{names}: a record or result on which one fails is bad (expression_failed)"
