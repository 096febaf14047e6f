"""Undo of a change, by the command and over HTTP."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pytest

from job.change import cli, files, undo
from job.checkpoint import successor
from job.errors import ConflictError
from job.event_time.interval import Interval
from job.instants import utc_text
from job.protocol.reports import ChangeRequestReport
from job.settings import JobSettings
from tests.unit.change.test_files import NEW, OLD, OLD_SPEC, SLOTS, World
from tests.unit.specs import plan


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


@pytest.mark.parametrize(
    ("change", "undo"),
    [(World.change, World.undo), (World.change_over_http, World.undo_over_http)],
)
@pytest.mark.parametrize("when", ["before", "after"])
def test_crash_during_an_undo_leaves_one_query(
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    change: Callable[[World], object],
    undo: Callable[[World], object],
) -> None:
    for write in range(1, 20):
        world = World(monkeypatch)
        change(world)
        was_killed = world.crash(partial(undo, world), write, when)
        if ["file:/new"] == world.startable():
            undo(world)
        assert ["file:/old"] == world.startable()
        world.check_startable_query_owns_the_name()
        if not was_killed:
            break
    assert not was_killed


NEW_ID = "new-2"
"""Of the query of file:/new after `World.change`."""


class OtherJob:
    """Runs the new query on another machine, because the lease of the suspended undo has expired.
    It has begun its replay: batch 1 is kept back, and batch 2 delivers results."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.has_delivered = False

    def start_and_deliver(self) -> None:
        """In all slots, in a batch that ends."""
        if "file:/new" in self._world.startable():
            self._world.start_new_query()
            self._world.log("file:/new", 2, (20, 6), 61_000)
            self._delivered()

    def start(self) -> None:
        """It has delivered nothing yet."""
        if "file:/new" in self._world.startable():
            self._world.start_new_query()
            self._world.log("file:/new", 2, (20, 6), 61_000)
            del self._world.disk.files["file:/new/query/commits/2"]

    def deliver(self) -> None:
        """In the last slot, in a batch that does not end. The job was running before the undo."""
        self._world.log("file:/new", 2, (20, 6), 61_000)
        del self._world.disk.files["file:/new/query/commits/2"]
        if self._world.owners[-1] == NEW_ID:
            self._delivered()

    def _delivered(self) -> None:
        self._world.delivered[NEW_ID] = 2
        self.has_delivered = True


@pytest.mark.parametrize(
    "work", [OtherJob.start_and_deliver, OtherJob.start, OtherJob.deliver], ids=lambda f: f.__name__
)
def test_undo_never_leaves_two_queries_that_deliver_the_same_results(
    monkeypatch: pytest.MonkeyPatch, work: Callable[[OtherJob], None]
) -> None:
    """The undo is suspended before each of its writes, and the new query delivers meanwhile."""
    outcomes = []
    for write in range(1, 20):
        world = World(monkeypatch)
        world.change()
        world.log("file:/new", 0, (19, 6), 0)
        world.log("file:/new", 1, (20, 6), 60_000)
        job = OtherJob(world)
        world.disk.writes, world.disk.suspended_at = 0, write
        world.disk.meanwhile = partial(work, job)

        is_refused = False
        try:
            world.undo()
        except ConflictError:
            is_refused = True
        if world.disk.writes < write:
            break
        assert is_refused or not job.has_delivered
        assert ["file:/new" if is_refused else "file:/old"] == world.startable()
        if is_refused:
            # It repeats batch 2 in the slots that have not delivered it, without older markers.
            world.start_new_query()
            assert [NEW_ID] * SLOTS == world.owners
            since = world.disk.files["file:/new/exactly_once.json"]["since"]
            assert since in {2, 3}
        outcomes.append((is_refused, job.has_delivered))
    expected = {(True, False)} if work is OtherJob.start else {(True, True)}
    assert {*expected, (False, False)} <= set(outcomes)


def test_undo_takes_the_name_with_exactly_once_delivery_only(world: World) -> None:
    at_least_once = replace(NEW, output=plan(checkpoint="/checkpoints/new").output)
    cli.change(OLD, at_least_once, JobSettings())
    owners = [*world.owners]

    undo.hand_back(world.old(), world.new(at_least_once))
    assert (["file:/old"], owners) == (world.startable(), world.owners)


