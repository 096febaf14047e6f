"""Lines of `streamjoin plan` about the operator of the join: pairs of a name and a text."""

from collections.abc import Iterator

from job.plan.capacity import AvailableResources
from job.plan.explain_load import rounded, size
from job.plan.join_operator import HEAP_SHARE, SLOTS_BY_KEY, sides_without_bound, slot_length
from job.plan.plan import JoinPlan
from job.plan.table_heap import LOADED_SHARE, TableHeap, table_heap
from job.spec.durations import duration_text
from job.spec.join_conditions import JoinOperator
from job.spec.sides import SIDES, Side


def operator_lines(
    plan: JoinPlan, resources: AvailableResources | None
) -> Iterator[tuple[str, str]]:
    """`resources` None: unknown."""
    if plan.operator is JoinOperator.SPARK:
        yield "operator", "spark: the join operator of Spark, with its rows in RocksDB"
        return
    yield "operator", "streamjoin: a stateful processor, with its rows on the heap of the JVM and"
    yield "", "in RocksDB, which has all rows of the last commit"
    yield from _slots(plan)
    yield "rows on the heap", _limit(plan, resources)
    yield "", "Beyond that, the slots that were used least are only in RocksDB"
    if plan.table_side is not None:
        yield from _table_lines(plan.table_side, table_heap(plan), resources)


def _slots(plan: JoinPlan) -> Iterator[tuple[str, str]]:
    by_key = f"leave the heap in {SLOTS_BY_KEY} slots, by key"
    unbounded = sides_without_bound(plan)
    if plan.table_side is not None or len(unbounded) == len(SIDES):
        yield "slots", f"rows are read and {by_key}"
        return
    length = duration_text(slot_length(plan))
    yield "slots", f"rows are read, written and removed in slots of {length}"
    if unbounded:
        yield "", f"Rows of {unbounded[0]} are read and {by_key}"


def _limit(plan: JoinPlan, resources: AvailableResources | None) -> str:
    share, partitions = f"{HEAP_SHARE:.0%} of the heap", plan.state_partitions
    if resources is None or resources.heap_bytes is None:
        return f"at most {share} of each JVM, for all {partitions} state partitions."
    of_each = size(resources.heap_bytes * HEAP_SHARE / partitions)
    return f"at most {of_each} for each of {partitions} state partitions ({share})."


def _table_lines(
    table: Side, of_rows: TableHeap | None, resources: AvailableResources | None
) -> Iterator[tuple[str, str]]:
    """Whether the heap has all rows of the table. `of_rows` None: unknown."""
    if of_rows is None:
        yield "rows of the table", f"set {table}.table.expected_keys for an estimate of their heap"
        return
    need = f"{rounded(of_rows.rows)} rows need about {size(of_rows.bytes)}"
    needed, heap = f"{of_rows.heap_gib}g", None if resources is None else resources.heap_bytes
    if heap is None:
        yield "rows of the table", f"{need}: all of them are on the heap with"
        yield "", f"STREAMJOIN_DRIVER_MEMORY={needed}, on a cluster spark.executor.memory"
    elif (share := of_rows.loaded_share(heap)) == 1:
        yield "rows of the table", f"{need}: all of them are on the heap"
        return
    else:
        yield "rows of the table", f"{need}: after a start the heap has at most {share:.0%} of"
        yield "", f"them (up to {LOADED_SHARE:.0%} of the limit), and all of them with"
        yield "", f"STREAMJOIN_DRIVER_MEMORY={needed}"
    yield "", "With less heap the results are the same, and the join is slower: it looks up"
    yield "", "the other rows in RocksDB"
