"""The replay of a changed query, without Spark: limits, watermark, and the end of the replay."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from job.change.replay import Replay
from job.errors import QueryError
from job.event_time.fair_reading import FIRST_BATCH_RECORDS
from job.event_time.partitions import Partitions, RecordedEventTime, RecordedEventTimes
from job.protocol.status import Phase
from job.query import event_times, real_time, replaying
from job.query.real_time import _ReplayAndCatchUp
from job.query.replaying import ReplayingTimes
from job.query.warm_up import WarmUp
from tests.unit.query.test_event_times import World, ends

REPLAY = Replay(
    old_checkpoint="file:/old",
    old_query_id="4711",
    old_batch_id=7,
    starts=ends(10, 10),
    ends=ends(20, 16),
    watermark_ms=60_000,
    next_watermark_ms=61_000,
    state_partitions=3,
    event_times=RecordedEventTimes(
        left={0: RecordedEventTime(20, 71_000)}, right={0: RecordedEventTime(16, 85_000)}
    ),
    late_unknown_before=ends(13, 10),
)
LATEST = {0: 99}


class Replaying(World):
    def __init__(self, monkeypatch: pytest.MonkeyPatch, read: Any = None) -> None:
        super().__init__(monkeypatch)
        monkeypatch.setattr(replaying, "batch_read", self._batch_read)
        monkeypatch.setattr(replaying, "raise_watermark", lambda _, ms: self.watermarks.append(ms))
        monkeypatch.setattr(event_times, "LimitedReading", lambda *_: self)
        monkeypatch.setattr(event_times, "BeforeFirstBatch", self._before_first_batch)
        self.checkpoint.offsets = read
        self.times = self.made()

    def made(self) -> ReplayingTimes:
        return ReplayingTimes(self.run, REPLAY)

    def _before_first_batch(self, _spark: Any, action: Any) -> Any:
        """Like BeforeFirstBatch of job/spark, without another thread."""
        return SimpleNamespace(active=nullcontext, wait=lambda: action(None))

    def follow(self) -> None:
        with self.times.starting():
            super().follow()

    def limits(self) -> tuple[int | None, int | None]:
        """End offsets up to which Spark may read both sides."""
        found = (
            self.times._limit(side, self.read.next_offsets.get(side, {0: 10}), LATEST)
            for side in ("left", "right")
        )
        left, right = (None if limit is None else limit[0] for limit in found)
        return left, right


def test_replay_reads_to_the_cut_and_then_takes_the_watermark_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Replaying(monkeypatch)
    world.follow()
    assert (19, 16) == world.limits()

    world.batch(ends(15, 16), ends(19, 16), ends(70_000, 90_000), batch_id=0)
    assert [] == world.watermarks
    assert (19, 16) == world.limits()

    world.batch(ends(19, 16), ends(19, 16), ends(71_000, 85_000), batch_id=1)
    assert [60_000] == world.watermarks
    assert Partitions.none() == world.stats.partitions
    assert (20, 16) == world.limits()

    world.batch(ends(20, 16), ends(20, 16), ends(71_000, 85_000), batch_id=2)
    assert [60_000, 61_000] == world.watermarks
    assert ends(71_000, 85_000) == world.stats.partitions.event_times
    assert world.stats.partitions.has_backlog
    assert (None, None) == world.limits()

    world.batch(ends(99, 99), ends(99, 99), ends(99_000, 99_000), batch_id=3)
    assert [60_000, 61_000, 79_000] == world.watermarks  # the delays are 10 s and 20 s


class ReplayingInRealTime(Replaying):
    def __init__(self, monkeypatch: pytest.MonkeyPatch, read: Any = None) -> None:
        self.phases: list[Phase] = []
        monkeypatch.setattr(real_time, "prevent_next_batch", lambda _: None)
        super().__init__(monkeypatch, read)
        self.checkpoint.interrupted_interval = self.checkpoint.recorded_interval = None

    def made(self) -> ReplayingTimes:
        self.checkpoint.interrupted_interval = self.checkpoint.recorded_interval = None
        nothing: Any = None
        return _ReplayAndCatchUp(self.run, REPLAY, nothing, nothing, self.phases.append, WarmUp())


def test_catch_up_of_the_real_time_engine_follows_the_replay_in_the_same_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = ReplayingInRealTime(monkeypatch)
    world.follow()
    world.batch(ends(19, 16), ends(19, 16), ends(71_000, 85_000), batch_id=0)
    assert (20, 16) == world.limits()
    world.batch(ends(20, 16), ends(20, 16), ends(71_000, 85_000), batch_id=1)
    assert ends(71_000, 85_000) == world.stats.partitions.event_times
    assert [] == world.phases

    assert (None, None) == world.limits()
    world.batch(ends(99, 99), ends(99, 99), ends(99_000, 99_000), batch_id=2)
    assert [60_000, 61_000, 79_000] == world.watermarks
    assert [Phase.REAL_TIME] == world.phases


def test_intervals_follow_the_replay_if_no_record_is_unread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spark requests the ends twice if it plans no batch without records."""
    world = ReplayingInRealTime(monkeypatch, ends(19, 16))
    world.follow()
    world.batch(ends(20, 16), ends(20, 16), ends(71_000, 85_000), batch_id=1)
    for planned in range(2):
        assert [] == world.phases, planned
        for side, end in (("left", 20), ("right", 16)):
            world.times._limit(side, {0: end}, {0: end})
    assert [Phase.REAL_TIME] == world.phases


