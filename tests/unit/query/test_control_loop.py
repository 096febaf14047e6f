"""The loop around the driver: calls of Spark, reports, and event times in the checkpoint."""

from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from job.errors import QueryError
from job.event_time.interval import Interval
from job.event_time.partitions import (
    BatchRead,
    Offsets,
    Partition,
    Partitions,
    RecordedEventTimes,
)
from job.kafka.security import KafkaAccess
from job.plan.real_time import BEHIND_LONGEST, RECORDS_BEHIND_MAX
from job.protocol.status import Phase
from job.query.control_loop import ControlLoop, first_state
from job.query.pacing import Pacing
from job.query.runtime import QueryRun
from job.query.stats import QueryStats
from job.spark.interval_read import EndedInterval
from job.spec.sides import SIDES
from tests.unit.checkpoint.test_watermark_history import Files
from tests.unit.protocol.test_progress import recorded
from tests.unit.query.driven import NOW_MS, Times, both, ends
from tests.unit.query.test_driver_in_a_replay import REPLAY
from tests.unit.specs import plan


class Hooks:
    """Stands in for Spark."""

    def __init__(self) -> None:
        self.watermark = 0
        self.is_ended = self.is_refused = self.has_changed = False
        self.durations: list[timedelta] = []
        self.released: set[str] = set()
        self.latest: Offsets = {}
        self.read = BatchRead({}, {}, {}, {})
        self.interval: EndedInterval | None = None

    def before_first_batch(self, _ends: Any, _seconds: float) -> Any:
        return nullcontext()

    def started(self, _: Any) -> None: ...

    def limit_reading(self, _: Any) -> None:
        if self.is_refused:
            raise AttributeError("no such field")

    def limit_side(self, side: str) -> None:
        self.released.discard(side)

    def release_side(self, side: str) -> None:
        self.released.add(side)

    def batch_read(self, latest: Offsets) -> BatchRead:
        self.latest = latest
        return self.read

    def ended_interval(self, _starts: Offsets, _latest: Offsets) -> EndedInterval | None:
        return self.interval

    def watermark_ms(self) -> int:
        return self.watermark

    def raise_watermark(self, to_ms: int) -> None:
        self.watermark = max(self.watermark, to_ms)

    def set_interval_duration(self, duration: timedelta) -> None:
        self.durations.append(duration)
        if self.has_changed:
            raise AttributeError("no such field")

    def end_run(self) -> None:
        self.is_ended = True


class World:
    def __init__(
        self,
        phase: Phase | None = None,
        replay: Any = None,
        *,
        read: Offsets | None = None,
        event_times: RecordedEventTimes | None = None,
        cut: Interval | None = None,
        pacing: Pacing | None = None,
        can_be_interrupted: bool = True,
    ) -> None:
        self.now = 0.0
        self.stats, self.hooks = QueryStats(), Hooks()
        self.recorded: list[Interval] = []
        self.checkpoint: Any = SimpleNamespace(
            partitions=Partitions.restored(event_times or RecordedEventTimes(), read),
            offsets=read,
            recorded_interval=cut,
            interrupted_interval=cut,
            record_interval=self.recorded.append,
            folder=Files(),
        )
        self.before = self.checkpoint.partitions
        self.resources: Any = SimpleNamespace(lease_is_lost=False)
        unused: Any = None
        the_plan = plan() if phase is None else plan(engine="real_time")
        run = QueryRun(
            *(unused, the_plan, KafkaAccess("localhost:9092"), self.checkpoint, self.stats),
            self.resources,
        )
        writer: Any = SimpleNamespace(
            delivered=lambda _: (0, {"committed": 3}), can_be_interrupted=can_be_interrupted
        )
        state = first_state(the_plan, self.checkpoint, phase, replay, pacing or Pacing())
        hooks: Any = self.hooks
        self.loop = ControlLoop(run, hooks, writer, state, clock=lambda: self.now)
        self.stopped = False

    def follow(self) -> None:
        def stop() -> None:
            self.stopped = True

        running: Any = SimpleNamespace(query=SimpleNamespace(stop=stop))
        with self.loop.starting():
            self.loop.follow(running)

    def request(self, start: int, end: int) -> list[Any]:
        return [self.loop._ends(side, {0: start}, {0: end}) for side in SIDES]

    def batch(self, read: Offsets, latest: Offsets, times: Times, batch_id: int = 0) -> None:
        self.hooks.read = BatchRead(read, latest, times, {})
        self.loop.batch_ended(batch_id)


