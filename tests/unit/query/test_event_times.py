"""Watermark and limits of the reading after each batch, without Spark."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from job.event_time.partitions import BatchRead, Partitions
from job.join_spec.sides import SIDES, Side
from job.kafka.security import KafkaAccess
from job.query import event_times
from job.query.event_times import EventTimes
from job.query.runtime import QueryRun
from job.query.stats import QueryStats
from tests.unit.specs import plan

Offsets = dict[Side, dict[int, int]]


class World:
    """Stands in for Spark, its Kafka source and the checkpoint."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, known: Partitions | None = None) -> None:
        self.stats = QueryStats()
        self.checkpoint = SimpleNamespace(partitions=known or Partitions.none())
        self.resources = SimpleNamespace(lease_is_lost=False)
        self.limited: set[Side] = set()
        self.watermarks: list[int] = []
        self.planned: Mapping[Side, Mapping[int, int]] = {}
        self.read = BatchRead({}, {}, {}, {})
        monkeypatch.setattr(event_times, "batch_read", self._batch_read)
        monkeypatch.setattr(
            event_times, "raise_watermark", lambda _, ms: self.watermarks.append(ms)
        )
        monkeypatch.setattr(event_times, "LimitedReading", lambda *_: self)
        checkpoint: Any = self.checkpoint
        resources: Any = self.resources
        spark: Any = SimpleNamespace(_jvm=None)
        access = KafkaAccess("localhost:9092")
        self.run = QueryRun(spark, plan(), access, checkpoint, self.stats, resources)
        self.times = EventTimes(self.run)

    def follow(self) -> None:
        running: Any = SimpleNamespace(query=None, record_failure=None)
        self.times.follow(running)

    def begin(self, _: Any) -> None:
        self.limited = set(SIDES)

    def put(self, side: Side) -> None:
        self.limited.add(side)

    def remove(self, side: Side) -> None:
        self.limited.discard(side)

    def batch(self, ends: Offsets, latest: Offsets, times: Offsets, batch_id: int = 0) -> None:
        newest = {side: max(times[side].values()) for side in SIDES if times[side]}
        self.read = BatchRead(ends, latest, times, newest)
        query: Any = None
        self.times.batch_ended(query, batch_id)

    def _batch_read(
        self, _query: Any, _jvm: Any, _topics: Any, planned: Mapping[Side, Any]
    ) -> BatchRead:
        self.planned = dict(planned)
        return self.read


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(monkeypatch)
    made.follow()
    return made


def ends(left: int, right: int) -> Offsets:
    return {"left": {0: left}, "right": {0: right}}


def test_watermark_is_set_once_both_sides_have_an_event_time(world: World) -> None:
    world.batch(ends(5, 5), ends(5, 5), {"left": {0: 60_000}, "right": {}})
    assert [] == world.watermarks

    world.batch(ends(5, 9), ends(5, 9), {"left": {}, "right": {0: 90_000}})
    assert [50_000] == world.watermarks  # the delays are 10 s and 20 s


def test_first_batch_is_small_and_its_latest_offsets_are_kept(world: World) -> None:
    assert {0: 2_000} == world.times._limit("left", {0: 0}, {0: 9_000})
    assert world.times._limit("right", {0: 0}, {0: 2_000}) is None

    world.batch(ends(2_000, 2_000), ends(9_000, 2_000), ends(60_000, 60_000), batch_id=3)

    assert {"left": {0: 9_000}} == world.planned
    assert {"left", "right"} == world.limited
    assert {0: 26_000} == world.times._limit("left", {0: 2_000}, {0: 90_000})


def test_limits_are_removed_once_everything_is_read(world: World) -> None:
    world.batch(ends(5, 5), ends(5, 9), ends(60_000, 60_000))
    assert world.times._limit("left", {0: 5}, {0: 7}) is None
    assert {"left", "right"} == world.limited

    world.batch(ends(7, 9), ends(7, 9), ends(60_000, 60_000))
    assert set() == world.limited


def test_topic_without_records_is_not_limited(world: World) -> None:
    assert world.times._limit("left", {0: 0}, {0: 0}) is None
    assert {"right"} == world.limited


def test_even_backlog_is_not_limited_after_the_first_batches(world: World) -> None:
    for end in range(10, 50, 10):
        world.batch(ends(end, end), ends(99, 99), ends(end * 1_000, end * 1_000))
    assert set() == world.limited

    world.batch(ends(60, 60), ends(99, 99), ends(60_000, 3_660_000))
    assert {"left", "right"} == world.limited


def test_sparse_partition_does_not_run_ahead_of_a_dense_one(world: World) -> None:
    for left, right in ((60_000, 60_000), (90_000, 1_260_000)):
        world.batch(ends(5, 5), ends(9, 9), ends(left, right))

    assert {0: 5} == world.times._limit("right", {0: 5}, {0: 9})


def test_planned_ends_without_a_batch_are_dropped(world: World) -> None:
    world.times._limit("left", {0: 0}, {0: 9_000})
    world.times._limit("left", {0: 0}, {0: 1})
    world.batch(ends(1, 1), ends(1, 1), ends(60_000, 60_000))

    assert {} == world.planned


def test_side_that_is_an_hour_ahead_waits(world: World) -> None:
    world.batch(ends(5, 5), ends(9, 9), ends(60_000, 3_660_000))

    assert {0: 5} == world.times._limit("right", {0: 5}, {0: 9})
    assert world.times._limit("left", {0: 5}, {0: 9}) is None


def test_watermark_is_set_without_the_hook_into_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no such field")

    world = World(monkeypatch)
    monkeypatch.setattr(world, "begin", fail)
    world.follow()
    world.batch(ends(5, 5), ends(9, 9), ends(60_000, 60_000))

    assert ([40_000], set()) == (world.watermarks, world.limited)


def test_event_times_are_written_at_the_end(world: World) -> None:
    world.batch(ends(5, 5), ends(5, 5), ends(60_000, 60_000))
    world.times.close()

    assert ends(60_000, 60_000) == world.checkpoint.partitions.event_times


def test_event_times_are_not_written_after_the_lease_is_lost(world: World) -> None:
    world.batch(ends(5, 5), ends(5, 5), ends(60_000, 60_000))
    world.resources.lease_is_lost = True
    world.times.close()

    assert Partitions.none() == world.checkpoint.partitions
