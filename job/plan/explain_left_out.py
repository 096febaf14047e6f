"""Lines of `streamjoin plan` about late rows, bad records, null keys and too large results."""

from collections.abc import Iterator

from job.plan.explain_real_time import dead_letter_lines
from job.plan.explain_table import LATE_ROWS
from job.plan.plan import JoinPlan
from job.spec.join_conditions import JoinOperator
from job.spec.output import Delivery
from job.spec.sides import SIDES


def left_out_lines(plan: JoinPlan) -> Iterator[tuple[str, str]]:
    """(name, text) of each line. An empty name continues the previous line."""
    time = "the end of its window" if plan.window else "its event time"
    letters = plan.dead_letter
    outcome = (
        "written to the dead-letter topic" if letters and letters.takes_late_rows else "dropped"
    )
    if plan.table_side is not None and not plan.is_as_of:
        yield ("late rows", LATE_ROWS)
    else:
        yield ("late rows", f"a row is late if {time} is not after the watermark: counted")
        yield ("", f"and {outcome}, even if it could still match")
    yield ("bad records", _bad_records(plan))
    dropped = [side for side in SIDES if plan.side(side).drops_tombstones]
    if dropped:
        yield ("", f"{' and '.join(dropped)} records without a value are counted as filtered")
    yield ("null keys", _null_keys(plan))
    yield ("too large results", _too_large(plan))
    if letters is not None:
        yield from _dead_letters(plan, letters.topic)


def _bad_records(plan: JoinPlan) -> str:
    if plan.fails_on_bad_records:
        return "the query FAILS at the first one; the message names it"
    outcome = "written to the dead-letter topic" if plan.dead_letter else "dropped"
    return f"counted by side and reason, and {outcome}"


def _too_large(plan: JoinPlan) -> str:
    if plan.fails_on_bad_records:
        return "the query FAILS at the first one; the message names it"
    if plan.dead_letter is None:
        return "counted and dropped"
    return "counted and listed in the dead-letter topic, without their value"


def _dead_letters(plan: JoinPlan, topic: str) -> Iterator[tuple[str, str]]:
    if plan.operator is JoinOperator.STREAMJOIN:
        yield from dead_letter_lines(topic, plan.output.delivery)
        return
    yield ("dead letters", f"in topic {topic}: original key, value and headers, with the reason in")
    yield ("", "headers __streamjoin.errors.*. A batch with a bad record reads the")
    yield ("", "records of that side a second time; other batches have no overhead")
    if plan.output.delivery is Delivery.EXACTLY_ONCE:
        yield ("", "Each is written once, for consumers with isolation.level=read_committed")
    else:
        yield ("", "None is lost; after a failure some may be written twice")


def _null_keys(plan: JoinPlan) -> str:
    if any(plan.null_safe) and not all(plan.null_safe):
        safe = ", ".join(
            f"left {a.text} and right {b.text}"
            for a, b, null_safe in zip(plan.left.key, plan.right.key, plan.null_safe, strict=True)
            if null_safe
        )
        return f"{_unsafe_nulls(plan)}. Not counted in {safe}: there a null matches a null"
    if all(plan.null_safe) and not plan.left.null_checked:
        return "not counted; a null matches a null"
    return _unsafe_nulls(plan)


def _unsafe_nulls(plan: JoinPlan) -> str:
    if plan.dead_letter is not None and plan.dead_letter.takes_null_keys:
        return "counted and written to the dead-letter topic"
    if not plan.null_keys_pass:
        return "counted and dropped"
    if plan.table_side is not None and plan.join_type.outer_sides:
        return (
            f"counted; a {plan.streams[0]} row with one is emitted as unmatched, a record of the "
            "table is dropped"
        )
    if all(plan.null_safe):
        return "counted; a null key matches a null key"
    outer = " or ".join(plan.join_type.outer_sides)
    tail = f"; a {outer} row with one is emitted as unmatched at once" if outer else ""
    return f"counted; a null key matches nothing{tail}"