def test_batch_raises_the_watermark_and_the_first_ones_are_limited() -> None:
    world = World()
    world.follow()
    assert [{0: 2_000}, {0: 2_000}] == world.request(0, 9_000)

    world.batch(both(2_000), both(9_000), both(60_000), batch_id=3)
    assert both(9_000) == world.hooks.latest
    assert 40_000 == world.hooks.watermark
    assert both(60_000) == world.stats.partitions.event_times

    world.batch(both(9_000), both(9_000), both(90_000))
    assert set(SIDES) == world.hooks.released


def test_interval_is_recorded_when_spark_plans_it_and_its_transactions_are_counted() -> None:
    world = World(Phase.REAL_TIME)
    world.follow()
    world.request(10, 12)
    assert [] == world.recorded

    read = BatchRead(both(10), both(12), both(NOW_MS), {})
    world.hooks.interval = EndedInterval(8, read)
    world.request(10, 12)

    assert [Interval(batch_id=8, watermark_ms=NOW_MS - 20_000)] == world.recorded
    assert NOW_MS - 20_000 == world.hooks.watermark
    assert 3 == world.stats.totals.transactions["committed"]
    assert both(10) == world.stats.offsets
    world.loop.close()
    assert 6 == world.stats.totals.transactions["committed"]


@pytest.mark.parametrize(("has_changed", "calls"), [(False, 3), (True, 1)])
def test_intervals_keep_their_duration_if_spark_has_changed(has_changed: bool, calls: int) -> None:
    pacing = Pacing().of_run(timedelta(minutes=1), new_jvm_records=1_000)
    world = World(Phase.REAL_TIME, pacing=pacing)
    world.hooks.has_changed = has_changed
    world.hooks.interval = EndedInterval(8, BatchRead(both(10), both(12), both(NOW_MS), {}))
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            world.request(10, 12)
    short = [timedelta(seconds=2**number) for number in range(calls)]
    assert (short, ["warm_up_not_possible"] * has_changed) == (
        world.hooks.durations,
        [log["event"] for log in logs],
    )


def live(unread: int, *, left: int = 0, partitions: int = 1) -> Partitions:
    """What an interval has read if `left` records are in the left topic, of `partitions`."""
    of_left = {number: Partition(0, 0) for number in range(1, partitions)}
    return Partitions({0: Partition(left - unread, left), **of_left}, {0: Partition(10, 10)})


def test_run_must_end_within_its_interval_once_a_topic_has_more_partitions() -> None:
    world = World(Phase.REAL_TIME)
    world.loop.looked(live(0))
    assert not world.loop.must_end
    world.loop.looked(live(0, partitions=2))
    assert world.loop.must_end
    assert 0 == world.loop.next_pacing.catch_up_until


@pytest.mark.parametrize(
    ("unread", "received", "can_be_interrupted", "ends"),
    [
        (2 * RECORDS_BEHIND_MAX, 0, True, True),
        (2 * RECORDS_BEHIND_MAX, 0, False, False),  # its repetition would repeat results
        (2 * RECORDS_BEHIND_MAX, 13 * RECORDS_BEHIND_MAX, True, False),  # that of four seconds
        (RECORDS_BEHIND_MAX, 0, True, False),
    ],
)
def test_run_must_end_within_its_interval_once_it_has_been_behind_for_long(
    unread: int, received: int, can_be_interrupted: bool, ends: bool
) -> None:
    world = World(Phase.REAL_TIME, can_be_interrupted=can_be_interrupted)
    first, longest = 10 * RECORDS_BEHIND_MAX, BEHIND_LONGEST.total_seconds()
    world.loop.looked(live(unread, left=first))
    world.now = longest - 0.1
    world.loop.looked(live(unread, left=first + received))
    assert not world.loop.must_end
    world.now = longest
    world.loop.looked(live(unread, left=first + received))
    assert ends == world.loop.must_end
    assert ends == (world.loop.next_pacing.catch_up_until > longest)


def test_interval_that_has_caught_up_meanwhile_is_not_behind() -> None:
    world = World(Phase.REAL_TIME)
    for unread in (2 * RECORDS_BEHIND_MAX, 0, 2 * RECORDS_BEHIND_MAX):
        world.now += BEHIND_LONGEST.total_seconds()
        world.loop.looked(live(unread, left=10 * RECORDS_BEHIND_MAX))
    assert not world.loop.must_end


def test_run_ends_with_the_next_phase() -> None:
    world = World(Phase.CATCH_UP)
    assert Phase.CATCH_UP is world.loop.next_phase
    world.request(10, 10)
    assert (Phase.REAL_TIME, True) == (world.loop.next_phase, world.hooks.is_ended)


