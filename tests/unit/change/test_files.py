"""Files of a change: the query that can start after a crash at each write."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from job.change import cli, files, hand_over, old_query, planner, undo
from job.change.comparison import compare
from job.change.files import SpecTexts
from job.change.plan import ChangePlan
from job.change.query import Query
from job.change.request_report import RequestReport
from job.checkpoint import successor
from job.checkpoint.checkpoint import Checkpoint
from job.delivery.commit_protocol import NO_BATCH, DeliveredAfterCutError
from job.delivery.delivered import Delivered
from job.errors import CheckpointError, ConflictError
from job.plan.fingerprint import fingerprint
from job.plan.plan import JoinPlan
from job.settings import JobSettings
from tests.unit.checkpoint.folders import CrashError, Disk, Folder
from tests.unit.replay.test_replay import REPLAY
from tests.unit.specs import plan

OLD = plan(output__delivery="exactly_once")
NEW = plan(output__delivery="exactly_once", checkpoint="/checkpoints/new")
SPEC = "name: tested"
OLD_SPEC = "name: tested # old"
SLOTS = 2
STOP_DELIVERIES = hand_over._stop_deliveries


class World:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.disk = Disk()
        for module in (files, successor):
            monkeypatch.setattr(module, "Checkpoint", lambda _, root: self.checkpoint(root))
        monkeypatch.setattr(cli, "_queries", self._queries)
        self.stopped_by: list[str] = []
        for module in (cli, undo):
            monkeypatch.setattr(module, "leased", lambda _: nullcontext())
        monkeypatch.setattr(cli, "_stop_job", self._stop_job)
        for module in (planner, hand_over):
            monkeypatch.setattr(module, "KafkaAdmin", lambda _: None)
        monkeypatch.setattr(old_query, "running_job", lambda _: None)
        monkeypatch.setattr(planner, "plan_change", self._planned)
        monkeypatch.setattr(planner, "_check_schemas", lambda _: None)
        monkeypatch.setattr(planner, "check_commit_topic_settings", lambda *_: None)
        monkeypatch.setattr(hand_over, "prepare_commit_topic", lambda *_: None)
        monkeypatch.setattr(hand_over, "_stop_deliveries", lambda *_, **__: None)
        monkeypatch.setattr(hand_over, "_take_name_over", self._take_name_over)
        monkeypatch.setattr(undo, "delivery_target", lambda *_, **__: None)
        monkeypatch.setattr(undo, "take_name_over", self._take_name_back)
        self.owners = ["4711"] * SLOTS
        """Query of the newest marker of each slot in the commit topic."""
        self.delivered: dict[str, int] = {}
        """Last batch of which a query has delivered anything, by its id."""
        self.planned = ChangePlan(NEW, compare(OLD, NEW), REPLAY, {})
        self.plans = 0
        self.disk.files["file:/old/query/metadata"] = {"id": "4711"}
        self.disk.files["file:/old/exactly_once.json"] = {"format": 1, "since": 0, "owner": "4711"}
        settings = {"format": 1, "settings": fingerprint(OLD)}
        self.disk.files["file:/old/fingerprint.json"] = settings
        for batch_id in range(8):
            self.log("file:/old", batch_id, (20, 6), 60_000)

    def checkpoint(self, root: str) -> Checkpoint:
        made = object.__new__(Checkpoint)
        folder: Any = Folder(self.disk, root)
        made.folder = folder
        return made

    @contextmanager
    def _queries(
        self, old: JoinPlan, new: JoinPlan, _: JobSettings
    ) -> Iterator[tuple[Query, Query]]:
        yield self.old(old), self.new(new)

    def old(self, plan: JoinPlan = OLD) -> Query:
        return Query(plan, self.checkpoint("file:/old"))

    def new(self, plan: JoinPlan = NEW) -> Query:
        return Query(plan, self.checkpoint("file:/new"))

    def _stop_job(self, *arguments: Any) -> None:
        self.stopped_by.append(arguments[-1].by)

    def _planned(self, *_: object, **__: object) -> ChangePlan:
        """Each plan chooses another id of the new query."""
        self.plans += 1
        if not self.planned.replay.is_shadow:
            new = self.planned.replay.model_copy(update={"query_id": f"new-{self.plans}"})
            self.planned = replace(self.planned, replay=new)
        return self.planned

    def _take_name_over(self, _: object, new: Query, *__: object) -> None:
        self._own(new.checkpoint, {})

    def _take_name_back(
        self, _: object, __: object, checkpoint: Checkpoint, last_batches: dict[str, int]
    ) -> None:
        self._own(checkpoint, last_batches)

    def start_new_query(self) -> None:
        """What a start does with the name."""
        new = self.checkpoint("file:/new")
        if not new.owns_name or new.query_id != self.owners[0]:
            self._own(new, {})

    def _own(self, checkpoint: Checkpoint, last_batches: dict[str, int]) -> None:
        """As ownership.ensure_ownership. A crash is possible before and after each slot."""
        for slot in range(SLOTS):
            self.disk.change(partial(self._take_slot, slot, checkpoint, last_batches))
        checkpoint.owns_name = True

    def _take_slot(self, slot: int, checkpoint: Checkpoint, last_batches: dict[str, int]) -> None:
        owner = self.owners[slot]
        assert self._may_own(checkpoint.folder.root, owner)
        last = last_batches.get(owner)
        if last is not None and self.delivered.get(owner, NO_BATCH) > last:
            raise CheckpointError("has delivered") from DeliveredAfterCutError
        self.owners[slot] = checkpoint.query_id

    def _may_own(self, root: str, owner: str) -> bool:
        """Whether the query of the checkpoint may take a slot of `owner`."""
        checkpoint = self.checkpoint(root)
        return owner == checkpoint.query_id or owner in checkpoint.replaced_queries

    def check_startable_query_owns_the_name(self) -> None:
        [root] = self.startable()
        if root == "file:/new":
            assert {self.checkpoint(root).query_id} == set(self.owners)
        assert all(self._may_own(root, owner) for owner in self.owners)
        # Otherwise the query compares markers with batches before the change.
        old = self.checkpoint("file:/old").folder.text("exactly_once.json")
        assert {"4711"} == set(self.owners) or old is None

    def log(self, root: str, batch_id: int, ends: tuple[int, int], watermark_ms: int) -> None:
        """A batch that has ended."""
        text = (
            f'v2\n{{"batchWatermarkMs":{watermark_ms}}}\n'
            f'left:{{"a":{{"0":{ends[0]},"1":5}}}}\nright:{{"b":{{"0":{ends[1]}}}}}'
        )
        self.disk.files[f"{root}/query/offsets/{batch_id}"] = text
        self.disk.files[f"{root}/query/commits/{batch_id}"] = "v2\n{}"

    def change(self) -> ChangePlan | None:
        return cli.change(OLD, NEW, JobSettings())

    def change_over_http(self) -> None:
        """What the job does. After a crash the job starts, and the caller repeats the call."""
        if successor.read_successor_spec(self.old().checkpoint) is None:
            hand_over.hand_over(self.old(), self.new(), None, SpecTexts(old=OLD_SPEC, new=SPEC))

    def undo_over_http(self) -> None:
        """What the job does. A job that has started with the old spec does it with that one."""
        if successor.read_successor_spec(self.old().checkpoint) is not None:
            undo.hand_back(self.old(), self.new())

    def undo(self) -> None:
        cli.undo(OLD, NEW, JobSettings())

    def crash(self, action: Callable[[], object], write: int, when: str) -> bool:
        """Whether the action was killed at that write."""
        self.disk.writes, self.disk.crash_at = 0, (write, when)
        try:
            action()
        except CrashError:
            return True
        finally:
            self.disk.crash_at = None
        return False

    def startable(self) -> list[str]:
        """The checkpoints whose query may start."""
        return [root for root in ("file:/old", "file:/new") if self._may_start(root)]

    def _may_start(self, root: str) -> bool:
        checkpoint = self.checkpoint(root)
        try:
            successor.check_not_changed(checkpoint)
            replay = successor.read_replay_to_run(checkpoint)
        except CheckpointError:
            return False
        return root == "file:/old" or replay is not None


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_change_hands_over_once(world: World) -> None:
    world.checkpoint("file:/old").replace_queries(["4710"])
    assert world.change() is world.planned
    assert world.change() is None
    assert 1 == len(world.stopped_by)  # the repetition does not stop the new query

    new = world.checkpoint("file:/new")
    assert ["file:/new"] == world.startable()
    assert world.planned.replay == successor.read_replay(new)
    assert frozenset({"4710", "4711"}) == new.replaced_queries
    starts = new.start_positions
    assert starts is not None
    assert REPLAY.starts == {"left": starts.left, "right": starts.right}


def test_change_and_undo_by_the_command_are_the_last_change_of_the_query_that_continues(
    world: World,
) -> None:
    def last_change(root: str) -> tuple[str, str | None]:
        report = RequestReport()
        report.read(world.checkpoint(root))
        assert report.last is not None
        assert report.last.made_at is not None
        assert report.last.error is None
        return report.last.requested_by, report.last.checkpoint

    cli.change(OLD, NEW, JobSettings(), by="user:ada")
    assert ("user:ada", NEW.checkpoint) == last_change("file:/new")

    cli.undo(OLD, NEW, JobSettings(), by="user:bob")
    assert ("user:bob", None) == last_change("file:/old")


def test_commands_of_the_old_query_and_the_change_follow_to_the_new_checkpoint(
    world: World,
) -> None:
    pause = {"verb": "pause", "by": "ada", "at": "2026-11-20T12:00:00Z", "reason": None}
    world.disk.files["file:/old/commands.json"] = {"format": 1, "commands": [pause]}
    cli.change(OLD, NEW, JobSettings(), by="user:ada")

    def commands(root: str) -> list[tuple[str, str]]:
        found = world.disk.files[f"{root}/commands.json"]["commands"]
        return [(each["verb"], each["by"]) for each in found]

    assert [("pause", "ada"), ("change", "user:ada")] == commands("file:/new")
    assert world.change() is None
    assert 2 == len(commands("file:/new"))

    cli.undo(OLD, NEW, JobSettings(), by="user:bob")
    assert ("undo", "user:bob") == commands("file:/old")[-1]
    assert 3 == len(commands("file:/old"))


@pytest.mark.parametrize("change", [World.change, World.change_over_http])
@pytest.mark.parametrize("when", ["before", "after"])
def test_crash_at_any_write_leaves_one_query_and_a_repetition_finishes(
    monkeypatch: pytest.MonkeyPatch, when: str, change: Callable[[World], object]
) -> None:
    seen = []
    for write in range(1, 20):
        world = World(monkeypatch)
        was_killed = world.crash(partial(change, world), write, when)
        seen.append(world.startable())
        world.check_startable_query_owns_the_name()
        spec = successor.read_successor_spec(world.checkpoint("file:/old"))
        is_over_http = change is World.change_over_http
        assert (SPEC if is_over_http and seen[-1] == ["file:/new"] else None) == spec
        change(world)
        assert ["file:/new"] == world.startable()
        world.check_startable_query_owns_the_name()
        if not was_killed:
            break
    assert not was_killed
    assert ["file:/old"] in seen


def test_new_checkpoint_with_a_query_is_refused(world: World) -> None:
    world.log("file:/new", 0, (1, 1), 0)
    world.disk.files["file:/new/fingerprint.json"] = {"format": 1, "settings": {}}

    with pytest.raises(CheckpointError, match="contains a query"):
        world.change()
    assert [] == world.stopped_by
    assert ["file:/old"] == world.startable()


@pytest.mark.parametrize("when", ["before", "after"])
def test_shadow_can_start_once_it_is_completely_prepared(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """The old query can start at any time."""
    trial = plan(name="trial", output__topic="trial", checkpoint="/checkpoints/new")
    for write in range(1, 20):
        world = World(monkeypatch)
        world.planned = replace(world.planned, replay=REPLAY.model_copy(update={"is_shadow": True}))

        def prepare() -> None:
            cli.shadow(OLD, trial, JobSettings())

        was_killed = world.crash(prepare, write, when)
        assert "file:/old" in world.startable()
        is_complete = not was_killed or (write, when) == (2, "after")
        assert is_complete == ("file:/new" in world.startable())
        prepare()
        assert ["file:/old", "file:/new"] == world.startable()
        assert frozenset() == world.checkpoint("file:/new").replaced_queries
        if not was_killed:
            break
    assert not was_killed


class Reader:
    """As MarkerReader: the newest batch that each state partition has delivered."""

    partitions = 9
    newest: ClassVar = [7, 7, 7, 7]
    intervals: ClassVar = 4 * [NO_BATCH]
    """The newest interval of which it has delivered a part."""

    def delivered(self, number: int, key: bytes, query_id: str, *, to_the_end: bool) -> Delivered:
        assert to_the_end
        assert (f"tested/{number}".encode(), "4711") == (key, query_id)
        return Delivered(self.newest[number], self.intervals[number])


TARGET = SimpleNamespace(
    name="tested", query_id="4711", commit_topic="tested.commits", reader=Reader
)


def reads_commit_topic(world: World, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The old query has 4 state partitions. The list receives their number and that of each
    fence."""
    fenced: list[tuple[int, int]] = []
    monkeypatch.setattr(hand_over, "_stop_deliveries", STOP_DELIVERIES)
    monkeypatch.setattr(hand_over, "delivery_target", lambda *_, **__: TARGET)
    monkeypatch.setattr(
        *(hand_over, "fence_slots"),
        lambda old, _, number: fenced.append((old.state_partitions, number)),
    )
    settings = {**fingerprint(OLD), "state_partitions": "4"}
    world.disk.files["file:/old/fingerprint.json"] = {"format": 1, "settings": settings}
    return fenced


