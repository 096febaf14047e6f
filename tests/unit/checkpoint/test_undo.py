"""Undo of a change, by the command and over HTTP."""

from collections.abc import Callable
from functools import partial

import pytest

from job.checkpoint import changes
from job.errors import ConflictError
from job.event_time.interval import Interval
from tests.unit.checkpoint.test_changes import OLD_SPEC, World


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


def test_job_has_the_old_spec_only_of_a_change_that_it_has_made(world: World) -> None:
    old, new = world.checkpoint("file:/old"), world.checkpoint("file:/new")
    with pytest.raises(ConflictError, match="replaces no other query"):
        changes.predecessor(old)
    world.change()
    with pytest.raises(ConflictError, match="--undo"):
        changes.old_spec(old)
    world.undo()

    world.change_over_http()

    assert ("file:/old", OLD_SPEC) == (
        *(changes.predecessor(new).folder.root, changes.old_spec(old)),
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
    assert not changes.has_delivered(world.checkpoint("file:/new"))

    world.log("file:/new", 2, (20, 6), 61_000)
    with pytest.raises(ConflictError, match="has begun to deliver"):
        world.undo()


def test_undo_is_refused_once_an_interval_has_begun(world: World) -> None:
    world.change()
    world.log("file:/new", 0, (19, 6), 0)
    world.log("file:/new", 1, (20, 6), 60_000)
    assert not changes.has_delivered(world.checkpoint("file:/new"))

    world.checkpoint("file:/new").record_interval(Interval(2, 60_000))
    assert changes.has_delivered(world.checkpoint("file:/new"))