@pytest.mark.parametrize(
    ("read", "limits"), [((15, 16), (19, 16)), ((19, 16), (20, 16)), ((20, 16), (None, None))]
)
def test_restart_continues_the_replay(
    monkeypatch: pytest.MonkeyPatch, read: tuple[int, int], limits: tuple[int, int]
) -> None:
    world = Replaying(monkeypatch, ends(*read))
    world.follow()

    assert limits == world.limits()
    report = world.stats.change
    assert report is not None
    assert (16, 36 - sum(read)) == (report.records, report.records_left)


@pytest.mark.parametrize(("read", "logged"), [(None, [3]), (ends(15, 16), [3]), (ends(20, 16), [])])
def test_records_that_may_have_been_late_are_reported_and_logged_until_they_are_read(
    monkeypatch: pytest.MonkeyPatch, read: Any, logged: list[int]
) -> None:
    with structlog.testing.capture_logs() as logs:
        world = Replaying(monkeypatch, read)

    assert world.stats.change is not None
    assert 3 == world.stats.change.possibly_late_records
    assert logged == [log["records"] for log in logs if log["event"] == "late_rows_unknown"]


def test_restart_after_the_replay_has_the_event_times_of_the_old_query(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = Replaying(monkeypatch, ends(20, 16))

    assert ends(71_000, 85_000) == world.stats.partitions.event_times


def test_query_that_cannot_be_limited_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("no such field")

    stopped: list[bool] = []
    query = SimpleNamespace(stop=lambda: stopped.append(True))
    running: Any = SimpleNamespace(query=query, record_failure=None)
    world = Replaying(monkeypatch)
    monkeypatch.setattr(world, "begin", fail)
    world.times.starting()
    with pytest.raises(QueryError, match="read up to the cut"):
        world.times.follow(running)
    assert [True] == stopped

    over = Replaying(monkeypatch, ends(20, 16))
    monkeypatch.setattr(over, "begin", fail)
    over.times.follow(running)  # after the replay the limits decide nothing


def test_batch_of_the_replay_has_only_the_limit_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """No small first batch, and no order of event times: nothing waits for either."""
    long = REPLAY.model_copy(update={"ends": ends(50_010, 16)})
    world = Replaying(monkeypatch)
    world.times._replay = long  # type: ignore[attr-defined]
    world.follow()
    assert (50_009, 16) == world.limits()

    world.batch(ends(15, 10), ends(50_009, 16), ends(9_000_000, 10_000), batch_id=0)

    assert (50_009, 16) == world.limits()


def test_first_batch_after_the_replay_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers have waited for its results since the cut."""
    world = Replaying(monkeypatch)
    world.follow()
    world.batch(ends(19, 16), ends(19, 16), ends(71_000, 85_000), batch_id=0)
    world.batch(ends(20, 16), ends(20, 16), ends(71_000, 85_000), batch_id=1)

    assert FIRST_BATCH_RECORDS == world.times._reading.records_max


def test_event_times_are_not_written_during_the_replay(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Replaying(monkeypatch)
    written = world.checkpoint.partitions
    world.batch(ends(15, 16), ends(19, 16), ends(70_000, 90_000), batch_id=0)
    world.times.close()

    assert written is world.checkpoint.partitions
