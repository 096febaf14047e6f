"""Which operator joins, and what the processor needs to know before Spark starts.

`spark` is StreamingSymmetricHashJoin. `streamjoin` is the processor in Java (job/join/), which has
its rows on the heap, in slots of time. Both give the same results in micro-batches; intervals of
real-time mode run only the processor. The state of one cannot be read by the other.
"""

from collections.abc import Iterator
from datetime import timedelta

from job.errors import Problem
from job.plan.plan import JoinPlan
from job.plan.side_plan import Deduplication
from job.plan.tables import has_table
from job.spec.durations import duration_text
from job.spec.engine import Engine
from job.spec.join_conditions import JoinOperator
from job.spec.sides import SIDES, Side
from job.spec.spec import JoinSpec

HEAP_SHARE = 0.3
"""Share of the heap of each JVM for rows in state. Further rows are only in RocksDB."""

SLOTS_BY_KEY = 256
"""Of a state partition, for a table, or a side whose rows do not expire (join/JoinRules.java)."""

_SLOT_MIN, _SLOT_MAX = timedelta(seconds=1), timedelta(days=30)
_SLOTS_OF_A_WINDOW = 4
_SLOTS_MAX = 64
"""Of a side, as far as its rows arrive in order."""


def operator_of(spec: JoinSpec) -> JoinOperator:
    """Of a new checkpoint."""
    if spec.engine is Engine.REAL_TIME or has_table(spec) or spec.join.pick is not None:
        return JoinOperator.STREAMJOIN
    return spec.join.operator or JoinOperator.STREAMJOIN


def unsupported(spec: JoinSpec) -> Iterator[Problem]:
    """Problems of a spec that its operator cannot run."""
    for side, written in zip(SIDES, (spec.left, spec.right), strict=True):
        refused = _refuses_deduplication(spec)
        if written.deduplicate is not None and refused is not None:
            yield Problem(f"{side}.deduplicate", ", ".join(written.deduplicate.by), refused)
    if operator_of(spec) is JoinOperator.SPARK:
        return
    for side, written in zip(SIDES, (spec.left, spec.right), strict=True):
        wait = None if written.table is None else written.table.wait
        if wait is not None and spec.engine is Engine.REAL_TIME:
            yield Problem(
                f"{side}.table.wait",
                duration_text(wait),
                "is not supported with engine real_time: an interval that is repeated could "
                "find a row of the table too late, and emit a second result. Use engine "
                "micro_batch, or remove it",
            )
    if spec.join.unbounded_state and spec.join.pick is not None:
        yield Problem(
            "join.unbounded_state",
            "true",
            "is not supported with join.pick, whose results wait until the match window has "
            "passed: set before and after of join.match_window",
        )


def _refuses_deduplication(spec: JoinSpec) -> str | None:
    if has_table(spec):
        return "is not supported in a join with a table: remove it"
    if spec.engine is Engine.REAL_TIME:
        return (
            "is not supported with engine real_time: an interval that is repeated could keep "
            "another one of two duplicates, and emit its results, too. Use engine micro_batch, or "
            "remove it"
        )
    if operator_of(spec) is JoinOperator.SPARK:
        return "needs join.operator streamjoin: use it, or remove join.operator"
    return None


def state_format(plan: JoinPlan) -> str:
    """How the processor has its rows, as the checkpoint freezes it."""
    ids = [
        f"ids of {side} in slots of {duration_text(id_slot_length(plan, deduplication))}"
        for side in SIDES
        if (deduplication := plan.side(side).deduplication) is not None
    ]
    return ", ".join([_rows_format(plan), *ids])


def _rows_format(plan: JoinPlan) -> str:
    slots = f"slots of {duration_text(slot_length(plan))}"
    if plan.table_side is not None:
        table = f"table in {SLOTS_BY_KEY} slots"
        return table if not plan.stream_waits else f"{table}, {slots}"
    unbounded = sides_without_bound(plan)
    if not unbounded:
        return slots
    by_key = f"{' and '.join(unbounded)} in {SLOTS_BY_KEY} slots"
    return by_key if len(unbounded) == len(SIDES) else f"{by_key}, {slots}"


def sides_without_bound(plan: JoinPlan) -> list[Side]:
    """The sides whose rows never leave state. Empty for a join with a table."""
    if plan.table_side is not None:
        return []
    return [side for side in SIDES if plan.side(side).retention is None]


def slot_length(plan: JoinPlan) -> timedelta:
    """The length of a slot, in whole milliseconds: a quarter of the match window, or the tumbling
    window. A row is stored for the window and the longer watermark_delay, so slots are longer if
    the delay is: there would be very many. The checkpoint freezes the length."""
    wanted = timedelta()
    if plan.window is not None:
        wanted = plan.window.size
    elif plan.match_window is not None:
        before, after = plan.match_window.before, plan.match_window.after
        wanted = ((before or timedelta()) + (after or timedelta())) // _SLOTS_OF_A_WINDOW
    elif plan.table is not None and plan.table.wait is not None:
        wanted = plan.table.wait // _SLOTS_OF_A_WINDOW
    stored = wanted * _SLOTS_OF_A_WINDOW + max(plan.side(side).watermark_delay for side in SIDES)
    return _slot_length(wanted, stored)


def id_slot_length(plan: JoinPlan, deduplication: Deduplication) -> timedelta:
    """The length of a slot of ids: half of `within`, or the tumbling window. A row finds the ids of
    its duplicates in at most five slots."""
    if plan.window is not None:
        return slot_length(plan)
    delay = max(plan.side(side).watermark_delay for side in SIDES)
    return _slot_length(deduplication.within // 2, deduplication.within + delay)


def _slot_length(wanted: timedelta, stored: timedelta) -> timedelta:
    """`stored`: for how long rows are in state."""
    length = min(max(wanted, stored // _SLOTS_MAX, _SLOT_MIN), _SLOT_MAX)
    return length - length % timedelta(milliseconds=1)
