"""Changes after one another, their undo and failures, and the files that a later start needs."""

from copy import copy
from dataclasses import replace
from pathlib import Path

import pytest

from job.change import cli, files, hand_over, old_query, planner
from job.change.plan import described
from job.change.start_offsets import KnownOffsets
from job.checkpoint import successor
from job.delivery.commit_protocol import UnavailableError
from job.errors import (
    CheckpointError,
    ConflictError,
    DeliveryError,
    JobUnavailableError,
    StreamjoinError,
)
from job.event_time.partitions import Offsets, RecordedEventTimes
from job.plan.fingerprint import fingerprint
from job.protocol.calls import Resume, Stop
from job.protocol.status import Failure, Phase, QueryState
from job.replay.cut import Cut, PlannedBatch
from job.replay.replay import expired_before
from job.settings import JobSettings
from job.spec.sides import SIDES
from tests.unit.change.test_files import NEW, OLD, Reader, World, reads_commit_topic
from tests.unit.replay.test_replay import REPLAY
from tests.unit.specs import plan

STOP_JOB = cli._stop_job
PLANNED = planner.plan_change
NO_TIMES = RecordedEventTimes()


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def replayed(world: World) -> None:
    """The new query runs its replay and has delivered nothing."""
    world.log("file:/new", 0, (19, 6), 0)
    world.log("file:/new", 1, (20, 6), 60_000)


def with_input(world: World, root: str) -> None:
    """The files of a query from which a cut is read."""
    for side, text in (("left", '{"a":{"0":10,"1":5}}'), ("right", '{"b":{"0":3}}')):
        world.disk.files[f"{root}/query/sources/{side}/0"] = f"\0v1\n{text}"
    settings = {"left.topic": "a", "right.topic": "b"}
    world.disk.files[f"{root}/fingerprint.json"] = {"format": 1, "settings": settings}


def test_query_is_not_changed_again_during_its_replay(world: World) -> None:
    """Its offsets are before those of the old query, which has delivered the results after them."""
    world.change()
    with_input(world, "file:/new")
    world.log("file:/new", 0, (19, 6), 0)
    with pytest.raises(CheckpointError, match="still reads records again"):
        files.read_cut(world.checkpoint("file:/new"))

    replayed(world)
    world.disk.files["file:/new/query/commits/1"] = 'v2\n{"nextBatchWatermarkMs":61000}'
    cut = files.read_cut(world.checkpoint("file:/new"))
    assert (1, REPLAY.starts) == (cut.batch.batch_id, cut.first_offsets)


def test_rows_that_the_first_query_has_read_are_read_again_after_another_change(
    world: World,
) -> None:
    """The second query has read only those that its retention needs."""
    first = {"left": {0: 3}, "right": {0: 0}}
    world.planned = replace(
        world.planned, replay=REPLAY.model_copy(update={"first_offsets": first})
    )
    world.change()
    with_input(world, "file:/new")
    replayed(world)
    world.disk.files["file:/new/query/commits/1"] = 'v2\n{"nextBatchWatermarkMs":61000}'

    # The first query has not read partition 1.
    cut = files.read_cut(world.checkpoint("file:/new"))
    assert {"left": {0: 3, 1: 5}, "right": {0: 0}} == cut.first_offsets


def plan_without_kafka(monkeypatch: pytest.MonkeyPatch, cuts: list[Cut]) -> list[object]:
    """The last one of `cuts` is that of the old query. The list receives the plans whose topics are
    checked."""
    none = {side: KnownOffsets({0: 0, 1: 0}, {}) for side in SIDES}
    monkeypatch.setattr(files, "read_cut", lambda _: cuts[-1])
    checks: list[object] = []
    for name in ("check_not_compacted", "check_same_topics"):
        monkeypatch.setattr(planner, name, lambda _, plan, *__: checks.append(plan))
    monkeypatch.setattr(planner, "check_topics", lambda *_: None)
    monkeypatch.setattr(planner, "read_known_offsets", lambda *_: none)
    monkeypatch.setattr(planner, "read_added_partitions", lambda *_: {side: {} for side in SIDES})
    return checks


