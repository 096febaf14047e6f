"""The processor of the real-time engine agrees with the specification, and a wrong one does not.

In micro-batches, which feed it the same rows in each run.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from job import java_jar
from job.errors import SetupError
from job.join import processor
from job.semantics.operator import Processor
from job.spark import java_classes
from tests.semantics import differential
from tests.semantics.join_cases import Data, Idle, Restart
from tests.semantics.planted_java import Plant, compile_plants, use_plant
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


@dataclass(frozen=True)
class Planted(Plant):
    found_in: str
    """What differs."""
    processor: Processor = "batch"


PLANTED: Mapping[str, Planted] = {
    "matched_flag_lost": Planted(
        "StreamJoin.java",
        "stored[1 - side].markMatched(stateKey(slot), other);",
        "",
        "output",
    ),
    "last_slot_not_read": Planted("StreamJoin.java", "slot <= last;", "slot < last;", "output"),
    "first_slot_not_read": Planted(
        "JoinRules.java", "lower : -upper)", "lower : -upper) + slotLength", "output"
    ),
    "end_of_the_window_not_matched": Planted(
        "StreamJoin.java", "distance <= rules.upper", "distance < rules.upper", "output"
    ),
    "evicted_before_the_watermark": Planted(
        "Eviction.java", "this.watermark = watermark;", "this.watermark = watermark + 1;", "output"
    ),
    "evicted_after_the_watermark": Planted(
        "Eviction.java", "this.watermark = watermark;", "this.watermark = watermark - 1;", "output"
    ),
    "evicted_twice": Planted(
        "Eviction.java", "row.expiresAt >= entry.expiresAt", "true", "output"
    ),
    "clock_not_started": Planted(
        "StreamJoin.java",
        "        getHandle().registerTimer(watermark + 1);\n      }\n",
        "      }\n",
        "output",
    ),
    "late_row_taken": Planted(
        "InputRow.java", "<= watermark", "< watermark", "late_rows|output", "interval"
    ),
    "rows_without_a_partner_forgotten": Planted(
        "Eviction.java", "if (rules.padsUnmatched[side] && !row.matched) {", "if (false) {",
        "output",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def planted() -> None:
    compile_plants(PLANTED)


# Slots are as long as the window is, five seconds, and begin at multiples of it. Row 4 of the left
# side has partners at both ends of its window, in two slots. Rows 5 expire one after the other, in
# one slot, each with its own batch.
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
)

SCENARIOS = {"steps": STEPS, "more_steps": MORE_STEPS}


@pytest.mark.parametrize("processor", differential.PROCESSORS)
@pytest.mark.parametrize("steps", SCENARIOS)
@pytest.mark.parametrize("join_type", ["inner", "left_outer", "right_outer", "full_outer"])
def test_without_a_planted_bug_the_scenarios_agree(
    spark: SparkSession, join_type: str, steps: str, processor: Processor
) -> None:
    made = case(join_type, steps=SCENARIOS[steps])

    batches = differential.check(spark, made, processor=processor)

    assert sum(batch.output.total() for batch in batches) > 0


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("name", PLANTED)
def test_bug_planted_in_the_processor_is_caught(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plant = PLANTED[name]
    use_plant(monkeypatch, name)

    with pytest.raises(differential.DifferenceError, match=rf"batch \d+, ({plant.found_in}): "):
        _check_all(spark, plant.processor)


def _check_all(spark: SparkSession, processor: Processor) -> None:
    for steps in SCENARIOS.values():
        differential.check(spark, case("full_outer", steps=steps), processor=processor)


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


# More rows than the processor reads at once from its index, in each of the state partitions.
EXPIRE_TOGETHER = (
    Data([row(key, 0) for key in range(3_000)]),
    Data([row(-1, 30_000)], [row(-1, 30_000)]),
    Idle(),
)


@pytest.mark.parametrize("processor", differential.PROCESSORS)
def test_rows_that_expire_in_the_same_millisecond_are_all_evicted(
    spark: SparkSession, processor: Processor
) -> None:
    made = case("left_outer", steps=EXPIRE_TOGETHER)

    batches = differential.check(spark, made, processor=processor)

    assert 3_001 == sum(batch.output.total() for batch in batches)


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