def test_new_query_continues_after_a_crash_during_an_undo(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the name back, and its first batch needs no marker that the undo has replaced. The
    old query must not have delivered after the cut, as before."""
    for write in range(1, 20):
        world = World(monkeypatch)
        world.change()
        world.log("file:/new", 0, (19, 6), 0)
        was_killed = world.crash(world.undo, write, "after")
        if ["file:/new"] == world.startable():
            had_lost_slots = "4711" in world.owners
            assert world.checkpoint("file:/new").has_owned_name
            world.start_new_query()
            assert [NEW_ID] * SLOTS == world.owners
            document = world.disk.files["file:/new/exactly_once.json"]
            assert NEW_ID == document["owner"]
            assert not had_lost_slots or document["since"] == 1
        else:
            assert ["4711"] * SLOTS == world.owners
        if not was_killed:
            break
    assert not was_killed


def test_job_has_the_old_spec_only_of_a_change_that_it_has_made(world: World) -> None:
    old, new = world.checkpoint("file:/old"), world.checkpoint("file:/new")
    with pytest.raises(ConflictError, match="replaces no other query"):
        files.read_predecessor(old)
    world.change()
    with pytest.raises(ConflictError, match="--undo"):
        files.read_old_spec(old)
    world.undo()

    world.change_over_http()

    assert ("file:/old", OLD_SPEC) == (
        *(files.read_predecessor(new).folder.root, files.read_old_spec(old)),
    )


def test_undo_is_refused_after_a_reset_of_the_new_query(world: World) -> None:
    """The new query may have delivered before its reset."""
    world.change()
    world.disk.files.pop("file:/new/change.json")
    with pytest.raises(ConflictError, match="was reset after the change"):
        world.undo()
    assert "file:/old" not in world.startable()


def test_undo_is_refused_once_the_new_query_has_begun_to_deliver(world: World) -> None:
    with pytest.raises(ConflictError, match="no change to undo"):
        world.undo()
    world.change()
    world.log("file:/new", 0, (19, 6), 0)
    world.log("file:/new", 1, (20, 6), 60_000)
    assert not successor.has_delivered(world.checkpoint("file:/new"))

    world.log("file:/new", 2, (20, 6), 61_000)
    with pytest.raises(ConflictError, match="has begun to deliver"):
        world.undo()


def test_second_undo_is_refused_with_the_time_of_the_first(world: World) -> None:
    world.change()
    cli.undo(OLD, NEW, JobSettings())
    report = files.read_request(world.checkpoint("file:/old"))
    assert report is not None
    assert report.made_at is not None
    at = utc_text(report.made_at)

    with pytest.raises(ConflictError, match=f"to file:/new was already undone at {at}"):
        cli.undo(OLD, NEW, JobSettings())
    with pytest.raises(ConflictError, match=f"was already undone at {at}"):
        files.read_predecessor(world.checkpoint("file:/old"))


def test_second_undo_without_a_report_of_the_first_is_refused(world: World) -> None:
    world.change()
    undo.hand_back(world.old(), world.new())

    with pytest.raises(ConflictError, match="is not complete, or was already undone"):
        world.undo()


def test_stop_of_an_undo_has_the_user(world: World) -> None:
    cli.change(OLD, NEW, JobSettings(), by="user:ada")
    cli.undo(OLD, NEW, JobSettings(), by="user:bob")
    assert ["user:ada", "user:bob"] == world.stopped_by


def test_undo_is_refused_once_an_interval_has_begun(world: World) -> None:
    world.change()
    world.log("file:/new", 0, (19, 6), 0)
    world.log("file:/new", 1, (20, 6), 60_000)
    assert not successor.has_delivered(world.checkpoint("file:/new"))

    world.checkpoint("file:/new").record_interval(Interval(batch_id=2, watermark_ms=60_000))
    assert successor.has_delivered(world.checkpoint("file:/new"))


def test_report_of_a_requested_change_is_stored_until_the_change_was_made_and_undone(
    world: World,
) -> None:
    old = world.checkpoint("file:/old")
    assert files.read_request(old) is None
    report = ChangeRequestReport(
        requested_by="ada",
        requested_at=datetime(2026, 11, 20, tzinfo=UTC),
        checkpoint="/checkpoints/new",
        waits_for="batch 7 has not ended yet",
    )
    files.write_request(old, report)
    assert report == files.read_request(old)

    world.change_over_http()
    world.undo_over_http()
    assert files.read_request(old) is None
