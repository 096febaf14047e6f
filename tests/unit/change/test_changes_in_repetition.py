"""A change while the old query of the real-time engine repeats an interrupted interval."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest

from job.change import cli, old_query
from job.change.query import Query
from job.delivery.commit_protocol import NO_BATCH
from job.delivery.delivered import Delivered
from job.errors import ConflictError, JobUnavailableError
from job.event_time.interval import Interval
from job.event_time.partitions import Offsets
from job.plan.fingerprint import fingerprint
from job.plan.plan import JoinPlan
from job.protocol.status import Failure, Phase, QueryState
from job.settings import JobSettings
from tests.unit.change.test_changes_in_sequence import RunningJob
from tests.unit.change.test_files import NEW, OLD, Reader, World, reads_commit_topic
from tests.unit.service.builders import NOW
from tests.unit.specs import plan

# The last batch of the world, 7, has read up to left 20 and 5, right 6.
READ: Offsets = {"left": {0: 20, 1: 5}, "right": {0: 6}}
LATER: Offsets = {"left": {0: 30, 1: 5}, "right": {0: 6}}
BEGUN = Interval(batch_id=7, watermark_ms=60_000, repeat_until=LATER)


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
        (Interval(batch_id=8, watermark_ms=60_000), 8, 8, 8),
        # It has repeated everything.
        (Interval(batch_id=7, watermark_ms=60_000, repeat_until=READ), 7, 7, None),
        # It has ended as an interval.
        (Interval(batch_id=7, watermark_ms=60_000), 7, 7, None),
        # It has delivered nothing: a stop between two intervals, or no row has matched.
        (BEGUN, 7, 5, None),
        (BEGUN, 7, NO_BATCH, None),
        (Interval(batch_id=8, watermark_ms=60_000), 7, 7, None),
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
    monkeypatch.setattr(cli, "await_repetition", lambda *_: None)
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

    cli.change(replace(OLD, output=plan().output), NEW, JobSettings())

    assert ["file:/new"] == world.startable()


class Repeating(RunningJob):
    """A job that repeats the interval: a batch each time that the command waits. Its start has made
    fence 1."""

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
        self.fenced_part: int | None = None
        """The newest part before the fence. None: `newest_part`."""
        self.hidden = 0
        """Reads of the commit topic from which a transaction of another join hides everything."""
        self._world, self._reads = world, list(reads)
        record(world, BEGUN)
        world.checkpoint("file:/old").increment_fence()
        monkeypatch.setattr(old_query, "delivery_target", lambda *_, **__: None)
        monkeypatch.setattr(Query, "read_frozen_plan", lambda query: query.plan)
        monkeypatch.setattr(old_query, "newest_delivered", self._delivered)
        clock = SimpleNamespace(sleep=self._sleep, monotonic=lambda: self.seconds)
        monkeypatch.setattr(old_query, "time", clock)

    def _delivered(self, *_: object, to_the_end: bool) -> Delivered:
        assert not to_the_end  # the query has open transactions
        self.reads_of_commit_topic += 1
        if self.reads_of_commit_topic <= self.hidden:
            return Delivered(NO_BATCH, NO_BATCH)
        part, fenced = self.newest_part, self.fenced_part
        return Delivered(part, part, 1, part if fenced is None else fenced)

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

    monkeypatch.setattr(cli, "hand_over", hand_over)
    cli.change(OLD, NEW, JobSettings(), lines.append)

    start = "the old query repeats interval 7, which was interrupted, before the query can stop: "
    assert [f"{start}10 records are left", f"{start}6 records are left"] == lines


@pytest.mark.parametrize("state", [None, *sorted(set(QueryState) - old_query.RUNNING)])
def test_command_stops_nothing_if_nothing_repeats_the_interval(
    state: QueryState | None, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Repeating(world, monkeypatch, state or QueryState.RUNNING)
    job.last_failure = Failure(code="fenced", message="taken over", retryable=False, at=NOW)
    if state is None:
        monkeypatch.setattr(old_query, "running_job", lambda _: None)
    with pytest.raises(
        ConflictError, match="Let the old query run, and repeat the change"
    ) as error:
        world.change()
    assert state is None or f"The query is {state}" in str(error.value)
    assert (state is QueryState.FAILED) == ("FAILED: taken over" in str(error.value))
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


def test_command_ends_without_a_stop_if_another_query_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another client has changed the join during the wait."""
    job = Repeating(world, monkeypatch, reads=(22, 24))

    def progress(_: str) -> None:
        job.query_id = "4712"

    with pytest.raises(ConflictError, match="another client has changed the join"):
        cli.change(OLD, NEW, JobSettings(), progress)
    assert QueryState.RUNNING is job.state