def test_idle_side_does_not_raise_the_watermark_while_an_interval_is_repeated() -> None:
    world = World(Phase.CATCH_UP, cut=Interval(batch_id=7, watermark_ms=5_000))
    world.loop.raise_watermark(60_000)
    assert 0 == world.hooks.watermark

    world = World(Phase.CATCH_UP)
    world.loop.raise_watermark(60_000)
    assert 60_000 == world.hooks.watermark


@pytest.mark.parametrize(
    ("phase", "replay", "needs"),
    [(None, REPLAY, "read up to the cut"), (Phase.REAL_TIME, None, "set the watermark")],
)
def test_run_that_needs_the_calls_of_spark_ends_without_them(
    phase: Phase | None, replay: Any, needs: str
) -> None:
    world = World(phase, replay)
    world.hooks.is_refused = True
    with pytest.raises(QueryError, match=needs):
        world.follow()
    assert world.stopped


def test_micro_batches_run_without_the_calls_of_spark() -> None:
    world = World()
    world.hooks.is_refused = True
    world.follow()
    world.batch(both(5), both(9), both(60_000))
    assert (40_000, False) == (world.hooks.watermark, world.stopped)


def test_event_times_are_written_when_the_run_ends() -> None:
    world = World()
    world.batch(both(5), both(9), both(60_000))
    world.loop.close()
    assert both(60_000) == world.checkpoint.partitions.event_times


def test_event_times_are_not_written_without_the_lease() -> None:
    world = World()
    world.batch(both(5), both(9), both(60_000))
    world.resources.lease_is_lost = True
    world.loop.close()
    assert world.before is world.checkpoint.partitions


def test_event_times_are_not_written_during_a_replay() -> None:
    world = World(replay=REPLAY)
    world.batch(ends(15, 16), both(99), ends(70_000, 90_000))
    world.loop.close()
    assert world.before is world.checkpoint.partitions


@pytest.mark.parametrize(
    ("read", "limits"), [((15, 16), (19, 16)), ((19, 16), (20, 16)), ((20, 16), (None, None))]
)
def test_restart_continues_the_replay(
    read: tuple[int, int], limits: tuple[int | None, int | None]
) -> None:
    world = World(replay=REPLAY, read=ends(*read))
    found = [
        world.loop._ends(side, {0: start}, {0: 99}) for side, start in zip(SIDES, read, strict=True)
    ]
    assert [None if end is None else {0: end} for end in limits] == found
    report = world.stats.change
    assert report is not None
    assert (16, 36 - sum(read)) == (report.records, report.records_left)


def test_report_of_the_replay_follows_each_batch() -> None:
    world = World(replay=REPLAY)
    world.batch(ends(19, 16), both(99), ends(71_000, 85_000))
    assert world.stats.change is not None
    assert ("taking_over", 1) == (world.stats.change.phase, world.stats.change.records_left)


def test_batches_of_the_replay_up_to_its_last_one_are_marked() -> None:
    world = World(replay=REPLAY)
    for batch_id, read in enumerate([(15, 16), (19, 16), (20, 16), (25, 25)]):
        world.batch(ends(*read), both(99), ends(71_000, 85_000), batch_id)
        world.stats.batch(recorded(batchId=batch_id))
    assert [True, True, True, False] == [batch.is_replay for batch in world.stats.batches]


@pytest.mark.parametrize(("read", "logged"), [(None, [3]), (ends(15, 16), [3]), (ends(20, 16), [])])
def test_records_that_may_have_been_late_are_reported_and_logged_until_they_are_read(
    read: Offsets | None, logged: list[int]
) -> None:
    with structlog.testing.capture_logs() as logs:
        world = World(replay=REPLAY, read=read)
    assert world.stats.change is not None
    assert 3 == world.stats.change.possibly_late_records
    assert logged == [log["records"] for log in logs if log["event"] == "late_rows_unknown"]


def test_restart_after_the_replay_has_the_event_times_of_the_old_query() -> None:
    """If a crash has lost the file, those of the change count."""
    world = World(replay=REPLAY, read=ends(20, 16))
    assert ends(71_000, 85_000) == world.stats.partitions.event_times
    world.loop.close()
    assert ends(71_000, 85_000) == world.checkpoint.partitions.event_times

    newer = Partitions.restored(REPLAY.event_times, ends(20, 16))
    newer = newer.after_batch(BatchRead(ends(20, 16), ends(20, 16), both(90_000), {}))
    world = World(replay=REPLAY, read=ends(20, 16), event_times=newer.recorded())
    assert both(90_000) == world.stats.partitions.event_times
