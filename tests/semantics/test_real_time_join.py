"""The processor of the real-time engine agrees with the specification, and a wrong one does not.

In micro-batches, which feed it the same rows in each run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from job import java_jar
from job.errors import SetupError
from job.join import processor
from job.semantics.operator import Processor
from job.spark import java_classes
from tests.semantics import differential
from tests.semantics.join_cases import Data, Idle, Restart
from tests.semantics.planted_java import Plant, compile_plants, use_plant
from tests.semantics.real_time_runner import HEAPS, Heap
from tests.semantics.streams import T0, Stream, spec_text
from tests.semantics.test_differential import STEPS, case, row

CASES = 100
"""Of 1,641 transitions between lines of job/semantics and job/plan that cases 0 to 199 make, the
first 80 make all. `make differential` runs more cases."""
SECONDS = 100
"""Cases stop being started after this; a slow machine runs fewer."""


@pytest.mark.timeout(SECONDS * 4)
def test_processor_and_the_specification_agree_on_generated_joins(spark: SparkSession) -> None:
    statistics = differential.Statistics()

    differential.run_many(spark, CASES, seconds=SECONDS, statistics=statistics, real_time=True)

    assert statistics.rows > 0
    assert statistics.duplicates > 0


@dataclass(frozen=True)
class Planted(Plant):
    found_in: str
    """What differs."""
    processor: Processor = "batch"
    heap: Heap = HEAPS[0]


PLANTED: Mapping[str, Planted] = {
    "matched_flag_lost": Planted(
        "StreamJoin.java",
        "others.setMatched(other);",
        "",
        "output",
    ),
    "last_slot_not_read": Planted(
        "JoinState.java", "-last - 1 : last + 1)", "-last - 1 : last)", "output"
    ),
    "first_slot_not_read": Planted(
        "JoinRules.java", "slotLower : -slotUpper)", "slotLower : slotLengths[LEFT] - slotUpper)",
        "output",
    ),
    "end_of_the_window_not_matched": Planted(
        "StreamJoin.java", "distance <= rules.upper", "distance < rules.upper", "output"
    ),
    "evicted_before_the_watermark": Planted(
        "EvictingJoin.java", "Math.max(previous, watermark));",
        "Math.max(previous, watermark) + 1);", "output",
    ),
    "evicted_after_the_watermark": Planted(
        "EvictingJoin.java", "Math.max(previous, watermark));",
        "Math.max(previous, watermark) - 1);", "output",
    ),
    "evicted_twice": Planted(
        "Eviction.java", "- 1, previous, watermark);", "- 1, Long.MIN_VALUE, watermark);",
        "output",
    ),
    "clock_not_started": Planted(
        "EvictingJoin.java",
        "getHandle().registerTimer(watermark);\n              return null;",
        "return null;",
        "output",
    ),
    "late_row_taken": Planted(
        "InputRow.java", "<= watermark", "< watermark", "late_rows|output", "interval"
    ),
    "rows_without_a_partner_forgotten": Planted(
        "Eviction.java", "if (rows.isMatched(row)) {", "if (true) {",
        "output",
    ),
    "not_written": Planted("JoinProcessor.java", "state.write();", "", "output", heap=HEAPS[1]),
    "mark_not_written": Planted(
        "SlotRows.java", "toMark[marks++] = row;", "", "output", heap=HEAPS[1]
    ),
    "mark_not_read": Planted(
        "SlotStore.java", "row.matched |= matched.contains(row.position);", "", "output",
        heap=HEAPS[1],
    ),
    "spilled_without_being_written": Planted(
        "JoinState.java", "    write(slot);\n    bytes", "    bytes", "output", heap=HEAPS[2]
    ),
    "key_missing_in_the_filter": Planted(
        "JoinState.java", "!slot.filter.add(hash)", "false", "output", heap=HEAPS[2]
    ),
    "mark_of_a_spilled_row_lost": Planted(
        "StreamJoin.java", "state.markMatched(slot, key, other);", "", "output", heap=HEAPS[3]
    ),
    "stored_rows_evicted_twice": Planted(
        "Eviction.java", "row.expiresAt > previous && ", "", "output", heap=HEAPS[3]
    ),
    "half_of_a_slot_is_loaded": Planted(
        "JoinState.java", "    if (last != null) {", "    if (false) {", "output", heap=HEAPS[2]
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def planted() -> None:
    compile_plants(PLANTED)


# The window is five seconds long, and four slots, which begin at multiples of 1.25 s. Row 4 of the
# left side has partners at both ends of its window. Rows 5 expire one after the other, in two
# slots, each with its own batch.
MORE_STEPS = (
    Data([row(4, 2_500), row(5, 100)], [row(4, 7_500), row(4, 2_500), row(6, 0)]),
    Data([row(5, 1_500)], [row(5, 90_000)]),
    Data([row(9, 15_200)]),
    Idle(),
    Data([row(9, 16_600)]),
    Idle(),
    Restart(),
    Data([row(9, 40_000)], [row(9, 95_000)]),
    Idle(),
    # Late at the watermark of the batch, 30,000; one millisecond later it is in time.
    Data([row(7, 30_000), row(7, 30_001)], [row(7, 30_001)]),
    Data([row(9, 100_000)], [row(9, 100_000)]),
    # In time by the watermark before, and expired at 90,000, the watermark of the batch.
    Data([row(3, 40_000), row(2, 50_000)], [row(3, 41_000)]),
    # In state when it matches, and read from the store again before it expires.
    Data([row(8, 110_000)]),
    Data([], [row(8, 110_000)]),
    Restart(),
    # Expires one millisecond after the watermark.
    Data([row(7, 110_000)]),
    Data([row(9, 125_000)], [row(9, 125_000)]),
    Data([row(9, 125_001)], [row(9, 125_001)]),
    Idle(),
)

_KEYS = range(60)
# More rows of one slot, and of several, than fit on a small heap.
MANY_KEYS = (
    Data([row(300 + key, 10 * key) for key in _KEYS]),
    Data([row(key, 10 * key) for key in _KEYS], [row(key, 200 * key) for key in _KEYS]),
    Data([row(100 + key, 10 * key) for key in _KEYS], [row(100 + key, 50 * key) for key in _KEYS]),
    Restart(),
    Data([row(key, 20 * key) for key in _KEYS], [row(key, 30 * key) for key in _KEYS]),
    Data([row(200 + key, 400) for key in _KEYS]),
    Data([], [row(200 + key, 500) for key in _KEYS]),
    Data([row(9, 13_000)], [row(9, 13_000)]),
    Idle(),
    Restart(),
    Data([row(9, 90_000)], [row(9, 90_000)]),
    Idle(),
)

SCENARIOS = {"steps": STEPS, "more_steps": MORE_STEPS, "many_keys": MANY_KEYS}
RUNS = [
    (heap, steps, differential.PROCESSORS[(number + other) % 2])
    for number, heap in enumerate(HEAPS)
    for other, steps in enumerate(SCENARIOS)
]
"""Each scenario on each heap. The processors differ only in the watermark that makes a row late."""


@pytest.mark.parametrize(("heap", "steps", "processor"), RUNS)
def test_without_a_planted_bug_the_scenarios_agree(
    spark: SparkSession, heap: Heap, steps: str, processor: Processor
) -> None:
    made = case("full_outer", steps=SCENARIOS[steps])

    batches = differential.check(spark, made, processor=processor, heap=heap)

    assert sum(batch.output.total() for batch in batches) > 0


class FailingSink(Stream):
    """Its next batch fails once it has committed the state."""

    fails = False

    def _collect(self, batch: DataFrame, batch_id: int) -> None:
        super()._collect(batch, batch_id)
        if self.fails:
            self.fails = False
            raise OSError("the sink fails")


@pytest.fixture(scope="module")
def kept_planted() -> None:
    compile_plants(KEPT_PLANTED)


KEPT_PLANTED = {
    "other_version": Plant("KeptStates.java", "return isContent ?", "return kept != null ?"),
}


@pytest.mark.usefixtures("kept_planted")
@pytest.mark.parametrize("name", ["", *KEPT_PLANTED])
def test_rows_on_the_heap_of_a_batch_that_is_repeated_are_not_used(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if name:
        use_plant(monkeypatch, name)
    stream = FailingSink(spark, tmp_path, spec_text(more="engine: real_time"))
    try:
        stream.feed(left=[{"k": "x", "t": T0, "a": 1}])
        stream.fails = True
        with pytest.raises(StreamingQueryException, match="the sink fails"):
            stream.feed(right=[{"k": "x", "t": T0, "b": 1}])
        stream.restart()
        repeated = stream.feed()

        found = stream.feed(left=[{"k": "x", "t": T0, "a": 2}])
    finally:
        stream.stop()

    assert [{"k": "x", "a": 1, "b": 1}] == repeated
    # The right row of the first attempt would be a second one.
    assert (2 if name else 1) == len(found)


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("name", PLANTED)
def test_bug_planted_in_the_processor_is_caught(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plant = PLANTED[name]
    use_plant(monkeypatch, name)

    with pytest.raises(differential.DifferenceError, match=rf"batch \d+, ({plant.found_in}): "):
        _check_all(spark, plant)


def _check_all(spark: SparkSession, plant: Planted) -> None:
    for steps in SCENARIOS.values():
        made = case("full_outer", steps=steps)
        differential.check(spark, made, processor=plant.processor, heap=plant.heap)


# The right row is in the batch whose watermark evicts it and the left row, which it matches.
EVICTED_TOGETHER = (
    Data([row(9, 30_000)], [row(9, 30_000)]),
    Data([row(1, 10_500)], [row(1, 12_000)]),
)


@pytest.mark.parametrize("join_type", ["left_semi", "right_semi"])
def test_semi_join_finds_the_match_that_its_batch_evicts(
    spark: SparkSession, join_type: str
) -> None:
    join = {"match_window": {"before": "0 s", "after": "5 s"}}
    made = case(join_type, steps=EVICTED_TOGETHER, **join)
    shown = join_type.removesuffix("_semi")
    made.spec["output"]["columns"] = {"k": f"{shown}.k", "v": f"{shown}.v"}

    batches = differential.check(spark, made, processor="batch")

    assert 2 == sum(batch.output.total() for batch in batches)


# More rows than the processor evicts at once, in each of the state partitions.
EXPIRE_TOGETHER = (
    Data([row(key, 0) for key in range(3_000)]),
    Data([row(-1, 30_000)], [row(-1, 30_000)]),
    Idle(),
)


@pytest.mark.parametrize("heap", [HEAPS[0], HEAPS[3]])
@pytest.mark.parametrize("processor", differential.PROCESSORS)
def test_rows_that_expire_in_the_same_millisecond_are_all_evicted(
    spark: SparkSession, processor: Processor, heap: Heap
) -> None:
    made = case("left_outer", steps=EXPIRE_TOGETHER)

    batches = differential.check(spark, made, processor=processor, heap=heap)

    assert 3_001 == sum(batch.output.total() for batch in batches)


WITHOUT_BOUND: Mapping[str, dict[str, str]] = {
    "no_window": {},
    "no_before": {"after": "5 s"},
    "no_after": {"before": "5 s"},
}
# A row of one key and time on both sides, long after the others of its key.
MUCH_LATER = (
    *MORE_STEPS,
    Data([row(4, 500_000), row(9, 500_000)], [row(9, 500_000)]),
    Idle(),
    Restart(),
    Data([row(1, 600_000)], [row(5, 600_000)]),
)


@pytest.mark.parametrize(
    ("window", "heap", "processor"),
    [
        (window, heap, differential.PROCESSORS[(first + second) % 2])
        for first, window in enumerate(WITHOUT_BOUND)
        for second, heap in enumerate((HEAPS[0], HEAPS[2]))
    ],
)
def test_rows_that_never_expire_are_joined_however_late(
    spark: SparkSession, window: str, heap: Heap, processor: Processor
) -> None:
    bounds = {"match_window": WITHOUT_BOUND[window] or None, "unbounded_state": True}
    for steps in (MUCH_LATER, MANY_KEYS):
        made = case("inner", steps=steps, **bounds)
        differential.check(spark, made, processor=processor, heap=heap)


WITHOUT_BOUND_PLANTED = {
    "row_without_bound_expires": Plant(
        "JoinRules.java", "list == LEFT) && kept[list] != FOREVER", "list == LEFT)"
    ),
    "row_without_bound_in_the_slot_of_its_time": Plant(
        "JoinRules.java", "expires(list) ? Math.floorDiv", "true ? Math.floorDiv"
    ),
}


@pytest.fixture(scope="module")
def without_bound_planted() -> None:
    compile_plants(WITHOUT_BOUND_PLANTED)


@pytest.mark.usefixtures("without_bound_planted")
@pytest.mark.parametrize("name", WITHOUT_BOUND_PLANTED)
def test_bug_planted_in_a_join_without_bounds_is_caught(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    use_plant(monkeypatch, name)
    made = case("inner", steps=MUCH_LATER, match_window=None, unbounded_state=True)

    with pytest.raises(differential.DifferenceError, match=r"batch \d+, output: "):
        differential.check(spark, made, processor="batch")


def test_jar_of_other_sources_is_refused(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "StreamJoin.java").write_text("package streamjoin;")
    other = java_jar.sources_checksum([tmp_path])
    monkeypatch.setattr(java_classes, "sources_checksum", lambda: other)

    with pytest.raises(SetupError, match=r"was built from other sources .* `make setup`"):
        processor.RowCounts(spark, case(steps=()).plan)


def test_missing_jar_is_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java_classes, "_PACKAGE", "absent")

    with pytest.raises(SetupError, match=r"is not on the class path. .*`make setup`"):
        processor.RowCounts(spark, case(steps=()).plan)
