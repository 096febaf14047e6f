"""Join state: rows, memory and updates."""

from collections.abc import Callable

from job.api.freshness import live_batch
from job.protocol.progress import HeapUse
from job.protocol.reports import SideCount
from job.spec.sides import SIDES
from service.metrics.metric import Metric, Snapshot, Value, counter, gauge


def _rows(snapshot: Snapshot) -> Value:
    last = snapshot.status.last_batch
    return None if last is None else last.state_rows


def _counted(of_side: Callable[[SideCount], int | None]) -> Callable[[Snapshot], Value]:
    """Reads a number of the last count, for the sides that have it."""

    def read(snapshot: Snapshot) -> Value:
        count = snapshot.status.state_count
        if count is None:
            return None
        numbers = {side: of_side(count.side(side)) for side in SIDES}
        return {side: number for side, number in numbers.items() if number is not None}

    return read


def _counted_at(snapshot: Snapshot) -> Value:
    count = snapshot.status.state_count
    return None if count is None else count.counted_at.timestamp()


def _count_duration(snapshot: Snapshot) -> Value:
    count = snapshot.status.state_count
    return None if count is None else count.duration_seconds


def _memory(snapshot: Snapshot) -> Value:
    last = live_batch(snapshot.status)
    return None if last is None else last.state_memory_bytes


def _custom(snapshot: Snapshot) -> Value:
    last = live_batch(snapshot.status)
    return None if last is None else last.state_custom


def _rows_on_the_heap(snapshot: Snapshot) -> Value:
    last = live_batch(snapshot.status)
    if last is None or last.heap is None:
        return None
    return {side: use.rows for side, use in last.heap.items()}


def _heap(count: Callable[[HeapUse], int]) -> Callable[[Snapshot], Value]:
    """Reads a total of the operator `streamjoin`. Absent with the operator of Spark."""

    def read(snapshot: Snapshot) -> Value:
        totals = snapshot.status.totals.heap
        return {side: count(use) for side, use in totals.items()} or None

    return read


def _probes(snapshot: Snapshot) -> Value:
    totals = snapshot.status.totals.heap
    by_place = {
        (side, place): count
        for side, use in totals.items()
        for place, count in (("heap", use.heap_probes), ("rocksdb", use.store_probes))
    }
    return by_place or None


STATE: tuple[Metric[Snapshot], ...] = (
    gauge(
        "state_rows",
        "Rows in join state, both sides. Absent after a restart until the first count: 30 s, or up "
        "to 30 minutes while a backlog is read.",
        _rows,
    ),
    gauge(
        "state_count_rows",
        "Rows in join state at the last count, streamjoin_state_count_timestamp_seconds.",
        _counted(lambda side: side.rows),
        "side",
    ),
    gauge(
        "state_count_unmatched_rows",
        "Rows in join state without a match at the last count; only sides whose unmatched rows the "
        "join type emits.",
        _counted(lambda side: side.unmatched_rows),
        "side",
    ),
    gauge(
        "state_count_stored_ids",
        "Ids of rows in the state of `deduplicate` at the last count; only deduplicated sides.",
        _counted(lambda side: side.stored_ids),
        "side",
    ),
    gauge(
        "state_count_timestamp_seconds",
        "Time of the last count of the rows in join state, in seconds since 1970.",
        _counted_at,
    ),
    gauge(
        "state_count_duration_seconds",
        "Duration of the last count of the rows in join state, in seconds.",
        _count_duration,
    ),
    gauge(
        "state_memory_bytes",
        "Memory of the state stores after the last batch, in bytes, while the query is running.",
        _memory,
    ),
    gauge(
        "state_custom",
        "Metrics of Spark's state store for the last batch, under Spark's names, while the query "
        "is running; names that end in Latency or Ms are in milliseconds.",
        _custom,
        "name",
    ),
    gauge(
        "state_heap_rows",
        "Rows on the heap after the last batch, while the query is running. This and the metrics "
        "of slots and probes exist only with the operator streamjoin.",
        _rows_on_the_heap,
        "side",
    ),
    counter(
        "state_slots_loaded",
        "Slots of rows that were read from RocksDB to the heap.",
        _heap(lambda use: use.slots_loaded),
        "side",
    ),
    counter(
        "state_slots_spilled",
        "Slots of rows that left the heap because it had reached its limit.",
        _heap(lambda use: use.slots_spilled),
        "side",
    ),
    counter(
        "state_probes",
        "Searches for matching rows of a side, by the place of the rows: slots on the heap, or "
        "lists in RocksDB.",
        _probes,
        "side",
        "place",
    ),
    counter(
        "state_rows_updated",
        "Rows written to join state, both sides.",
        lambda snapshot: snapshot.status.totals.state_rows_updated,
    ),
    counter(
        "state_rows_removed",
        "Rows evicted from join state, both sides.",
        lambda snapshot: snapshot.status.totals.state_rows_removed,
    ),
    counter(
        "state_update_seconds",
        "Time spent updating join state, in seconds, summed over the state partitions.",
        lambda snapshot: snapshot.status.totals.state_update_seconds,
    ),
    counter(
        "state_removal_seconds",
        "Time spent evicting from join state, in seconds, summed over the state partitions.",
        lambda snapshot: snapshot.status.totals.state_removal_seconds,
    ),
    counter(
        "state_commit_seconds",
        "Time spent committing join state, in seconds, summed over the state partitions.",
        lambda snapshot: snapshot.status.totals.state_commit_seconds,
    ),
)
