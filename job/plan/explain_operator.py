"""Lines of `streamjoin plan` about the operator of the join: pairs of a name and a text."""

from collections.abc import Iterator

from job.plan.capacity import AvailableResources
from job.plan.explain_load import size
from job.plan.join_operator import HEAP_SHARE, TABLE_SLOTS, slot_length
from job.plan.plan import JoinPlan
from job.spec.durations import duration_text
from job.spec.join_conditions import JoinOperator


def operator_lines(
    plan: JoinPlan, resources: AvailableResources | None
) -> Iterator[tuple[str, str]]:
    """`resources` None: unknown."""
    if plan.operator is JoinOperator.SPARK:
        yield "operator", "spark: the join operator of Spark, with its rows in RocksDB"
        return
    yield "operator", "streamjoin: a stateful processor, with its rows on the heap of the JVM and"
    yield "", "in RocksDB, which has all rows of the last commit"
    if plan.table_side is None:
        length = duration_text(slot_length(plan))
        yield "slots", f"rows are read, written and removed in slots of {length}"
    else:
        yield "slots", f"rows are read and leave the heap in {TABLE_SLOTS} slots, by key"
    yield "rows on the heap", _limit(plan, resources)
    yield "", "Beyond that, the slots that were used least are only in RocksDB"


def _limit(plan: JoinPlan, resources: AvailableResources | None) -> str:
    share, partitions = f"{HEAP_SHARE:.0%} of the heap", plan.state_partitions
    if resources is None or resources.heap_bytes is None:
        return f"at most {share} of each JVM, for all {partitions} state partitions."
    of_each = size(resources.heap_bytes * HEAP_SHARE / partitions)
    return f"at most {of_each} for each of {partitions} state partitions ({share})."
