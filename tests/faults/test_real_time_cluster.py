"""The real-time engine with exactly-once delivery on a cluster of two brokers.

Partition leaders and transaction coordinators move while an interval writes, and an interval is
interrupted again while it is repeated.

    make test T=tests/faults/test_real_time_cluster.py RUNS=20      20 runs of each test

One job runs for all tests, and each test checks all results so far: a start of a job costs most of
the CPU time of a test.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from random import Random

import pytest

from job.spec.engine import Engine
from tests.faults.cluster import TRANSACTION_STATE, Cluster, two_brokers
from tests.faults.faulty_job import FaultyJob
from tests.faults.harness import Harness
from tests.faults.proxy import Api, Point
from tests.faults.slots import HELD_SECONDS, Slots
from tests.faults.test_real_time import kill_jvm, totals, wait_for_interval
from tests.integration.jobs import START_SECONDS, STATE_PARTITIONS
from tests.polling import wait_until
from tests.processes import has_ended

RUNS = int(os.environ.get("RUNS", "0"))
"""Runs of each test. 0: those of the suite."""
MOVES = 6
"""At each of POINTS, and one with a cut."""
CRASHES = 1
ROWS = 100
FIRST_BATCH_RECORDS = 40
"""Records of a side in the first batch of a repetition."""
BATCHES = 2
"""Batches that a repetition has at least."""
INTERVAL_SECONDS = 12
"""Long enough for two deliveries in one interval on a slow machine."""
ATTEMPTS = 20
SLOTS = range(STATE_PARTITIONS)
HELD_SLOTS = [[0], [1], SLOTS]
BEFORE_ROWS = (Api.ADD_PARTITIONS_TO_TXN, False)
# Requests of a transaction with results, and whether the broker has answered them.
POINTS = [
    (Api.END_TXN, False),
    (Api.PRODUCE, False),
    (Api.END_TXN, True),
    (Api.PRODUCE, True),
    BEFORE_ROWS,
]

pytestmark = pytest.mark.timeout(900 * max(1, RUNS))


@dataclass(frozen=True)
class Moment:
    """A moment of a transaction with results."""

    api: Api
    is_answered: bool
    is_cut: bool
    """Whether all connections of the job end after the move."""
    slot: int

    def point(self, slots: Slots) -> Point:
        slot = slots.ids[self.slot]
        return Point(self.api, slot, is_answered=self.is_answered, topic=slots.output)


MOMENTS = [
    Moment(api, is_answered, is_cut, slot)
    for is_cut, slot in ((False, 0), (True, 1), (False, 1), (True, 0))
    for api, is_answered in POINTS
]


@dataclass(frozen=True)
class Join:
    """The running join of all tests."""

    cluster: Cluster
    harness: Harness

    @property
    def slots(self) -> Slots:
        return Slots(self.harness)


@pytest.fixture(scope="module")
def running_join(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Join]:
    environment = {
        "STREAMJOIN_TEST_COMMIT_SECONDS": str(HELD_SECONDS),
        "STREAMJOIN_TEST_FIRST_BATCH_RECORDS": str(FIRST_BATCH_RECORDS),
    }
    with two_brokers(tmp_path_factory.mktemp("cluster")) as cluster:
        harness = Harness(
            *(cluster.kafka, "rtcluster", tmp_path_factory.mktemp("join")),
            engine=Engine.REAL_TIME,
            proxy=cluster.proxies[0],
            environment=environment,
            interval_seconds=INTERVAL_SECONDS,
        )
        cluster.replicate(harness.topic("out"))
        with harness.job:
            harness.feed(ROWS)
            harness.recovered(time.monotonic())
            yield Join(cluster, harness)


@pytest.fixture
def join(running_join: Join) -> Iterator[Join]:
    yield running_join
    running_join.cluster.heal()


def test_leaders_of_output_that_move_while_results_are_written_lose_and_repeat_nothing(
    join: Join,
) -> None:
    """The commit topic contains the ids of the results. Its leaders move too."""
    harness = join.harness
    for moment in moments():
        move(join, moment, [harness.topic("out"), harness.topic("commits")])
    check(harness)


def test_coordinators_that_move_in_a_transaction_lose_and_repeat_nothing(join: Join) -> None:
    for moment in moments():
        move(join, moment, [TRANSACTION_STATE])
    check(join.harness)


def moments() -> Iterator[Moment]:
    return islice(cycle(MOMENTS), RUNS or MOVES)


def move(join: Join, moment: Moment, topics: list[str]) -> None:
    """Move all leaders of the topics while a transaction with results is held at the moment. The
    other slot continues to write."""
    harness, cluster = join.harness, join.cluster
    wait_for_interval(harness.job)
    failures = totals(harness).failures
    point = moment.point(join.slots)
    cluster.catch(point)
    harness.feed(ROWS)
    cluster.wait_until_caught(point)
    harness.feed(ROWS)
    for topic in topics:
        cluster.move_leaders(topic)
    if moment.is_cut:
        cluster.cut()
    cluster.heal()
    harness.recovered(time.monotonic())
    if not moment.is_cut:
        # Kafka's clients find the new leaders, and the interval continues.
        assert failures == totals(harness).failures


def check(harness: Harness) -> None:
    result = harness.check(harness.settle())
    assert result.matched > ROWS
    assert result.unmatched > 0
    sys.stdout.write(
        f"{result.results} results, {result.losses} lost, {result.duplicates} repeated\n"
    )


def test_interval_that_is_interrupted_again_while_it_is_repeated_loses_and_repeats_nothing(
    join: Join,
) -> None:
    """In the first run the job is killed in the fence, then in the repetition; in each other run in
    one of the two. Requests of the killed jobs arrive late."""
    for run in range(RUNS or CRASHES):
        random = Random(run)
        again: list[Callable[[Join, Random], None]] = [interrupt_fence, interrupt_repetition]
        if run == 0:
            interrupt_interval(join, random, BEFORE_ROWS, SLOTS)
        else:
            interrupt_interval(join, random, random.choice(POINTS), random.choice(HELD_SLOTS))
            again = random.choices(again, (1, 3))
        for interrupt in again:
            interrupt(join, random)
        start(join.harness.job)
        join.harness.recovered(time.monotonic())
        join.cluster.release()
    check(join.harness)


def interrupt_interval(
    join: Join, random: Random, point: tuple[Api, bool], held_slots: Sequence[int]
) -> None:
    """Kill the job in an interval that has delivered results, while others are being written.
    `held_slots`: slots whose transactions are held at the point."""
    cluster, harness, slots = join.cluster, join.harness, join.slots
    api, is_answered = point
    for _ in range(ATTEMPTS):
        wait_for_interval(harness.job)
        deliver_rows(harness, slots)
        points = [
            Point(api, slots.ids[slot], is_answered=is_answered, topic=slots.output)
            for slot in held_slots
        ]
        cluster.catch(*points)
        harness.feed(ROWS)
        cluster.wait_until_caught(*points)
        # The results before can be those of the previous interval.
        interval = slots.running_batch
        if any(interval in slot.parts for slot in slots.records):
            break
        cluster.release()
    else:
        raise AssertionError(f"no interval of {ATTEMPTS} has delivered results before")
    kill(harness.job, random)


def deliver_rows(harness: Harness, slots: Slots) -> None:
    def delivered() -> int:
        return sum(len(slot.ids) for slot in slots.records)

    before = delivered()
    harness.feed(ROWS)
    wait_until(lambda: delivered() > before, START_SECONDS, "results are delivered")


def interrupt_fence(join: Join, random: Random) -> None:
    """Kill the job that is about to repeat the interval. Slot 0 is fenced, slot 1 is not."""
    slots = join.slots
    before = [slot.fences for slot in slots.records]
    point = Point(Api.INIT_PRODUCER_ID, slots.ids[1])
    join.cluster.catch(point)
    start(join.harness.job)
    join.cluster.wait_until_caught(point)
    wait_until(lambda: slots.records[0].fences != before[0], START_SECONDS, "slot 0 is fenced")
    assert before[1] == slots.records[1].fences
    # The driver fences. Its request must arrive before the fence of the next run: that run would
    # fail as if another job had taken over.
    kill(join.harness.job, random, ("driver", "both"))
    join.cluster.release()


def interrupt_repetition(join: Join, random: Random) -> None:
    """Kill the job in a batch of the repetition. One slot has committed it, the other one has
    written it."""
    slots = join.slots
    slot = random.randrange(STATE_PARTITIONS)
    # The fence commits first, and then each batch.
    point = Point(Api.END_TXN, slots.ids[slot], passing=1 + random.randrange(BATCHES))
    join.cluster.catch(point)
    start(join.harness.job)
    join.cluster.wait_until_caught(point)
    other = 1 - slot
    records = slots.wait_for_marker(other)
    assert not records[other].ends_with_interval
    assert len(records[other].batches) > len(records[slot].batches)
    kill(join.harness.job, random)


def kill(
    job: FaultyJob, random: Random, processes: Sequence[str] = ("driver", "JVM", "both")
) -> None:
    """Kill one of these at random: the driver, whose JVM then ends; the JVM; or both."""
    match random.choice(processes):
        case "driver":
            jvm = job.jvm
            job.kill()
            wait_until(lambda: has_ended(jvm), START_SECONDS, "the orphaned JVM has ended")
        case "JVM":
            kill_jvm(job)
        case "both":
            job.kill_tree()


def start(job: FaultyJob) -> None:
    """A driver that lives starts another JVM."""
    if job.process.poll() is not None:
        job.start()