@pytest.mark.parametrize("has_advanced", [False, True])
@pytest.mark.usefixtures("world")
def test_plan_that_is_made_is_the_one_that_was_shown_with_the_final_cut(
    monkeypatch: pytest.MonkeyPatch, *, has_advanced: bool
) -> None:
    """`has_advanced`: the old query has ended a batch in between."""
    first, last = (
        Cut("4711", PlannedBatch(batch, ends, 60_000), 61_000, REPLAY.starts, (), NO_TIMES)
        for batch, ends in ((7, REPLAY.ends), (8, {"left": {0: 30, 1: 5}, "right": {0: 6}}))
    )
    cuts = [first]
    plan_without_kafka(monkeypatch, cuts)
    monkeypatch.setattr(planner, "plan_change", PLANNED)

    shown = described(cli.plan(OLD, NEW, JobSettings()), cores=1).facts
    if has_advanced:
        cuts.append(last)
    made = cli.change(OLD, NEW, JobSettings())

    assert made is not None
    facts = described(made, cores=1).facts
    differing = {name for name, fact in facts.items() if fact != shown[name]}
    assert ({"cut", "read_again"} if has_advanced else set()) == differing
    assert 8 - (not has_advanced) == made.replay.old_batch_id


def test_plan_of_another_change_keeps_back_what_the_second_query_keeps_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: Offsets = {"left": {0: 30, 1: 5}, "right": {0: 6}}
    cut = Cut("new-1", PlannedBatch(9, ends, 90_000), 91_000, REPLAY.starts, (), NO_TIMES)
    checks = plan_without_kafka(monkeypatch, [cut])
    world.change()
    second = plan(join__type="left_outer")
    settings = {"format": 1, "settings": fingerprint(second)}
    world.disk.files["file:/new/fingerprint.json"] = settings
    world.log("file:/new", 0, (20, 6), 60_000)

    third = plan(join__type="left_outer", checkpoint="/checkpoints/third")
    made = PLANNED(world.new(second), world.new(third), None).replay
    # The right side of the replay is no outer side of the third query.
    assert expired_before(REPLAY, ["left"]) == made.expired
    assert cut.first_offsets == made.first_offsets
    assert 2 == len(checks)


def changed_again(world: World) -> None:
    """The new query is changed to a third one, which has taken the name."""
    new, third = world.checkpoint("file:/new"), world.checkpoint("file:/third")
    replay = REPLAY.model_copy(update={"old_checkpoint": "file:/new", "query_id": "third"})
    files.prepare_new(new, third, replay)
    files.allow_return(new, third)
    files.write_successor(new, third)


def test_changes_are_undone_in_reverse_order(world: World) -> None:
    world.change()
    replayed(world)
    changed_again(world)
    with pytest.raises(ConflictError, match="file:/third continues it"):
        world.undo()
    assert [] == world.startable()  # only the third one

    with files.successor_removed(world.checkpoint("file:/new")):
        pass
    world.undo()
    assert ["file:/old"] == world.startable()
    # The third query may have taken the name, and the second one has not taken it back.
    assert {"new-2", "third"} <= world.checkpoint("file:/old").replaced_queries
    assert "4711" not in world.checkpoint("file:/old").replaced_queries


def test_old_query_runs_again_after_an_undo(world: World) -> None:
    world.checkpoint("file:/old").desired_state = QueryState.STOPPED  # by `change`
    world.change()
    world.undo()

    assert QueryState.RUNNING is world.checkpoint("file:/old").desired_state


def test_new_query_starts_without_the_old_checkpoint_once_it_has_delivered(world: World) -> None:
    world.change()
    replayed(world)
    removed = [file for file in world.disk.files if file.startswith("file:/old/")]
    old = {file: world.disk.files.pop(file) for file in removed}
    assert [] == [root for root in world.startable() if root == "file:/new"]

    world.log("file:/new", 2, (25, 6), 61_000)
    assert "file:/new" in world.startable()
    # Without changed.json the old query can start.
    del old["file:/old/changed.json"]
    world.disk.files.update(old)
    assert ["file:/old"] == world.startable()


def test_moved_checkpoint_of_a_new_query_that_has_delivered_starts(world: World) -> None:
    world.change()
    replayed(world)
    files = [file for file in world.disk.files if file.startswith("file:/new/")]
    for file in files:
        world.disk.files[file.replace("file:/new", "file:/moved")] = world.disk.files[file]
    moved = world.checkpoint("file:/moved")
    with pytest.raises(CheckpointError, match="is not complete"):
        successor.read_replay_to_run(moved)

    world.log("file:/moved", 2, (25, 6), 61_000)
    assert REPLAY.ends == successor.read_replay_to_run(moved).ends  # type: ignore[union-attr]


