"""A catch-up gives the same results in whatever batches and order the partitions are read.

The condition is that no record is behind the newest earlier record of its partition by
`watermark_delay` or more. Exactly the delay behind is late: Spark drops `event time <= watermark`.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, islice
from random import Random

import pytest

from job.plan.planner import join_plan
from job.semantics import event_time
from job.semantics.backlog import PlannedBatch
from job.semantics.input_records import InputRecord
from job.semantics.simulate import ReadRecords, SimulatedBatch, Simulator
from job.semantics.simulation_plan import SimulationPlan, simulation_plan
from job.spec.durations import milliseconds
from job.spec.join_conditions import JoinType
from job.spec.sides import SIDES, Side
from job.spec.spec import spec_from_document
from tests.semantics.planted_rules import WRONG_RULES, Rule
from tests.semantics.reading_orders import (
    Reading,
    Topics,
    arrivals,
    falling_behind,
    in_one_batch,
    live,
    reading,
    topics,
)
from tests.sql_worker import ROWS, SQL

T = 1_700_000_000_000
EXAMPLES = 60
JOIN_TYPES = ["inner", "left_outer", "right_outer", "full_outer", "left_semi", "left_anti"]
JOIN_TYPES += ["right_semi", "right_anti"]
BOUNDS = {
    "after": {"match_window": {"before": "0 s", "after": "5 s"}},
    "before": {"match_window": {"before": "10 s", "after": "-2500 ms"}},
    "around": {"match_window": {"before": "30 s", "after": "30 s"}},
    "short window": {"window": "5 seconds"},
    "long window": {"window": "1 minute"},
    "event time in key": {},
}
DELAYS = ["1 millisecond", "2500 milliseconds", "10 seconds"]


@cache
def plan(join_type: str, bound: str, left_delay: str, right_delay: str) -> SimulationPlan:
    key = ["k"] if BOUNDS[bound] else ["k", "t"]
    side = {"schema": "k INT, t TIMESTAMP, v INT", "key": key, "event_time": "t"}
    shown = JoinType(join_type).shown_sides[0]
    document = {
        "name": "read",
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "left": {"topic": "l", **side, "watermark_delay": left_delay},
        "right": {"topic": "r", **side, "watermark_delay": right_delay, "filter": "v > 0"},
        "join": {"type": join_type, **BOUNDS[bound]},
        "output": {"topic": "o", "columns": {"v": f"{shown}.v"}, "delivery": "at_least_once"},
        "checkpoint": "./checkpoint",
        "on_bad_record": "drop",
    }
    return simulation_plan(join_plan(spec_from_document(document), SQL, state_partitions=1), ROWS)


def some_plan(join_type: str, random: Random) -> SimulationPlan:
    return plan(
        join_type, random.choice(list(BOUNDS)), random.choice(DELAYS), random.choice(DELAYS)
    )


def delays_of(made: SimulationPlan) -> dict[Side, int]:
    return {side: milliseconds(made.join.side(side).watermark_delay) for side in SIDES}


def catch_up(join_type: str, random: Random) -> tuple[SimulationPlan, Topics, Reading]:
    made = some_plan(join_type, random)
    read = topics(random, T, delays_of(made))
    return made, read, reading(random, read)


def run(made: SimulationPlan, order: Reading) -> list[SimulatedBatch]:
    """All batches, then a row far ahead on both sides, and what it still lets go."""
    simulator = Simulator(made)
    ran: list[SimulatedBatch] = []
    for number, (batch, read) in enumerate(read_at_once(simulator, order.batches)):
        ran.append(simulator.run_batch(batch, read))
        if number in order.restarts:
            simulator.restart(times_lost=order.restarts[number])
    closing = InputRecord(json.dumps({"k": 9, "t": T + 10**9}), offset=10**6)
    ran.append(simulator.run_batch(PlannedBatch([closing], [closing])))
    while simulator.needs_batch_without_data():
        ran.append(simulator.run_batch(PlannedBatch()))
    return ran


def read_at_once(
    simulator: Simulator, batches: Sequence[PlannedBatch]
) -> Iterator[tuple[PlannedBatch, ReadRecords]]:
    """Each batch with its records read: a question about all records takes as long as one about a
    batch."""
    joined = (list(chain.from_iterable(batch.records(side) for batch in batches)) for side in SIDES)
    read = {side: iter(of) for side, of in simulator.read(PlannedBatch(*joined)).items()}
    for batch in batches:
        yield batch, {side: list(islice(read[side], len(batch.records(side)))) for side in SIDES}


def results(
    made: SimulationPlan, ran: list[SimulatedBatch]
) -> Counter[tuple[int | None, int | None]]:
    """Offsets of the left and the right record; a semi join shows one side only."""
    shown = made.join.join_type.shown_sides
    return Counter(
        (
            out.left.offset if out.left and "left" in shown else None,
            out.right.offset if out.right and "right" in shown else None,
        )
        for batch in ran
        for out in batch.output
    )


def late(ran: list[SimulatedBatch]) -> list[InputRecord]:
    return [drop.record for batch in ran for drop in batch.drops if drop.reason == "late"]


def check(made: SimulationPlan, read: Topics, order: Reading) -> list[SimulatedBatch]:
    """Against all records in one batch, which no watermark touches."""
    expected, ran = run(made, in_one_batch(read)), run(made, order)

    assert [] == late(ran)
    assert results(made, expected) == results(made, ran)
    return ran


def search(join_type: str) -> Counter[str]:
    """Checks generated catch-ups of one join type; counts what they hold."""
    seen: Counter[str] = Counter()
    for seed in range(EXAMPLES):
        made, read, order = catch_up(join_type, Random(seed))
        try:
            ran = check(made, read, order)
        except AssertionError as error:
            raise AssertionError(
                f"seed {seed}: {made.join.left}, {made.join.on}\n{read}\n{order}"
            ) from error
        before_the_end = ran[: len(order.batches)]
        seen["output"] += any(batch.output for batch in before_the_end)
        seen["held back"] += any(batch.held_back_by for batch in ran)
        removed = sum(batch.metrics.num_removed_state_rows for batch in before_the_end)
        seen["removed before the end"] += removed > 0
    return seen


@pytest.mark.parametrize("join_type", JOIN_TYPES)
def test_catch_up_gives_the_same_results_in_every_reading_order(join_type: str) -> None:
    seen = search(join_type)

    for what in ("output", "held back", "removed before the end"):
        assert seen[what] > EXAMPLES / 10, (what, seen)


@pytest.mark.parametrize("join_type", JOIN_TYPES)
def test_reading_that_falls_behind_gives_what_the_live_join_gives(join_type: str) -> None:
    """No row is late because of the order in which it is read: each is in order on arrival."""
    held_back = 0
    for seed in range(EXAMPLES):
        random = Random(seed)
        made = some_plan(join_type, random)
        arrived = arrivals(random, T, delays_of(made))
        expected, ran = run(made, live(arrived)), run(made, falling_behind(random, arrived))

        assert [] == late(expected) == late(ran), seed
        assert results(made, expected) == results(made, ran), seed
        held_back += any(batch.held_back_by for batch in ran)
    assert held_back > EXAMPLES / 10


@pytest.mark.parametrize("wrong", WRONG_RULES, ids=lambda rule: rule.__name__)
def test_wrong_rule_loses_rows(monkeypatch: pytest.MonkeyPatch, wrong: Rule) -> None:
    monkeypatch.setattr(event_time, "watermark_ms", wrong)

    with pytest.raises(AssertionError, match="seed"):
        search("left_outer")


@pytest.mark.parametrize(("behind_ms", "count"), [(9_999, 0), (10_000, 1)])
def test_exactly_the_delay_behind_its_own_partition_is_late(behind_ms: int, count: int) -> None:
    """Once a batch has passed between: Spark drops `event time <= watermark` of the one before."""
    made = plan("left_outer", "after", "10 seconds", "10 seconds")
    newest, behind = (
        InputRecord(json.dumps({"k": 1, "t": at, "v": 1}), offset)
        for offset, at in enumerate((T, T - behind_ms))
    )
    simulator = Simulator(made)

    simulator.run_batch(PlannedBatch([newest], [newest], [0], [0]))
    simulator.run_batch(PlannedBatch([], [], [0], [0]))
    batch = simulator.run_batch(PlannedBatch([behind], []))

    assert count == batch.metrics.num_dropped_by_watermark
