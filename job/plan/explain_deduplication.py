"""Lines of `streamjoin plan` about the ids that a deduplicated side stores."""

from collections.abc import Iterator

from job.plan.capacity import expected_ids
from job.plan.explain_load import rounded, size
from job.plan.plan import JoinPlan
from job.spec.durations import duration_text
from job.spec.sides import Side


def stored_id_lines(plan: JoinPlan, side: Side) -> Iterator[tuple[str, str]]:
    """(name, text) of each line. An empty name continues the previous line."""
    of_side = plan.side(side)
    deduplication = of_side.deduplication
    assert deduplication is not None, "the caller passes a deduplicated side"
    names = ", ".join(part.text for part in deduplication.by)
    within = deduplication.within
    if plan.window:
        yield (
            f"ids of {side}",
            f"{names}: kept until the watermark has reached the end of the window",
        )
        yield "", "of the row. A row of the same window with key and id of a stored row, and"
    else:
        yield (
            f"ids of {side}",
            f"{names}: kept until the watermark is {duration_text(within)} after",
        )
        yield (
            "",
            f"{of_side.event_time_text} of the row. A row with key and id of a stored row, and",
        )
    yield (
        "",
        f"an event time at most {duration_text(within)} before or after, is counted and dropped",
    )
    yield "", "without a dead letter. A late row is counted as late. A row with a null in its"
    yield "", "id is never a duplicate"
    if (ids := expected_ids(plan, of_side)) is not None:
        at = f"At {of_side.expected_rate:,g} rows/s"
        yield ("", f"{at} up to {rounded(ids.count)} ids, {size(ids.state_bytes)} on disk")
