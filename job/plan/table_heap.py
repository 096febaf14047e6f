"""How much heap the rows of a table need, as join/SlotRows.java stores them in join/Pages.java.

Pure. tests/unit/plan/test_table_heap.py compares the constants with the Java classes.
"""

from dataclasses import dataclass
from math import ceil

from job.plan.capacity import table_rows, unsafe_bytes
from job.plan.join_operator import HEAP_SHARE, SLOTS_BY_KEY
from job.plan.plan import JoinPlan
from job.sql.types import BIGINT

KEY_FIELDS, ROW_FIELDS = 16, 40
"""Bytes of an entry before its columns."""
FIRST_PAGE, LARGEST_PAGE = 2**9, 2**18
"""Bytes of a page. Each page of a slot is twice as large as the one before."""
HASHES_MIN, HASHES_PER_KEY, HASH_BYTES = 16, 2, 4
"""Of the hash table of a slot, which has a power of two of places."""
LOADED_SHARE = 0.7
"""Part of the limit up to which rows return from RocksDB to the heap, after a start."""

_GIB = 2**30


@dataclass(frozen=True)
class TableHeap:
    rows: float
    bytes: int
    """Of all rows, before records have replaced some."""

    @property
    def heap_gib(self) -> int:
        """Heap of a JVM that has all rows, also after a start."""
        return ceil(self.bytes / (HEAP_SHARE * LOADED_SHARE) / _GIB)

    def loaded_share(self, heap_bytes: int) -> float:
        """Part of the rows that a heap of this size has after a start."""
        return min(1, heap_bytes * HEAP_SHARE * LOADED_SHARE / self.bytes)


def table_heap(plan: JoinPlan) -> TableHeap | None:
    """None: the join has no table, or its number of keys is unknown."""
    if plan.table_side is None:
        return None
    side = plan.side(plan.table_side)
    rows = table_rows(plan, side)
    if rows is None or side.table is None or side.table.expected_keys is None:
        return None
    slots = SLOTS_BY_KEY * plan.state_partitions
    keys = ceil(side.table.expected_keys / slots)
    # The first column of a key is its slot.
    key = KEY_FIELDS + unsafe_bytes([BIGINT, *(part.type for part in side.key)])
    row = ROW_FIELDS + unsafe_bytes([*(column.type for column in side.kept_columns), BIGINT])
    of_slot = _pages(keys * key + ceil(rows / slots) * row) + _hashes(keys)
    return TableHeap(rows, slots * of_slot)


def _pages(entries: int) -> int:
    """Bytes of the pages for so many bytes of entries."""
    page = pages = FIRST_PAGE
    while pages < entries and page < LARGEST_PAGE:
        page *= 2
        pages += page
    return pages + max(0, ceil((entries - pages) / LARGEST_PAGE)) * LARGEST_PAGE


def _hashes(keys: int) -> int:
    places = max(HASHES_MIN, HASHES_PER_KEY * keys)
    return HASH_BYTES << (places - 1).bit_length()