def test_batch_after_the_cut_is_detected_in_each_state_partition_of_the_old_query(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment has the number of the new query, 2."""
    fenced = reads_commit_topic(world, monkeypatch)
    monkeypatch.setattr(Reader, "newest", [7, 7, 7, 8])
    with pytest.raises(ConflictError, match="was interrupted in batch 8"):
        world.change()
    assert ["file:/old"] == world.startable()
    assert ["4711"] * SLOTS == world.owners

    monkeypatch.setattr(Reader, "newest", [7, 7, 6, 7])
    world.change()
    assert ["file:/new"] == world.startable()
    assert [(4, 1), (4, 2)] == fenced


def test_at_least_once_delivery_has_no_name_to_take_over(world: World) -> None:
    cli.change(replace(OLD, output=plan().output), NEW, JobSettings())

    assert (["file:/new"], ["4711"] * SLOTS) == (world.startable(), world.owners)


def test_cut_is_read_from_the_logs_of_spark(world: World) -> None:
    for side, text in (("left", '{"a":{"0":3,"1":5}}'), ("right", '{"b":{"0":0}}')):
        world.disk.files[f"file:/old/query/sources/{side}/0"] = f"\0v1\n{text}"
    world.disk.files["file:/old/fingerprint.json"] = {
        "format": 1,
        "settings": {"left.topic": "a", "right.topic": "b"},
    }
    world.disk.files["file:/old/query/commits/7"] = 'v2\n{"nextBatchWatermarkMs":61000}'
    world.log("file:/old", 6, (15, 6), 50_000)
    del world.disk.files["file:/old/query/offsets/2"]
    world.disk.files["file:/old/query/offsets/8"] = world.disk.files["file:/old/query/offsets/7"]
    old = world.checkpoint("file:/old")

    cut = files.read_cut(old)
    # The old query runs, and Spark removes an entry while the log is read.
    world.disk.removed = "file:/old/query/offsets/3"
    assert cut == files.read_cut(old)

    assert (7, 60_000, 61_000) == (cut.batch.batch_id, cut.watermark_ms, cut.next_watermark_ms)
    assert {"left": {0: 20, 1: 5}, "right": {0: 6}} == cut.ends
    assert {"left": {0: 3, 1: 5}, "right": {0: 0}} == cut.first_offsets
    assert [0, 60_000, 50_000] == [late.watermark_ms for late in cut.late]
