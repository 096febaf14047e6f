"""Explains in sentences why a row with a key was not emitted. Pure.

The sentences follow from the state rows of the key, the watermark of each side, the unread records
and the dropped ones. They state only what these prove.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta

from job.instants import utc_text
from job.plan.plan import JoinPlan
from job.protocol.results import KeyRows, StateRow
from job.protocol.status import JobStatus, QueryState
from job.spec.join_conditions import JoinType
from job.spec.sides import OTHER_SIDE, SIDES, Side

_ROWS_MAX = 5


@dataclass(frozen=True)
class _Facts:
    plan: JoinPlan
    status: JobStatus
    state: Mapping[Side, KeyRows]


def explain_key(plan: JoinPlan, status: JobStatus, left: KeyRows, right: KeyRows) -> list[str]:
    """Sentences, most important first."""
    facts = _Facts(plan, status, {"left": left, "right": right})
    return [
        *_not_running(status),
        *_state_rows(facts),
        *_watermark_held_back(status),
        *_unread(status),
        *_dropped(status),
    ]


def _not_running(status: JobStatus) -> Iterator[str]:
    match status.state:
        case QueryState.RUNNING:
            return
        case QueryState.PAUSED | QueryState.STOPPED:
            yield f"The query is {status.state} and emits no rows until it is resumed."
        case _:
            reason = f": {status.last_failure.message}" if status.last_failure else ""
            yield f"The query is {status.state} and emits no rows{reason}."


def _state_rows(facts: _Facts) -> Iterator[str]:
    if not any(facts.state[side].rows for side in SIDES):
        yield (
            "No row with this key is in state on either side: it was not read yet, was a bad "
            "record, was late, failed a filter, or it expired and its result was already emitted."
        )
        return
    for side in SIDES:
        stored = facts.state[side]
        if not stored.rows:
            yield f"No {side} row with this key is in state."
        for row in stored.rows[:_ROWS_MAX]:
            yield _state_row(facts, side, row)
        if len(stored.rows) > _ROWS_MAX or stored.more:
            yield f"More {side} rows with this key are in state."


def _state_row(facts: _Facts, side: Side, row: StateRow) -> str:
    other = OTHER_SIDE[side]
    position = row.topic
    if row.offset is not None:
        position += f"/{row.partition}/{row.offset}"
    at = "" if row.event_time is None else f", event time {utc_text(row.event_time)},"
    subject = f"The {side} row {position}{at} is in state"
    if row.matched:
        return f"{subject} and has matched: its results were emitted."
    if facts.state[other].rows:
        subject += f"; results of its matches with the {other} rows in state were emitted"
    if row.leaves_after is None:
        return f"{subject}. It waits for a match indefinitely: the state of this join is unbounded."
    watermark = facts.status.watermark
    ahead = "" if watermark is None else f", {_span(row.leaves_after - watermark)} ahead of it"
    return (
        f"{subject}. It waits for a {other} row until the watermark passes "
        f"{utc_text(row.leaves_after)}{ahead}; {_outcome(facts.plan.join_type, side)}."
    )


def _outcome(join_type: JoinType, side: Side) -> str:
    if side in join_type.outer_sides:
        return "without a match it is then emitted as unmatched"
    return f"without a match it is then dropped: this join type emits no unmatched {side} rows"


def _watermark_held_back(status: JobStatus) -> Iterator[str]:
    idle = [side for side in SIDES if status.idle.get(side)]
    if idle:
        yield (
            f"The {' and '.join(idle)} side is idle: its event time follows the clock, minus "
            "idle_after and watermark_delay."
        )
        return
    without = [side for side in SIDES if status.side_watermark(side) is None]
    if without:
        yield _no_event_time(status, without)
    elif (slower := status.watermark_held_back_by) is not None:
        yield _slower_side(status, slower)


def _no_event_time(status: JobStatus, sides: list[Side]) -> str:
    partitions = {side: status.slowest_partition(side) for side in sides}
    unread = [
        f"{side} partition {status.partition_label(side, number)}"
        for side, number in partitions.items()
        if number is not None
    ]
    if unread:
        return (
            f"No readable record of {' and '.join(unread)} was read yet, and there is a backlog. "
            "Until then the watermark does not advance, and no unmatched rows are emitted."
        )
    return (
        f"The {' and '.join(sides)} side received no readable record since the job started. "
        "Without an event time of both sides the watermark does not advance, and no unmatched "
        "rows are emitted."
    )


def _slower_side(status: JobStatus, slower: Side) -> str:
    other = OTHER_SIDE[slower]
    watermark, ahead = status.side_watermark(slower), status.side_watermark(other)
    assert watermark is not None
    assert ahead is not None
    if (partition := status.watermark_held_back_by_partition) is not None:
        return (
            f"Partition {partition} of the {slower} side holds the watermark back, at "
            f"{utc_text(watermark)}: it has unread records. The watermark advances as they are "
            "read."
        )
    return (
        f"The {slower} side holds the watermark back, at {utc_text(watermark)}: the {other} side "
        f"is {_span(ahead - watermark)} ahead. The watermark advances when newer {slower} records "
        "arrive."
    )


def _unread(status: JobStatus) -> Iterator[str]:
    for side in SIDES:
        behind = None if status.brokers is None else status.brokers.side(side).behind_latest
        records = 0 if behind is None else sum(behind.values())
        if records:
            yield f"{records:,} {side} records are unread; the row or its match may be among them."


def _dropped(status: JobStatus) -> Iterator[str]:
    if late := status.totals.late_rows:
        yield (
            f"{late:,} late rows were dropped since the job started; the row or its match may be "
            "among them."
        )
    for side in SIDES:
        counts = status.side_totals(side).bad_records
        by_reason = ", ".join(f"{n:,} {reason}" for reason, n in counts.items() if n)
        if by_reason:
            yield f"Bad records of the {side} side since the job started: {by_reason}."


def _span(span: timedelta) -> str:
    seconds = span.total_seconds()
    return f"{seconds:,.1f} s" if seconds < 120 else f"{seconds / 60:,.0f} min"
