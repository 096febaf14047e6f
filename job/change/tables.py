"""A change of a join with a table. Pure.

The new query reads the table again from its beginning. Of the stream it reads rows again only if
they wait for their version; the other ones are not in state (start_offsets.py).
"""

from collections.abc import Iterator

from job.errors import Problem
from job.plan.plan import JoinPlan
from job.spec.durations import duration_text
from job.spec.sides import OTHER_SIDE, SIDES, Side

_NEW_QUERY = "Start with empty state: `streamjoin run SPEC --new-query`"


def problems(old: JoinPlan, new: JoinPlan) -> Iterator[Problem]:
    for side in SIDES:
        before, after = (plan.side(side).table for plan in (old, new))
        if (before is None) != (after is None):
            yield Problem(
                f"{side}.table",
                None,
                f"cannot be {'added' if before is None else 'removed'} in a change: the results of "
                f"a join with a table have other ids than those of a join of two streams. "
                f"{_NEW_QUERY}",
            )
        elif before is not None and after is not None and before.is_final != after.is_final:
            yield Problem(
                f"{side}.table.final",
                str(after.is_final).lower(),
                f"must stay {str(before.is_final).lower()}: it decides which rows of the "
                f"{OTHER_SIDE[side]} side have a result at the cut. {_NEW_QUERY}",
            )
        elif before is not None and any(_waits_until_joined(plan) for plan in (old, new)):
            yield Problem(
                f"{side}.table.wait",
                None,
                "a join whose rows wait for the table cannot be changed: the new query reads the "
                f"table before the rows of the {OTHER_SIDE[side]} side that wait, and does not "
                f"know which of them have a result. {_NEW_QUERY}",
            )
        elif after is not None and after.is_final:
            yield from _problems_of_waiting(old, new, OTHER_SIDE[side])


def _waits_until_joined(plan: JoinPlan) -> bool:
    return plan.stream_waits and not plan.is_final


def _problems_of_waiting(old: JoinPlan, new: JoinPlan, stream: Side) -> Iterator[Problem]:
    """Rows that wait at the cut wait in both queries, and no others."""
    before, after = old.side(stream), new.side(stream)
    decides = f"it decides which rows of the {stream} side have a result at the cut. {_NEW_QUERY}"
    if before.retention != after.retention:
        yield Problem(
            f"{stream}.watermark_delay",
            duration_text(after.watermark_delay),
            f"must stay {duration_text(before.watermark_delay)}, and that of the "
            f"{OTHER_SIDE[stream]} side too: {decides}",
        )
    if before.event_time_definition != after.event_time_definition:
        yield Problem(
            f"{stream}.event_time",
            after.event_time_text,
            f"must stay {before.event_time_text}: {decides}",
        )
    if before.time_zone != after.time_zone:
        yield Problem(
            f"{stream}.time_zone", after.time_zone, f"must stay {before.time_zone}: {decides}"
        )


def effects(new: JoinPlan, *, is_changed: bool) -> Iterator[str]:
    """`is_changed`: whether the new spec gives other results than the old one."""
    side, stream = new.table_side, new.streams[0]
    gone = "A row whose tombstone Kafka has removed before the old query has read it is gone then."
    if new.is_as_of:
        gone = "A version that Kafka has removed, by compaction or retention, is gone then."
    yield f"The {side} side, a table, is read again from its beginning. {gone}"
    if new.is_final:
        yield (
            f"Rows of the {stream} side that wait at the cut are read again. A version that was "
            "late in the old query counts for them."
        )
    if is_changed:
        yield (
            f"Rows of the {stream} side that have no result at the cut follow the new spec. "
            "Results before the cut do not change."
        )