class RunningJob:
    """The job on the control socket, which runs the query of the old checkpoint."""

    def __init__(self, state: QueryState, monkeypatch: pytest.MonkeyPatch) -> None:
        self.name, self.state = OLD.name, state
        self.phase: Phase | None = None
        self.query_id = "4711"
        self.last_failure: Failure | None = None
        self.stop_fails = False
        monkeypatch.setattr(cli, "_stop_job", STOP_JOB)
        monkeypatch.setattr(old_query, "running_job", lambda _: copy(self))
        monkeypatch.setattr(cli, "call", self._call)

    def _call(self, _: Path, request: Stop | Resume) -> None:
        if request.query_id != self.query_id:  # as the query runner
            raise JobUnavailableError("the job runs another query")
        if self.stop_fails and request.call == "stop":
            self.state = QueryState.STOPPED
            raise JobUnavailableError("the job does not answer")
        self.state = {"stop": QueryState.STOPPED, "resume": QueryState.RUNNING}[request.call]


@pytest.mark.parametrize("before", [QueryState.RUNNING, QueryState.PAUSED, QueryState.STOPPED])
def test_old_query_continues_if_the_change_fails_after_it_has_stopped(
    before: QueryState, monkeypatch: pytest.MonkeyPatch
) -> None:
    World(monkeypatch)
    job = RunningJob(before, monkeypatch)

    def fail(*_: object, **__: object) -> None:
        assert job.state is QueryState.STOPPED
        raise StreamjoinError("no broker answers")

    monkeypatch.setattr(hand_over, "prepare_commit_topic", fail)
    with pytest.raises(StreamjoinError, match="no broker answers"):
        cli.change(OLD, NEW, JobSettings())
    expected = QueryState.RUNNING if before is QueryState.RUNNING else QueryState.STOPPED
    assert expected is job.state


@pytest.mark.parametrize("seen", ["before the stop", "at the stop"])
def test_query_of_another_clients_change_is_not_stopped(
    seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other change is made while this one is checked. `at the stop`: after the last look."""
    world = World(monkeypatch)
    job = RunningJob(QueryState.RUNNING, monkeypatch)
    stopped: list[str] = []

    def change_elsewhere(*_: object) -> None:
        job.query_id = "4712"

    def call(path: Path, request: Stop | Resume) -> None:
        RunningJob._call(job, path, request)
        stopped.append(request.call)

    if seen == "before the stop":
        monkeypatch.setattr(planner, "check_commit_topic_settings", change_elsewhere)
    else:
        monkeypatch.setattr(cli, "check_same_query", change_elsewhere)
    monkeypatch.setattr(cli, "call", call)
    with pytest.raises(StreamjoinError, match=r"job runs (another query|query 4712)"):
        world.change()
    assert ([], QueryState.RUNNING, ["file:/old"]) == (stopped, job.state, world.startable())


def test_query_continues_if_its_stop_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    job = RunningJob(QueryState.RUNNING, monkeypatch)
    job.stop_fails = True
    with pytest.raises(JobUnavailableError, match="does not answer"):
        world.change()
    assert (QueryState.RUNNING, ["file:/old"]) == (job.state, world.startable())


def test_new_query_continues_if_its_undo_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has delivered before it has stopped."""
    world = World(monkeypatch)
    world.change()
    job = RunningJob(QueryState.RUNNING, monkeypatch)
    job.query_id = world.checkpoint("file:/new").query_id

    def fail(*_: object) -> None:
        assert job.state is QueryState.STOPPED
        raise ConflictError("it has begun to deliver", allowed=[])

    monkeypatch.setattr(cli, "hand_back", fail)
    with pytest.raises(ConflictError, match="begun to deliver"):
        world.undo()
    assert (QueryState.RUNNING, ["file:/new"]) == (job.state, world.startable())


def test_commit_topic_that_cannot_be_read_ends_the_change_with_a_message(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> int:
        raise UnavailableError("a transaction is open there")

    reads_commit_topic(world, monkeypatch)
    monkeypatch.setattr(Reader, "delivered", fail)

    with pytest.raises(DeliveryError, match="a transaction is open there"):
        world.change()
