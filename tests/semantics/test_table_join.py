"""The join with a table agrees with the specification, and a wrong one does not."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, cycle
from typing import Any

import pytest
from pyspark.sql import SparkSession

from job.semantics.operator import Processor
from tests.semantics import differential
from tests.semantics.case_generator import EPOCH_MS, SCHEMA, table_cases
from tests.semantics.join_cases import Case, Data, Restart, Step, specified
from tests.semantics.planted_java import Plant, compile_plants, use_plant
from tests.semantics.real_time_runner import HEAPS, Heap, run_in_real_time_engine

CASES = 25
SECONDS = 300
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


def at(second: int) -> int:
    return EPOCH_MS + second * 1_000


def priced(second: int, key: int = 1) -> str:
    return json.dumps({"k": key, "t": at(second), "v": 0})


def price(second: int, v: int | None, key: int = 1) -> str:
    """None: a tombstone."""
    value = None if v is None else {"t": at(second), "v": v}
    return json.dumps({"value": value, "key": str(key), "timestamp": at(second)})


AS_OF = (
    Data([priced(5), priced(10), priced(25)], [price(20, 2), price(10, 1), price(20, 3)]),
    Restart(),
    Data([priced(15), priced(30)], [price(30, None), price(40, 4)]),
    Restart(),
    Data([priced(100)]),
    Data([priced(101)], [price(50, 5), price(45, 6)]),
    Data([priced(102)], [price(30, 7, key=2), price(60, None)]),
    # The watermark is 99: the deletion at 60 is not remembered, which takes 30 seconds.
    Data([priced(103)], [price(55, 8), price(95, None, key=2)]),
    Data([priced(104), priced(104, key=2)], [price(70, 9), price(90, 1, key=2)]),
    Restart(),
    Data([priced(110), priced(98)]),
    Data([priced(110)]),
    Data([priced(109), priced(111)], [price(105, 20), price(110, 21)]),
)
"""An as-of join: versions out of order, deletions, late rows."""


FINAL = (
    Data([priced(20), priced(10), priced(40)], [price(0, 1), price(30, 3)]),
    # The row at 10 waits for this version. It has its result at a watermark after 38.001.
    Data([priced(45)], [price(5, 2)]),
    Restart(),
    # The watermark is 43: rows up to 14.999 have their results. The first version is late, and
    # valid from then on.
    Data([priced(60)], [price(12, 4), price(1, 5), price(38, 6)]),
    Data([priced(61), priced(61, key=2), priced(30)], [price(50, None), price(55, 7, key=2)]),
    Data([], [price(59, 8, key=2), price(56, 11, key=2)]),
    Data([priced(100)]),
    Restart(),
    Data([priced(101), priced(140)], [price(60, 9), price(99, 10)]),
    Data([priced(200)]),
    Data([priced(240, key=3)]),
)
"""A join in which rows wait for versions that come late."""


WAIT = (
    Data([priced(10), priced(10, key=2), priced(10, key=3)], [price(0, 3, key=3)]),
    Data([priced(11, key=4)], [price(12, 1)]),
    Restart(),
    # The row of key 1 has its result: the next record gives it no other one.
    Data([priced(12, key=2)], [price(13, 5), price(14, 4, key=4), price(14, None, key=4)]),
    Data([priced(20)]),
    # The watermark is 18: the rows of key 2 have waited for 5 seconds.
    Data([priced(21), priced(9, key=5)], [price(21, 2, key=2)]),
    Restart(),
    Data([priced(22, key=6), priced(23, key=7)]),
    Data([priced(24)], [price(24, 7, key=7)]),
    Data([priced(60)]),
    Data([priced(61)]),
    Data([priced(30, key=8)]),
)
"""A join in which rows wait for a row of the table."""


_VERSIONS = {"schema": "v INT, t TIMESTAMP", "event_time": "t", "watermark_delay": "30 seconds"}


def _table(steps: Sequence[Step]) -> dict[str, Any]:
    if steps is FINAL:
        return {**_VERSIONS, "table": {"version": "as_of", "final": True}}
    if steps is WAIT:
        return {"schema": "v INT", "table": {"version": "latest", "wait": "5 seconds"}}
    if steps is AS_OF:
        return {**_VERSIONS, "table": "as_of"}
    return {"schema": "v INT", "table": "latest"}


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
            "key": ["cast(record_key as int)"],
            **_table(steps),
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
    "table_after_stream": Planted("TableJoin.java", "versions = rows;", ""),
    "tombstone_ignored": Planted(
        "TableJoin.java", "record.matched ? List.of() : List.of(record)", "List.of(record)"
    ),
    "older_record_taken": Planted(
        "TableJoin.java", "position < record.position", "position > record.position"
    ),
    "table_not_written": Planted("JoinProcessor.java", "state.write();", "", HEAPS[1]),
    "replaced_row_not_written": Planted(
        "SlotRows.java", "return written == pages.end() && marks == 0;",
        "return written != 0 && marks == 0;", HEAPS[1],
    ),
    "deleted_row_stays_in_the_store": Planted(
        "SlotStore.java", "store.remove(key, name);", "", HEAPS[1]
    ),
    "row_is_added_to_those_of_the_store": Planted(
        "SlotStore.java", "store.put(key, entry(rows.get(0)), name);", "append(key, rows.get(0));",
        HEAPS[1],
    ),
    "row_stays_in_a_spilled_slot": Planted(
        "JoinState.java", "store(slot).replace(key, rows);", "", HEAPS[3]
    ),
    "rows_lost_with_the_removed_ones": Planted(
        "SlotRows.java", "kept.add(keyOf(row", "if (rows < 0) kept.add(keyOf(row", steps=UPDATES
    ),
    "version_is_not_valid_at_its_time": Planted(
        "TableRules.java", "found != null && validFrom(version) > time",
        "found != null && validFrom(version) >= time", steps=AS_OF,
    ),
    "version_that_is_needed_is_removed": Planted(
        "TableRules.java", "validFrom(version) <= until", "validFrom(version) <= until + 9_000_000",
        steps=AS_OF,
    ),
    "deletion_is_not_remembered": Planted(
        "TableRules.java", "version.matched && age >= delay", "version.matched && age >= 0",
        steps=AS_OF,
    ),
    "deletion_is_not_stored": Planted(
        "InputRow.java", "stored(!isMatchable(), row().copy())", "stored(false, row().copy())",
        steps=AS_OF,
    ),
    "first_version_of_a_time_is_kept": Planted(
        "TableRules.java", ".thenComparingLong(row -> row.position)",
        ".thenComparingLong(row -> -row.position)", steps=AS_OF,
    ),
    "late_row_is_joined": Planted(
        "TableJoin.java", "rules.table.isAsOf && input.isLate(lateWatermark)", "false", steps=AS_OF
    ),
    "version_that_a_row_waits_for_is_removed": Planted(
        "TableRules.java", "Math.max(watermark, wait) - wait", "Math.max(watermark, 0)",
        steps=FINAL,
    ),
    "versions_of_a_waiting_row_are_not_in_order": Planted(
        "TableVersions.java", "table.isAsOf ? kept(versions) : versions, left", "versions, left",
        steps=FINAL,
    ),
    "late_version_is_valid_too_late": Planted(
        "TableRules.java", "version.eventTime, until, ", "version.eventTime, until + 9_000, ",
        steps=FINAL,
    ),
    "row_does_not_wait": Planted(
        "TableJoin.java", "row.expiresAt > eviction.watermark()", "false", steps=WAIT
    ),
    "row_waits_too_long": Planted(
        "TableJoin.java", "row.expiresAt > eviction.watermark()", "true", steps=WAIT
    ),
    "rows_that_wait_are_not_joined": Planted(
        "TableJoin.java", "joinWaiting(output);", "", steps=WAIT
    ),
    "row_that_waited_has_two_results": Planted(
        "TableJoin.java", "rows.setMatched(n);", "", steps=WAIT
    ),
    "row_in_the_store_has_two_results": Planted(
        "TableJoin.java", "state.markMatched(slot, key, row);", "", HEAPS[3], WAIT
    ),
    "version_is_not_added_in_the_store": Planted(
        "SlotRows.java", "store.append(key(key, keyWidth), row(row));", "", HEAPS[1], AS_OF
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def planted() -> None:
    compile_plants(PLANTED)


# The processors differ only in the watermark that makes a row late.
@pytest.mark.parametrize(("heap", "processor"), [*zip(HEAPS, cycle(differential.PROCESSORS))])
def test_without_a_planted_bug_the_scenario_agrees(
    spark: SparkSession, heap: Heap, processor: Processor
) -> None:
    for steps, results in ((STEPS, len(_KEYS)), (AS_OF, 9), (FINAL, 9), (WAIT, 9)):
        batches = differential.check(spark, case(steps), processor=processor, heap=heap)

        assert sum(batch.output.total() for batch in batches) > results


@pytest.mark.parametrize("steps", [AS_OF, FINAL], ids=["as_of", "final"])
def test_versions_that_no_row_can_need_leave_the_state(
    spark: SparkSession, steps: Sequence[Step]
) -> None:
    made = replace(case(steps), partitions=1)
    expected, phases = specified(made, processor="batch")
    actual = chain.from_iterable(run_in_real_time_engine(spark, made, phases))

    assert [batch.state_rows for batch in expected] == [batch.state_rows for batch in actual]


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
