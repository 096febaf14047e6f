"""A change while the old query of the real-time engine repeats an interrupted interval."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from job.delivery.commit_protocol import NO_BATCH
from job.delivery.interval_protocol import Delivered
from job.errors import ConflictError, JobUnavailableError
from job.event_time.interval import Interval
from job.event_time.partitions import Offsets
from job.plan.fingerprint import fingerprint
from job.plan.plan import JoinPlan
from job.protocol.status import Phase, QueryState
from job.query import changing, old_query
from job.settings import JobSettings
from tests.unit.checkpoint.test_changes import NEW, OLD, Reader, World, reads_commit_topic
from tests.unit.checkpoint.test_changes_in_sequence import RunningJob
from tests.unit.specs import plan

# The last batch of the world, 7, has read up to left 20 and 5, right 6.
READ: Offsets = {"left": {0: 20, 1: 5}, "right": {0: 6}}
LATER: Offsets = {"left": {0: 30, 1: 5}, "right": {0: 6}}
BEGUN = Interval(7, 60_000, LATER)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(monkeypatch)
    settings = {"format": 1, "settings": {**fingerprint(OLD), "left.topic": "a"}}
    made.disk.files["file:/old/fingerprint.json"] = settings
    return made


def record(world: World, interval: Interval) -> None:
    world.checkpoint("file:/old").record_interval(interval)


@pytest.mark.parametrize(
    ("interval", "newest", "newest_part", "interrupted"),
    [
        (BEGUN, 7, 7, 7),
        (Interval(8, 60_000), 8, 8, 8),
        # It has repeated everything.
        (Interval(7, 60_000, READ), 7, 7, None),
        # It has ended as an interval.
        (Interval(7, 60_000), 7, 7, None),
        # It has delivered nothing: a stop between two intervals, or no row has matched.
        (BEGUN, 7, 5, None),
        (BEGUN, 7, NO_BATCH, None),
        (Interval(8, 60_000), 7, 7, None),
    ],
    ids=["repetition", "no repetition yet", "repeated", "ended", "no part", "no parts", "planned"],
)
@pytest.mark.parametrize("change", [World.change, World.change_over_http])
def test_change_is_refused_under_the_lease_if_delivered_results_are_behind_the_cut(
    interval: Interval,
    newest: int,
    newest_part: int,
    interrupted: int | None,
    change: Any,
    world: World,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also if the check before the stop has not seen it: the query has failed since then."""
    monkeypatch.setattr(changing, "await_repetition", lambda *_: None)
    reads_commit_topic(world, monkeypatch)
    record(world, interval)
    monkeypatch.setattr(Reader, "newest", [7, 7, 7, newest])
    monkeypatch.setattr(Reader, "intervals", [NO_BATCH, NO_BATCH, newest_part, NO_BATCH])
    if interrupted is None:
        change(world)
        assert ["file:/new"] == world.startable()
        return
    with pytest.raises(ConflictError, match=f"interrupted in batch {interrupted} after it had"):
        change(world)
    assert ["file:/old"] == world.startable()


def test_change_with_at_least_once_delivery_waits_for_no_interval(world: World) -> None:
    """It is not known whether the recorded interval has delivered anything."""
    record(world, BEGUN)

    changing.change(replace(OLD, output=plan().output), NEW, JobSettings())

    assert ["file:/new"] == world.startable()


class Repeating(RunningJob):
    """A job that repeats the interval: a batch each time that the command waits."""

    def __init__(
        self,
        world: World,
        monkeypatch: pytest.MonkeyPatch,
        state: QueryState = QueryState.RUNNING,
        reads: tuple[int, ...] = (),
    ) -> None:
        super().__init__(state, monkeypatch)
        self.phase = Phase.CATCH_UP
        self.seconds = 0.0
        self.reads_of_commit_topic = 0
        self.newest_part = 7
        self._world, self._reads = world, list(reads)
        record(world, BEGUN)
        monkeypatch.setattr(old_query, "delivery_target", lambda *_, **__: None)
        monkeypatch.setattr(old_query, "kafka_access", lambda *_: None)
        monkeypatch.setattr(old_query, "frozen", lambda old, _: old)
        monkeypatch.setattr(old_query, "newest_delivered", self._delivered)
        clock = SimpleNamespace(sleep=self._sleep, monotonic=lambda: self.seconds)
        monkeypatch.setattr(old_query, "time", clock)

    def _delivered(self, *_: object, to_the_end: bool) -> Delivered:
        assert not to_the_end  # the query has open transactions
        self.reads_of_commit_topic += 1
        return Delivered(self.newest_part, self.newest_part)

    def _sleep(self, seconds: float) -> None:
        assert QueryState.RUNNING is self.state
        self.seconds += seconds
        if self._reads:
            batch_id = (self._world.checkpoint("file:/old").last_batch_id or 0) + 1
            self._world.log("file:/old", batch_id, (self._reads.pop(0), 6), 60_000)


def test_command_waits_for_the_repetition_before_it_stops_the_query(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Repeating(world, monkeypatch, reads=(20, 24, 30))
    lines: list[str] = []

    def hand_over(*_: object) -> None:
        assert QueryState.STOPPED is job.state

    monkeypatch.setattr(changing, "hand_over", hand_over)
    changing.change(OLD, NEW, JobSettings(), lines.append)

    start = "the old query repeats interval 7, which was interrupted, before the query can stop: "
    assert [f"{start}10 records are left", f"{start}6 records are left"] == lines


@pytest.mark.parametrize("state", [None, *sorted(set(QueryState) - old_query.RUNNING)])
def test_command_stops_nothing_if_nothing_repeats_the_interval(
    state: QueryState | None, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Repeating(world, monkeypatch, state or QueryState.RUNNING)
    if state is None:
        monkeypatch.setattr(old_query, "running_job", lambda _: None)
    with pytest.raises(
        ConflictError, match="Let the old query run, and repeat the change"
    ) as error:
        world.change()
    assert state is None or f"The query is {state}." in str(error.value)
    assert (state or QueryState.RUNNING) is job.state
    assert ["file:/old"] == world.startable()


def test_command_ends_without_a_stop_if_the_repetition_makes_no_progress(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Repeating(world, monkeypatch, reads=(22,))
    with pytest.raises(JobUnavailableError, match="has not repeated more of interval 7 within"):
        world.change()
    assert QueryState.RUNNING is job.state
    assert job.seconds > JobSettings().grace_seconds + old_query.SECONDS_MORE


def test_command_waits_for_no_interval_that_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it ends, its record is that of an interrupted one."""
    job = Repeating(world, monkeypatch)
    record(world, Interval(8, 60_000))
    job.phase = Phase.REAL_TIME
    world.change()
    assert (0, QueryState.STOPPED) == (job.reads_of_commit_topic, job.state)


def test_interval_is_repeated_first_also_before_its_repetition_has_begun(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the kill and the first batch of the next start."""
    job = Repeating(world, monkeypatch)
    killed = Interval(8, 60_000)
    record(world, killed)

    def repeated_first(old: JoinPlan) -> Interval | None:
        return next(old_query.repetition(old, world.checkpoint("file:/old")), None)

    assert repeated_first(OLD) is None  # it has delivered nothing
    job.newest_part = 8
    assert killed == repeated_first(OLD)
    assert repeated_first(replace(OLD, output=plan().output)) is None  # at least once