def test_command_waits_for_no_interval_that_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until it ends, its record is that of an interrupted one."""
    job = Repeating(world, monkeypatch)
    record(world, Interval(batch_id=8, watermark_ms=60_000))
    job.phase = Phase.REAL_TIME
    job.newest_part, job.fenced_part = 8, 7
    world.change()
    assert QueryState.STOPPED is job.state


def old_waits(
    world: World, old: JoinPlan = OLD, phase: Phase = Phase.CATCH_UP
) -> Iterator[old_query.Wait]:
    return old_query.waits(world.old(old), phase)


def test_change_waits_for_an_interval_that_repeats_an_interrupted_one_without_records(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interval has written expired rows, and has read no records. The catch-up has nothing to
    read, so an interval with the same number repeats it."""
    job = Repeating(world, monkeypatch)
    job.newest_part = 8
    interrupted = Interval(batch_id=8, watermark_ms=60_000, repeat_until=READ)
    record(world, interrupted)
    assert interrupted == next(old_waits(world)).interval
    # The run with intervals has begun, and its first interval has not.
    assert next(old_waits(world, phase=Phase.REAL_TIME), None) is not None

    record(world, Interval.after(interrupted, 8, 60_000))
    waiting = old_waits(world, phase=Phase.REAL_TIME)
    assert Interval(batch_id=8, watermark_ms=60_000) == next(waiting).interval
    world.log("file:/old", 8, (20, 6), 60_000)
    assert [] == list(waiting)


def test_command_waits_until_the_phase_of_a_query_that_starts_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the start has fenced the writers, the commit topic does not show what they deliver."""
    job = Repeating(world, monkeypatch)
    job.phase = None
    looks: list[float] = []

    def wait_until(condition: Any, *_: float) -> None:
        assert not condition()
        looks.append(job.seconds)
        job.phase = Phase.REAL_TIME
        assert condition()

    monkeypatch.setattr(old_query, "wait_until", wait_until)
    record(world, Interval(batch_id=8, watermark_ms=60_000))
    job.newest_part, job.fenced_part = 8, 7
    real_time = plan(output__delivery="exactly_once", engine="real_time")
    assert not old_query.await_repetition(world.old(real_time), JobSettings(), print)
    assert [0.0] == looks


def test_change_waits_until_another_join_ends_its_transaction(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hides whether results of the interval are delivered."""
    job = Repeating(world, monkeypatch)
    job.hidden = 2
    texts = [wait.text.partition(" hides")[0] for wait in islice(old_waits(world), 3)]

    hidden = f"an open transaction in the commit topic {OLD.output.commit_topic}"
    repeats = "the old query repeats interval 7, which was interrupted, before the query can stop"
    assert [hidden, hidden, f"{repeats}: 10 records are left"] == texts

    job.reads_of_commit_topic, job.newest_part = 0, 5
    assert 2 == len(list(old_waits(world)))  # nothing of the interval is delivered


def test_change_whose_check_is_hidden_for_too_long_names_the_topic_and_stops_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Repeating(world, monkeypatch)
    job.hidden = 1_000
    topic = OLD.output.commit_topic
    with pytest.raises(JobUnavailableError, match=f"has opened in the commit topic {topic} has"):
        world.change()
    assert QueryState.RUNNING is job.state
    assert job.seconds > JobSettings().grace_seconds + old_query.SECONDS_MORE


@pytest.mark.parametrize("interval", [None, Interval(batch_id=8, watermark_ms=60_000)])
def test_change_waits_until_the_planned_batch_or_ended_interval_is_committed(
    interval: Interval | None, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier run may have delivered a part of the batch, and this run may not have begun it.
    The change does not wait for the batches that follow."""
    job = Repeating(world, monkeypatch)
    job.newest_part = NO_BATCH
    if interval is None:
        world.disk.files.pop("file:/old/interval.json")
    else:
        record(world, interval)
    world.log("file:/old", 8, (30, 6), 60_000)
    commit = world.disk.files.pop("file:/old/query/commits/8")
    waiting = old_waits(world)
    assert "batch 8 of the old query has not ended yet" == next(waiting).text
    world.log("file:/old", 9, (30, 6), 60_000)
    del world.disk.files["file:/old/query/commits/9"]
    assert "batch 8 of the old query has not ended" == next(waiting).stuck
    world.disk.files["file:/old/query/commits/8"] = commit
    assert [] == list(waiting)


def test_command_continues_if_the_job_ends_while_its_batch_is_awaited(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The change then stops nothing, and checks what is delivered."""
    Repeating(world, monkeypatch)
    world.disk.files.pop("file:/old/interval.json")
    del world.disk.files["file:/old/query/commits/7"]

    def end_job(text: str) -> None:
        assert "batch 7 of the old query has not ended yet" == text
        monkeypatch.setattr(old_query, "running_job", lambda _: None)

    clock = SimpleNamespace(sleep=lambda _: None, monotonic=lambda: 0.0)
    monkeypatch.setattr(old_query, "time", clock)
    assert old_query.await_repetition(world.old(), JobSettings(), end_job)


def test_interval_is_repeated_first_also_before_its_repetition_has_begun(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the kill and the first batch of the next start."""
    job = Repeating(world, monkeypatch)
    killed = Interval(batch_id=8, watermark_ms=60_000)
    record(world, killed)

    def repeated_first(old: JoinPlan) -> Interval | None:
        return next((wait.interval for wait in old_waits(world, old)), None)

    assert repeated_first(OLD) is None  # it has delivered nothing
    job.newest_part = 8
    assert killed == repeated_first(OLD)
    assert repeated_first(replace(OLD, output=plan().output)) is None  # at least once
