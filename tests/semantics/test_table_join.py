"""The join with a table agrees with the specification, and a wrong one does not."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.semantics.operator import Processor
from tests.semantics import differential
from tests.semantics.case_generator import EPOCH_MS, SCHEMA, table_cases
from tests.semantics.join_cases import Case, Data, Restart, Step
from tests.semantics.planted_java import Plant, compile_plants, use_plant
from tests.semantics.real_time_runner import HEAPS, Heap

CASES = 25
SECONDS = 100
"""Cases stop being started after this; a slow machine runs fewer."""


@pytest.mark.timeout(SECONDS * 4)
def test_join_and_specification_agree_on_generated_tables(spark: SparkSession) -> None:
    statistics = differential.Statistics()

    differential.run_many(
        spark, CASES, seconds=SECONDS, statistics=statistics, real_time=True, of=table_cases()
    )

    assert statistics.rows > CASES


def order(key: int | None, v: int = 0) -> str:
    return json.dumps({"k": key, "t": EPOCH_MS, "v": v})


def customer(key: int, v: int | None, **record: Any) -> str:
    """None: a tombstone."""
    value = None if v is None else {"t": EPOCH_MS, "v": v}
    return json.dumps({"value": value, "key": str(key), **record})


_KEYS = range(400)
STEPS = (
    Data([order(1)], [customer(1, 10), customer(1, 11), customer(2, 20)]),
    Data([order(1), order(2), order(3), order(None)], [customer(2, None)]),
    Restart(),
    Data([order(1), order(2)], [customer(2, 21), customer(3, 30), customer(3, None)]),
    Data([order(key) for key in _KEYS], [customer(key, key) for key in _KEYS]),
    Data([], [customer(key, key + 1) for key in _KEYS if key % 2]),
    Data([], [customer(key, key + 2) for key in _KEYS if key % 2]),
    Data([], [customer(key, key + 3) for key in _KEYS if key % 2]),
    Restart(),
    Data([order(key) for key in _KEYS], [customer(key, None) for key in _KEYS if key % 3]),
    Data([order(key) for key in _KEYS]),
    Data([order(5)], [customer(5, 50, partition=1)]),
    Restart(),
    Data([order(key) for key in _KEYS]),
)


# One more removed row in a slot than are kept there.
UPDATES = (
    *(Data([], [customer(key, n) for key in range(3)]) for n in range(10)),
    Data([order(0), order(1), order(2)]),
)


def case(steps: Sequence[Step] = STEPS) -> Case:
    spec = {
        "name": "tested",
        "kafka": {"bootstrap_servers": "nowhere:1"},
        "left": {
            "topic": "orders",
            "schema": SCHEMA,
            "key": ["k"],
            "event_time": "t",
            "watermark_delay": "2 seconds",
        },
        "right": {
            "topic": "customers",
            "schema": "v INT",
            "key": ["cast(record_key as int)"],
            "table": "latest",
        },
        "join": {"type": "left_outer"},
        "output": {
            "topic": "out",
            "columns": {"k": "left.k", "v": "right.v"},
            "delivery": "at_least_once",
        },
        "checkpoint": "./checkpoint",
        "on_bad_record": "drop",
    }
    return Case(spec, steps, 2)


@dataclass(frozen=True)
class Planted(Plant):
    heap: Heap = HEAPS[0]
    steps: Sequence[Step] = STEPS


PLANTED: Mapping[str, Planted] = {
    "table_after_stream": Planted(
        "TableJoin.java", "version = row;", "", HEAPS[0],
    ),
    "tombstone_ignored": Planted("TableJoin.java", "deletesKey ? null : newest", "newest"),
    "older_record_taken": Planted(
        "TableJoin.java", "newest.position < input.position()", "newest.position > input.position()"
    ),
    "table_not_written": Planted("JoinProcessor.java", "state.write();", "", HEAPS[1]),
    "replaced_row_not_written": Planted("SlotRows.java", "return written == rows && marks == 0;",
        "return written != 0 && marks == 0;", HEAPS[1]),
    "deleted_row_stays_in_the_store": Planted(
        "SlotRows.java", "store.remove(keyOf(row, keyWidth));", "", HEAPS[1]
    ),
    "new_row_removed_with_the_old_one": Planted(
        "SlotRows.java", "if (firstRow[keyOf[row]] == NONE) {", "if (true) {", HEAPS[1]
    ),
    "rows_of_the_store_are_a_list": Planted(
        "SlotStore.java", "if (hasOneRow) {\n      store.put", "if (false) {\n      store.put",
        HEAPS[1],
    ),
    "deleted_row_stays_in_a_spilled_slot": Planted(
        "JoinState.java", "store(slot).remove(key);", "", HEAPS[3]
    ),
    "rows_lost_with_the_removed_ones": Planted(
        "SlotRows.java", "kept.add(keyOf(row", "if (rows < 0) kept.add(keyOf(row", steps=UPDATES
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def planted() -> None:
    compile_plants(PLANTED)


@pytest.mark.parametrize("processor", differential.PROCESSORS)
@pytest.mark.parametrize("heap", HEAPS)
def test_without_a_planted_bug_the_scenario_agrees(
    spark: SparkSession, heap: Heap, processor: Processor
) -> None:
    batches = differential.check(spark, case(), processor=processor, heap=heap)

    assert sum(batch.output.total() for batch in batches) > len(_KEYS)


def test_updates_of_a_key_do_not_fill_the_heap(spark: SparkSession) -> None:
    batches = differential.check(spark, case(UPDATES), processor="batch")

    assert 3 == sum(batch.output.total() for batch in batches)


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("name", PLANTED)
def test_bug_planted_in_the_join_is_caught(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    use_plant(monkeypatch, name)

    made = case(PLANTED[name].steps)
    with pytest.raises(differential.DifferenceError, match=r"batch \d+, output: "):
        differential.check(spark, made, processor="batch", heap=PLANTED[name].heap)
