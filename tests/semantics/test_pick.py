"""The join that picks one match agrees with the specification, and a wrong one does not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest
from pyspark.sql import SparkSession

from job.semantics.operator import Processor
from tests.semantics import differential
from tests.semantics.case_generator import pick_cases
from tests.semantics.join_cases import Case, Data, Idle, Restart, Step
from tests.semantics.planted_java import Plant, compile_plants, use_plant
from tests.semantics.real_time_runner import HEAPS, Heap
from tests.semantics.test_differential import case, row

CASES = 25
SECONDS = 300
"""Cases stop being started after this; a slow machine runs fewer."""


@pytest.mark.timeout(SECONDS * 4)
def test_join_and_specification_agree(spark: SparkSession) -> None:
    statistics = differential.Statistics()

    differential.run_many(
        spark, CASES, seconds=SECONDS, statistics=statistics, real_time=True, of=pick_cases()
    )

    assert statistics.rows > CASES


# Two matches at the same distance, two at the same time, none, one at each edge of the window, one
# outside of it; a right row that has expired when it arrives, in the batch in which its left row
# expires.
STEPS: Sequence[Step] = (
    Data([row(1, 10_000), row(2, 10_000), row(3, 10_000)], [row(1, 8_000), row(1, 12_000)]),
    Data(
        [row(4, 10_000), row(6, 10_001)],
        [row(6, 15_100), row(2, 11_000), row(2, 11_000), row(4, 5_000), row(4, 15_000)],
    ),
    Restart(),
    Data([row(9, 40_000), row(5, 12_000)], [row(9, 40_000)]),
    Data([], [row(5, 12_001), row(4, 9_999)]),
    Idle(),
    Restart(),
    Data([row(9, 90_000)], [row(9, 90_000)]),
    Idle(),
)


def picking(pick: str) -> Case:
    window = {"before": "5 seconds", "after": "5 seconds"}
    return case("left_outer", steps=STEPS, match_window=window, pick=pick)


@dataclass(frozen=True)
class Planted(Plant):
    pick: str = "nearest"
    heap: Heap = HEAPS[0]


PLANTED: Mapping[str, Planted] = {
    "distance_with_sign": Planted(
        "Pick.java", "Math.abs(distance) - Math.abs(than)", "distance - than"
    ),
    "later_of_two_equally_near": Planted("Pick.java", "distance < than)", "distance > than)"),
    "older_of_two_at_one_time": Planted("Picking.java", "position > best", "position < best"),
    "window_not_checked": Planted("Picking.java", "        && distance <= rules.upper\n", ""),
    "expired_right_row_not_stored": Planted(
        "StreamJoin.java", " && !(rules.waits() && side == RIGHT)", ""
    ),
    "stored_rows_not_read": Planted(
        "Picking.java", "consider(row.eventTime, row.position, row.row);", "", heap=HEAPS[3]
    ),
}


@pytest.fixture(scope="module")
def planted() -> None:
    compile_plants(PLANTED)


@pytest.mark.parametrize(
    ("pick", "heap", "processor"),
    [
        ("nearest", HEAPS[0], "batch"),
        ("nearest", HEAPS[3], "interval"),
        ("latest", HEAPS[0], "interval"),
        ("earliest", HEAPS[3], "batch"),
    ],
)
def test_without_a_planted_bug_the_scenario_agrees(
    spark: SparkSession, pick: str, heap: Heap, processor: Processor
) -> None:
    batches = differential.check(spark, picking(pick), processor=processor, heap=heap)

    assert sum(batch.output.total() for batch in batches) > 5


@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize("name", PLANTED)
def test_bug_planted_in_picking_is_caught(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    use_plant(monkeypatch, name)
    plant = PLANTED[name]

    with pytest.raises(differential.DifferenceError, match=r"batch \d+, output: "):
        differential.check(spark, picking(plant.pick), processor="batch", heap=plant.heap)
