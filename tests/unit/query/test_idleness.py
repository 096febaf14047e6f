"""Idle sides, without Spark, brokers or real time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job.event_time.partitions import BatchRead, Partition, Partitions
from job.event_time.watermark import watermark_ms as allowed_watermark_ms
from job.query import idleness
from job.query.idleness import IdleSides, RunIdleness, SideTime, watermark_ms
from job.query.stats import QueryStats
from job.spec.durations import milliseconds
from job.spec.sides import SIDES, Side
from tests.polling import wait_until
from tests.unit.specs import plan

T0 = datetime(2026, 11, 20, tzinfo=UTC)
T0_MS = round(T0.timestamp() * 1000)
PLAN = plan()
DELAY_MS = {side: milliseconds(PLAN.side(side).watermark_delay) for side in SIDES}


def side_time(**changes: Any) -> SideTime:
    known = {
        "delay_ms": 10_000,
        "idle_after_ms": 60_000,
        "last_record_at_ms": T0_MS,
        "newest_ms": T0_MS - 5_000,
        "all_read_before_ms": T0_MS + 60_000,
    }
    return SideTime(**{**known, **changes})


ACTIVE = {"all_read_before_ms": T0_MS + 59_999}


@pytest.mark.parametrize(
    "changes",
    [ACTIVE, {"all_read_before_ms": None}, {"idle_after_ms": None}],
    ids=["recent record", "unread records", "no idle_after"],
)
def test_active_side_follows_its_newest_row(changes: dict[str, Any]) -> None:
    side = side_time(**changes)

    assert (False, T0_MS - 15_000) == (side.is_idle, side.watermark_ms)


def test_idle_side_follows_the_clock_minus_idle_after_and_delay() -> None:
    assert (True, T0_MS - 10_000) == (side_time().is_idle, side_time().watermark_ms)
    assert T0_MS + 20_000 == side_time(all_read_before_ms=T0_MS + 90_000).watermark_ms


def test_idle_side_keeps_a_newest_row_that_is_ahead_of_the_clock() -> None:
    assert T0_MS + 990_000 == side_time(newest_ms=T0_MS + 1_000_000).watermark_ms


def test_side_without_any_record_can_be_idle() -> None:
    assert T0_MS - 10_000 == side_time(newest_ms=None).watermark_ms


@pytest.mark.parametrize(
    ("left", "right", "raised_to"),
    [
        (side_time(), side_time(newest_ms=T0_MS - 1_000_000, **ACTIVE), T0_MS - 1_010_000),
        (side_time(), side_time(newest_ms=T0_MS + 1_000_000, **ACTIVE), T0_MS - 10_000),
        (side_time(), side_time(idle_after_ms=120_000, **ACTIVE, newest_ms=None), None),
        (side_time(), side_time(all_read_before_ms=T0_MS + 61_000), T0_MS - 10_000),
        (side_time(**ACTIVE), side_time(**ACTIVE), None),
    ],
    ids=["other side behind", "ahead", "without records", "idle", "neither idle"],
)
def test_side_that_is_further_behind_decides(
    left: SideTime, right: SideTime, raised_to: int | None
) -> None:
    assert raised_to == watermark_ms({"left": left, "right": right})
    assert raised_to == watermark_ms({"left": right, "right": left})


@dataclass
class World:
    """Simulated topics, brokers and Spark watermark, with its own clock."""

    idle_after_ms: dict[Side, int | None]
    now_ms: int = 0
    topic: dict[Side, list[int]] = field(default_factory=lambda: {"left": [], "right": []})
    """Event times in the order in which they arrived."""
    read_offsets: dict[Side, dict[int, int]] = field(
        default_factory=lambda: {"left": {0: 0}, "right": {0: 0}}
    )
    polled: tuple[int, dict[Side, int]] | None = None
    """Time and end offsets of the last poll of the brokers."""
    partitions: Partitions = field(default_factory=Partitions.none)
    """What this run has read; determines the watermark."""
    settled_partitions: None = None
    """No interval runs."""
    watermark_ms: int = -(10**9)
    late: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        idle_after = {
            side: None if ms is None else timedelta(milliseconds=ms)
            for side, ms in self.idle_after_ms.items()
        }
        left, right = (replace(PLAN.side(side), idle_after=idle_after[side]) for side in SIDES)
        self.plan = replace(PLAN, left=left, right=right)
        self.restart()

    @property
    def now(self) -> datetime:
        return T0 + timedelta(milliseconds=self.now_ms)

    def restart(self) -> None:
        self.partitions = Partitions.none()
        self.run = RunIdleness(self.plan, self.now)

    def wait(self, ms: int, *, polled: bool = True) -> None:
        """Advances the clock; polls the brokers at half time, updates the idleness at the end."""
        self.now_ms += ms // 2
        if polled:
            self.polled = self.now_ms, {side: len(self.topic[side]) for side in SIDES}
        self.now_ms += ms - ms // 2
        to_ms = watermark_ms(self.run.update(self, self, self.now))  # type: ignore[arg-type]
        if to_ms is not None:
            self.watermark_ms = max(self.watermark_ms, to_ms - T0_MS)

    def arrive(self, side: Side, behind: float) -> None:
        """Adds a row in order. `behind`: 0 for the newest possible event time, 1 for the oldest."""
        newest, idle_after = max(self.topic[side], default=None), self.idle_after_ms[side]
        bounds = [] if newest is None else [newest - DELAY_MS[side]]
        if idle_after is not None:
            bounds.append(self.now_ms - idle_after - DELAY_MS[side])
        oldest = max(bounds, default=self.now_ms - 100_000) + 1
        newest_now = max(self.now_ms, oldest)
        self.topic[side].append(round(newest_now - behind * (newest_now - oldest)))

    def batch(self, at_most: int) -> None:
        newest: dict[Side, int] = {}
        for side in SIDES:
            begin = self.read_offsets[side][0]
            rows = self.topic[side][begin : begin + at_most]
            self.late += [row for row in rows if row <= self.watermark_ms]
            self.read_offsets = {**self.read_offsets, side: {0: begin + len(rows)}}
            if rows:
                newest[side] = T0_MS + max(rows)
        ends: dict[Side, dict[int, int]] = {side: {0: len(self.topic[side])} for side in SIDES}
        times: dict[Side, dict[int, int]] = {
            side: {0: newest[side]} if side in newest else {} for side in SIDES
        }
        read = BatchRead(self.read_offsets, ends, times, newest)
        self.partitions = self.partitions.after_batch(read)
        to_ms = allowed_watermark_ms(self.partitions, DELAY_MS)
        if to_ms is not None:
            self.watermark_ms = max(self.watermark_ms, to_ms - T0_MS)

    def all_read_before(self, side: Side) -> datetime | None:
        if self.polled is None or self.read_offsets[side][0] < self.polled[1][side]:
            return None
        return T0 + timedelta(milliseconds=self.polled[0])


ACTIONS = st.one_of(
    st.tuples(st.just("wait"), st.sampled_from([0, 1, 5_000, 30_000]), st.booleans()),
    st.tuples(st.just("arrive"), st.sampled_from(SIDES), st.sampled_from([0, 0.5, 1])),
    st.tuples(st.just("batch"), st.integers(1, 3)),
    st.tuples(st.just("restart")),
)
IDLE_AFTER = st.sampled_from([1, 1_000, 10_000, None])


@settings(max_examples=500)
@given(left=IDLE_AFTER, right=IDLE_AFTER, actions=st.lists(ACTIONS, min_size=4, max_size=30))
def test_row_in_order_is_never_late(
    left: int | None, right: int | None, actions: list[tuple[Any, ...]]
) -> None:
    world = World({"left": left, "right": right})
    world.batch(1)
    for name, *arguments in actions:
        match name:
            case "wait":
                world.wait(arguments[0], polled=arguments[1])
            case _:
                getattr(world, name)(*arguments)
    world.batch(100)

    assert [] == world.late


def test_watermark_of_idle_sides_follows_the_clock_after_rows() -> None:
    world = World({"left": 30_000, "right": 5_000})
    for side in SIDES:
        world.arrive(side, 0.5)
    world.batch(3)
    world.wait(0)
    world.wait(200_000)

    assert 100_000 - 30_000 - 10_000 == world.watermark_ms


def test_side_with_a_backlog_is_not_idle() -> None:
    world = World({"left": 1_000, "right": 1_000})
    world.arrive("left", 0)
    world.wait(100_000)

    assert -(10**9) == world.watermark_ms


def test_idle_stream_waits_for_a_table_whose_versions_its_rows_need() -> None:
    made = plan(
        join={"type": "inner"},
        left__idle_after="10 seconds",
        right__table={"version": "as_of", "final": True},
    )
    world = World({"left": 10_000, "right": None})
    world.plan = made
    world.restart()
    world.topic["right"].append(0)
    world.wait(100_000)
    assert -(10**9) == world.watermark_ms

    world.batch(1)
    world.wait(30_000)
    assert 115_000 - 10_000 - DELAY_MS["left"] == world.watermark_ms


def test_side_that_receives_old_rows_is_not_idle() -> None:
    world = World({"left": None, "right": 10_000})
    for _ in range(5):
        world.topic["left"].append(world.now_ms)
        world.topic["right"].append(world.now_ms - 10**7)
        world.batch(1)
        world.wait(9_000)

    assert -(10**7) + 4 * 9_000 - DELAY_MS["right"] == world.watermark_ms


def test_rows_of_an_earlier_run_are_ignored() -> None:
    """A reset between the runs may have moved the start positions to the first records."""
    world = World({"left": None, "right": 1_000})
    world.arrive("left", 0)
    world.batch(1)
    before = world.watermark_ms
    world.restart()
    world.wait(0)
    world.wait(10_000)

    assert before == world.watermark_ms


def test_side_becomes_idle_while_an_interval_runs() -> None:
    """The last left row is ahead of the watermark until it has arrived at the join."""
    stats, run = QueryStats(), RunIdleness(World({"left": None, "right": 10_000}).plan, T0)
    topics: Any = SimpleNamespace(all_read_before=lambda _: now)
    right = {0: Partition(3, 3, T0_MS)}
    stats.settled_partitions = Partitions({0: Partition(3, 3, T0_MS - 2_000)}, right)
    watermarks = []
    for seconds, read in [(0, 3), (5, 3), (10, 9), (15, 9), (20, 12)]:
        now = T0 + timedelta(seconds=seconds)
        stats.live_partitions = Partitions({0: Partition(read, read, T0_MS + 10**6)}, right)
        watermarks.append(watermark_ms(run.update(stats, topics, now)))

    by_clock_ms = [T0_MS - DELAY_MS["right"] + 5_000 * polls for polls in (0, 1)]
    assert [None, None, *by_clock_ms, T0_MS - 2_000 - DELAY_MS["left"]] == watermarks


class Watermarks(list[int]):
    def __call__(self, to_ms: int) -> None:
        self.append(to_ms)


@contextmanager
def watched(
    world: World, raise_watermark: Any, monkeypatch: pytest.MonkeyPatch
) -> Iterator[IdleSides]:
    monkeypatch.setattr(idleness, "POLL_SECONDS", 0.01)
    sides = IdleSides(world.plan, world, world)  # type: ignore[arg-type]
    with sides.watch(raise_watermark):
        yield sides
    assert {} == sides.idle


def idle_world() -> World:
    world = World({"left": None, "right": 1_000})
    world.arrive("left", 0)
    world.batch(1)
    world.polled = 10**12, dict.fromkeys(SIDES, 1)
    world.read_offsets = {side: {0: 1} for side in SIDES}
    return world


def test_watermark_is_raised_and_idle_side_shown_while_the_query_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raised = Watermarks()
    with watched(idle_world(), raised, monkeypatch) as sides:
        wait_until(lambda: raised, 10, "the watermark is raised")
        assert {"right": True} == sides.idle
    assert T0_MS - DELAY_MS["left"] == raised[0]


def test_raising_the_watermark_is_retried_after_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = Watermarks()

    def fail_once(to_ms: int) -> None:
        tries(to_ms)
        if len(tries) == 1:
            raise RuntimeError("no such method")

    with watched(idle_world(), fail_once, monkeypatch):
        wait_until(lambda: len(tries) > 1, 10, "it is retried")


def test_watermark_is_not_raised_without_idle_after(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World({"left": None, "right": None})
    with watched(world, pytest.fail, monkeypatch) as sides:
        assert {} == sides.idle
