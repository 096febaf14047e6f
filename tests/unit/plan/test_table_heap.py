"""The heap that the rows of a table need, and what `plan` returns of it."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from job.plan import table_heap as layout
from job.plan.capacity import AvailableResources
from job.plan.explain import explained, summarized
from job.plan.plan import JoinPlan
from job.plan.table_heap import TableHeap, table_heap
from tests.unit.specs import plan

GIB = 2**30
JAVA = Path(layout.__file__).parents[1] / "join"


def with_table(keys: int | None = 10_000_000, **changes: Any) -> JoinPlan:
    table: dict[str, Any] = {"version": "latest"} | ({"expected_keys": keys} if keys else {})
    right = {
        "topic": "users",
        "schema": "user STRING",
        "key": ["cast(record_key AS BIGINT)"],
        "table": table,
    }
    return plan(**{"join": {"type": "inner"}, "right": right, **changes})


def found(made: JoinPlan) -> TableHeap:
    heap = table_heap(made)
    assert heap is not None
    return heap


def text(made: JoinPlan, heap_bytes: int | None) -> str:
    return re.sub(r"\s+", " ", explained(made, AvailableResources(2, heap_bytes, None)))


def constant(name: str, of: str) -> str:
    """The value of a constant of a Java class."""
    match = re.search(rf"static final \w+ {name} = (.+);", (JAVA / of).read_text())
    assert match is not None, f"{of} has no constant {name}"
    return match[1]


def test_layout_is_that_of_the_java_classes() -> None:
    assert str(layout.KEY_FIELDS) == constant("KEY_COLUMNS", "SlotRows.java")
    assert str(layout.ROW_FIELDS) == constant("ROW_COLUMNS", "SlotRows.java")
    assert f"1 << {layout.FIRST_PAGE.bit_length() - 1}" == constant("FIRST_PAGE", "Pages.java")
    assert layout.LARGEST_PAGE == 8 * 2 ** int(constant("WORD_BITS", "Pages.java"))
    assert layout.HASHES_MIN == 2 * int(constant("FEW", "SlotRows.java"))
    assert str(layout.LOADED_SHARE) == constant("LOADED_TO", "JoinState.java")


def test_rows_of_the_benchmark_need_about_the_measured_heap() -> None:
    """148 bytes were measured, with texts shorter than 16 bytes."""
    made = with_table(
        left={
            "topic": "impressions",
            "schema": "ad_id BIGINT, shown_at TIMESTAMP, campaign STRING, cost DOUBLE",
            "key": ["ad_id"],
            "event_time": "shown_at",
            "table": {"version": "latest", "expected_keys": 10_000_000},
        },
        right={"topic": "clicks", "schema": "ad_id BIGINT, user STRING", "key": ["ad_id"]},
        output__columns={"campaign": "left.campaign", "shown_at": "left.shown_at"},
    )

    assert 148 <= found(made).bytes / 10_000_000 < 165


def test_wider_rows_need_more_heap() -> None:
    narrow = with_table()
    number = narrow.right.kept_columns[0]
    wide = replace(
        narrow, right=replace(narrow.right, kept_columns=(*narrow.right.kept_columns, number))
    )

    a_page_more = layout.LARGEST_PAGE * layout.SLOTS_BY_KEY * narrow.state_partitions
    more = found(wide).bytes - found(narrow).bytes
    assert 24 * 10_000_000 == pytest.approx(more, abs=a_page_more)


@pytest.mark.parametrize("keys", [1, 1_000, 100_000, 10_000_000, 10**15])
def test_heap_that_is_named_has_all_rows(keys: int) -> None:
    heap = found(with_table(keys))

    assert 1 == heap.loaded_share(heap.heap_gib * GIB)
    assert heap.heap_gib == 1 or heap.loaded_share((heap.heap_gib - 1) * GIB) < 1


def test_plan_names_the_setting_of_a_heap_that_has_the_table() -> None:
    made = with_table()
    needed = found(made).heap_gib

    assert (
        "them (up to 70% of the limit), and all of them with STREAMJOIN_DRIVER_MEMORY="
        f"{needed}g With less heap the results are the same"
    ) in text(made, 2 * GIB)
    enough = text(made, needed * GIB)
    assert "10,000,000 rows need about 1.6 GiB: all of them are on the heap" in enough
    assert "slower" not in enough


def test_on_a_cluster_plan_names_the_memory_of_the_executors() -> None:
    made = with_table()

    assert (
        f"with STREAMJOIN_DRIVER_MEMORY={found(made).heap_gib}g, on a cluster spark.executor.memory"
    ) in text(made, None)


def test_without_expected_keys_plan_names_the_field() -> None:
    made = with_table(None)

    assert table_heap(made) is None
    assert "set right.table.expected_keys for an estimate of their heap" in text(made, GIB)


def test_summary_names_the_heap_of_the_table() -> None:
    rates = {"left__expected_rate": 100}
    made = with_table(**rates)
    made = replace(made, right=replace(made.right, expected_rate=10))

    assert f"; a heap of {found(made).heap_gib}g has the whole table" in summarized(made)


def test_join_of_two_streams_has_no_table_on_the_heap() -> None:
    assert table_heap(plan()) is None
    assert "rows of the table" not in text(plan(join__operator="streamjoin"), GIB)
