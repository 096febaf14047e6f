"""Which phase the query of the real-time engine has, and the watermark of each, without Spark."""

from types import SimpleNamespace
from typing import Any

import pytest

from job.delivery import sink
from job.delivery.sink import RunningQuery
from job.errors import QueryError
from job.event_time.interval import Interval
from job.event_time.partitions import BatchRead, Partitions
from job.join_spec.sides import SIDES, Side
from job.kafka.security import KafkaAccess
from job.plan import tuning
from job.plan.real_time import (
    CATCH_UP_MIN,
    CAUGHT_UP_BATCHES,
    CAUGHT_UP_RECORDS,
    RECORDS_BEHIND_MAX,
)
from job.protocol.status import Phase
from job.query import event_times, live_reports, real_time
from job.query.real_time import Phases, _CatchUp, _configure, _Intervals
from job.query.runtime import QueryRun
from job.query.stats import QueryStats
from job.query.warm_up import WarmUp
from job.spark.interval_read import EndedInterval
from tests.unit.specs import plan

Offsets = dict[Side, dict[int, int]]
REAL_TIME = {"engine": "real_time"}
# The delays of the sides are 10 s and 20 s.
NOW_MS = 1_700_000_000_000


class World:
    """Spark, its Kafka source and the checkpoint, as far as the phases go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, cut: Interval | None = None) -> None:
        self.stats = QueryStats()
        self.intervals: list[Interval] = []
        self.watermark = 0
        self.phases: list[Phase] = []
        self.ended = False
        self.interval: EndedInterval | None = None
        self.read = BatchRead({}, {}, {}, {})
        self.warm_up = WarmUp()
        self.checkpoint: Any = SimpleNamespace(
            partitions=Partitions.none(),
            interrupted_interval=cut,
            recorded_interval=cut,
            record_interval=self.intervals.append,
        )
        limited = SimpleNamespace(begin=lambda _: True, put=lambda _: None, remove=self._removed)
        monkeypatch.setattr(event_times, "LimitedReading", lambda *_: limited)
        monkeypatch.setattr(event_times, "batch_read", lambda *_: self.read)
        monkeypatch.setattr(
            live_reports, "LiveInterval", lambda *_: SimpleNamespace(rows=lambda: None)
        )
        monkeypatch.setattr(real_time, "ended_interval", self._ended_interval)
        monkeypatch.setattr(real_time, "prevent_next_batch", self._end)
        monkeypatch.setattr(real_time, "current_watermark", lambda _: self.watermark)
        self.seconds = 0.0
        monkeypatch.setattr(real_time.time, "monotonic", lambda: self.seconds)
        for module in (event_times, real_time):
            monkeypatch.setattr(module, "raise_watermark", self._raise)

    def made(self, kind: Any, query: Any = None) -> Any:
        spark: Any = SimpleNamespace(_jvm=None)
        resources: Any = SimpleNamespace(lease_is_lost=False)
        access = KafkaAccess("localhost:9092")
        run = QueryRun(spark, plan(**REAL_TIME), access, self.checkpoint, self.stats, resources)
        counts: Any = SimpleNamespace(close=lambda: None)
        writer: Any = SimpleNamespace(delivered=lambda _: (0, {"committed": 3}))
        if kind is _Intervals:
            self.warm_up.begin_run(run)
        times = kind(run, counts, writer, self.phases.append, self.warm_up)
        running: Any = SimpleNamespace(query=query or object(), record_failure=None)
        times.follow(running)
        return times

    def plan_next(self, times: Any, starts: Offsets, latest: Offsets) -> None:
        for side in SIDES:
            times._limit(side, starts[side], latest[side])

    def batch(self, times: Any, ends: Offsets, latest: Offsets, at_ms: int) -> None:
        event_time: Offsets = {side: {0: at_ms} for side in SIDES}
        self.read = BatchRead(ends, latest, event_time, dict.fromkeys(SIDES, at_ms))
        times.batch_ended(object(), 0)

    def timed_batch(self, times: Any, end: int, seconds: float) -> None:
        """A batch that reads 10 records of each topic, and leaves none."""
        self.plan_next(times, both(end - 10), both(end))
        self.seconds += seconds
        self.batch(times, both(end), both(end), NOW_MS)

    def _raise(self, _: Any, to_ms: int) -> None:
        self.watermark = max(self.watermark, to_ms)

    def _end(self, _: Any) -> None:
        self.ended = True

    def _removed(self, _: Side) -> None:
        raise AssertionError("the next call into Python is needed")

    def _ended_interval(self, _: Any, starts: Offsets, latest: Offsets) -> EndedInterval | None:
        at = {side: {0: NOW_MS} for side in SIDES}
        read = BatchRead(starts, latest, at, dict.fromkeys(SIDES, NOW_MS))
        return EndedInterval(8, read)


def both(offset: int) -> Offsets:
    return {"left": {0: offset}, "right": {0: offset}}


def test_catch_up_ends_after_the_batch_that_leaves_few_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    times = world.made(_CatchUp)
    half = CAUGHT_UP_RECORDS // 2

    world.batch(times, both(10), both(10 + half + 1), NOW_MS)
    assert ([], False) == (world.phases, world.ended)

    world.batch(times, both(20), both(20 + half), NOW_MS)
    assert ([Phase.REAL_TIME], True) == (world.phases, world.ended)


def test_catch_up_ends_at_once_where_there_is_nothing_to_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    times = world.made(_CatchUp)

    world.plan_next(times, both(10), both(10))

    assert ([Phase.REAL_TIME], True) == (world.phases, world.ended)


def test_catch_up_goes_on_while_its_batches_take_long(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    times = world.made(_CatchUp)

    world.timed_batch(times, 20, seconds=9.0)
    assert ([], False) == (world.phases, world.ended)

    world.timed_batch(times, 30, seconds=1.0)
    assert ([Phase.REAL_TIME], True) == (world.phases, world.ended)


def test_catch_up_ends_once_its_small_batches_have_taken_long_enough(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    times = world.made(_CatchUp)
    half = CAUGHT_UP_BATCHES.total_seconds() / 2

    world.plan_next(times, both(0), both(10))
    world.seconds += 60
    world.batch(times, both(10), both(11 + CAUGHT_UP_RECORDS), NOW_MS)  # leaves many records
    world.timed_batch(times, 20, seconds=half)
    assert ([], False) == (world.phases, world.ended)

    world.timed_batch(times, 30, seconds=half)
    assert ([Phase.REAL_TIME], True) == (world.phases, world.ended)


@pytest.mark.parametrize(("phase", "changelog"), list(zip(Phase, ["false", "true"], strict=True)))
def test_only_a_catch_up_writes_whole_state_files(phase: Phase, changelog: str) -> None:
    conf: dict[str, str] = {}
    run: Any = SimpleNamespace(
        plan=plan(), spark=SimpleNamespace(conf=SimpleNamespace(set=conf.__setitem__))
    )

    _configure(run, phase)

    assert {tuning.CHANGELOG: changelog} == conf


def test_catch_up_ends_after_a_long_batch_if_nothing_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    times = world.made(_CatchUp)
    world.timed_batch(times, 20, seconds=9.0)

    # Spark may plan a batch without records here.
    world.plan_next(times, both(20), both(20))
    assert ([], False) == (world.phases, world.ended)

    world.plan_next(times, both(20), both(20))
    assert ([Phase.REAL_TIME], True) == (world.phases, world.ended)


def test_interval_begins_with_the_watermark_of_what_is_read_and_records_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    times = world.made(_Intervals)

    world.plan_next(times, both(10), both(12))

    assert NOW_MS - 20_000 == world.watermark
    assert [Interval(batch_id=8, watermark_ms=NOW_MS - 20_000)] == world.intervals
    assert ([], False) == (world.phases, world.ended)


def test_interval_records_a_later_watermark_that_another_part_has_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    world.watermark = NOW_MS

    world.plan_next(world.made(_Intervals), both(10), both(12))

    assert [Interval(batch_id=8, watermark_ms=NOW_MS)] == world.intervals


def two_intervals(world: World, *, received: int, unread: int) -> None:
    """The first one takes a minute. In it the topics receive `received` records, half of them
    each, and it leaves the last `unread` of them."""
    times = world.made(_Intervals)
    world.plan_next(times, both(0), both(0))
    world.seconds += 60
    world.plan_next(times, both((received - unread) // 2), both(received // 2))


PER_MINUTE = 12 * RECORDS_BEHIND_MAX


@pytest.mark.parametrize(
    ("received", "unread", "is_behind"),
    [
        (PER_MINUTE, RECORDS_BEHIND_MAX + 2, True),
        (PER_MINUTE, RECORDS_BEHIND_MAX, False),
        # More records, of a shorter time.
        (2 * PER_MINUTE, RECORDS_BEHIND_MAX + 2, False),
    ],
)
def test_catch_up_follows_an_interval_that_leaves_many_records(
    monkeypatch: pytest.MonkeyPatch, received: int, unread: int, is_behind: bool
) -> None:
    world = World(monkeypatch)

    two_intervals(world, received=received, unread=unread)

    assert ([Phase.CATCH_UP] if is_behind else [], is_behind) == (world.phases, world.ended)
    # Spark may submit the tasks of the next interval before it stops.
    assert 2 == len(world.intervals)


def test_first_interval_of_a_run_is_not_followed_by_a_catch_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    times = world.made(_Intervals)

    world.plan_next(times, both(10), both(11 + RECORDS_BEHIND_MAX))

    assert ([], False) == (world.phases, world.ended)


def test_catch_up_after_an_interval_that_fell_behind_has_a_shortest_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    two_intervals(world, received=PER_MINUTE, unread=PER_MINUTE)
    world.phases.clear()
    times = world.made(_CatchUp)

    world.timed_batch(times, 20, seconds=CATCH_UP_MIN.total_seconds() - 0.1)
    assert [] == world.phases

    world.timed_batch(times, 30, seconds=0.2)
    assert [Phase.REAL_TIME] == world.phases


def test_watermark_of_an_interrupted_interval_stays_until_the_interval_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not World(monkeypatch).made(_CatchUp).keeps_watermark()
    cut = Interval(batch_id=7, watermark_ms=5_000)
    world = World(monkeypatch, cut=cut)
    times = world.made(_CatchUp)

    assert times.keeps_watermark()
    world.plan_next(times, both(10), both(20))
    assert 5_000 == world.watermark
    assert [Interval(batch_id=7, watermark_ms=5_000, repeat_until=both(20))] == world.intervals

    world.batch(times, both(19), both(19), NOW_MS)
    assert (5_000, []) == (world.watermark, world.phases)

    world.batch(times, both(20), both(20), NOW_MS)
    assert NOW_MS - 20_000 == world.watermark
    assert [Phase.REAL_TIME] == world.phases
    # Spark has not committed the batch yet.
    assert [Interval(batch_id=7, watermark_ms=5_000, repeat_until=both(20))] == world.intervals


def test_query_that_was_stopped_begins_with_catch_up() -> None:
    """The new query after a reset has not claimed its name yet, and may have a backlog."""
    phases = Phases()
    phases._change_to(Phase.REAL_TIME)

    phases.forget()

    assert Phase.CATCH_UP is phases._next


def test_transactions_of_an_interval_are_counted_at_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)

    world.plan_next(world.made(_Intervals), both(10), both(12))

    assert 3 == world.stats.totals.transactions["committed"]


def test_run_that_repeats_an_interval_ends_with_the_repetition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, cut=Interval(batch_id=7, watermark_ms=5_000, repeat_until=both(20)))

    world.batch(world.made(_CatchUp), both(20), both(20 + CAUGHT_UP_RECORDS), NOW_MS)

    assert ([Phase.CATCH_UP], True) == (world.phases, world.ended)


def test_ends_of_a_repetition_that_is_cut_itself_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, cut=Interval(batch_id=7, watermark_ms=5_000, repeat_until=both(20)))
    times = world.made(_CatchUp)

    world.plan_next(times, both(15), both(90))
    world.batch(times, both(20), both(20), NOW_MS)

    assert ([], [Phase.REAL_TIME]) == (world.intervals, world.phases)


def test_idle_side_does_not_raise_the_watermark_while_an_interval_is_repeated() -> None:
    raised: list[int] = []
    keeps = [True]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink, "raise_watermark", lambda _, ms: raised.append(ms))
        unused: Any = None
        running = RunningQuery(unused, unused, keeps_watermark=lambda: keeps[0])
        running.raise_watermark(60_000)
        keeps[0] = False
        running.raise_watermark(70_000)
    assert [70_000] == raised


def test_intervals_follow_if_nothing_of_the_interrupted_interval_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch, cut=Interval(batch_id=8, watermark_ms=NOW_MS))
    world.plan_next(world.made(_CatchUp), both(10), both(10))
    assert ([Phase.REAL_TIME], True) == (world.phases, world.ended)

    # Event times that were lost with the crash would give an earlier watermark.
    world.watermark = 0
    world.plan_next(world.made(_Intervals), both(10), both(12))
    assert Interval(batch_id=8, watermark_ms=NOW_MS) == world.intervals[-1]


def test_query_does_not_run_without_the_calls_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    stopped: list[bool] = []

    def refuse(_: Any) -> None:
        raise AttributeError("no such field")

    monkeypatch.setattr(event_times, "LimitedReading", lambda *_: SimpleNamespace(begin=refuse))
    query: Any = SimpleNamespace(stop=lambda: stopped.append(True))
    with pytest.raises(QueryError, match="accepts no call into Python"):
        world.made(_Intervals, query)
    assert [True] == stopped


def test_interval_ends_the_run_once_a_topic_has_more_partitions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(monkeypatch)
    times = world.made(_Intervals)

    world.plan_next(times, both(10), both(12))
    assert ([], False) == (world.phases, world.ended)

    world.plan_next(times, both(12), {"left": {0: 14}, "right": {0: 14, 1: 0}})
    assert ([Phase.CATCH_UP], True) == (world.phases, world.ended)
