"""A reset that was interrupted at any step is completed by the next holder of the lease."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import product
from typing import Any

import pytest

from job.change import cli as change_cli
from job.checkpoint import cli
from job.checkpoint.cli import OpenCheckpoint, leased
from job.checkpoint.reset import (
    check_no_reset_is_pending,
    complete_reset,
    is_reset_pending,
    reset_checkpoint,
)
from job.errors import CheckpointError
from job.plan.plan import JoinPlan
from job.spec.sides import SIDES
from job.spec.start_positions import StartPositions
from tests.unit.checkpoint.folders import ROOT, CrashError, Disk, checkpoint_with
from tests.unit.specs import plan

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
ASIDE = "aside-2026-01-31T12-00-00Z"
POSITIONS = StartPositions(left={0: 7, 1: 3}, right="latest")
OLD = {
    "fingerprint.json": {"format": 1, "settings": {"join.type": "inner"}},
    "topics.json": {"format": 1, "topics": {"left": "id"}},
    "exactly_once.json": {"format": 1, "since": 0, "owner": "4711"},
    **{
        name: {"format": 1}
        for name in (
            *("change.json", "event_times.json", "filters.json", "interval.json"),
            *("skipped.json", "watermarks/490000.json", "watermarks/490001.json"),
        )
    },
    "starts.json": {"format": 1, "left": "earliest", "right": "earliest"},
    "replaces.json": {"format": 1, "query_ids": ["4710"], "any": False},
    "fence.json": {"format": 1, "number": 3},
    "desired_state.json": {"format": 1, "state": "STOPPED"},
    "query/metadata": '{"id":"4711"}',
    "query/offsets/0": "v2\n{}\n",
}
NEW = {
    "starts.json": {"format": 1, "left": {"0": 7, "1": 3}, "right": "latest"},
    "replaces.json": {"format": 1, "query_ids": ["4710"], "any": True},
    "fence.json": OLD["fence.json"],
    "desired_state.json": OLD["desired_state.json"],
    f"{ASIDE}/fingerprint.json": OLD["fingerprint.json"],
    f"{ASIDE}/topics.json": OLD["topics.json"],
    f"{ASIDE}/query/metadata": OLD["query/metadata"],
    f"{ASIDE}/query/offsets/0": OLD["query/offsets/0"],
}


def files(disk: Disk) -> dict[str, Any]:
    return {name.removeprefix(f"{ROOT}/"): content for name, content in disk.files.items()}


def test_reset_moves_the_old_query_and_leaves_the_start_positions() -> None:
    disk, checkpoint = checkpoint_with(OLD)

    assert f"{ROOT}/{ASIDE}" == reset_checkpoint(checkpoint, POSITIONS, NOW)
    assert NEW == files(disk)
    assert POSITIONS == checkpoint.start_positions


def test_reset_of_an_empty_checkpoint_moves_nothing() -> None:
    disk, checkpoint = checkpoint_with({})

    assert reset_checkpoint(checkpoint, POSITIONS, NOW) is None
    assert {"starts.json", "replaces.json"} == set(files(disk))


def interrupt(disk: Disk, write: int, when: str, action: Callable[[], object]) -> None:
    disk.writes, disk.crash_at = 0, (write, when)
    with pytest.raises(CrashError):
        action()
    disk.crash_at = None


@pytest.mark.parametrize("when", ["before", "after"])
def test_reset_that_was_interrupted_is_completed(when: str) -> None:
    """Also if the completion is interrupted."""
    disk, checkpoint = checkpoint_with(OLD)
    reset_checkpoint(checkpoint, POSITIONS, NOW)
    steps = disk.writes
    for first, second in product(range(1, steps + 1), range(1, steps)):
        disk, checkpoint = checkpoint_with(OLD)
        interrupt(disk, first, when, partial(reset_checkpoint, checkpoint, POSITIONS, NOW))
        is_pending = (first, when) not in {(1, "before"), (steps, "after")}
        assert is_pending is is_reset_pending(checkpoint)
        if is_pending:
            disk.writes, disk.crash_at = 0, (second, when)
            with suppress(CrashError):
                complete_reset(checkpoint)
            disk.crash_at = None
        complete_reset(checkpoint)
        assert (OLD if (first, when) == (1, "before") else NEW) == files(disk)


def test_second_reset_after_an_interrupted_one_has_its_own_positions() -> None:
    disk, checkpoint = checkpoint_with(OLD)
    interrupt(disk, 12, "after", partial(reset_checkpoint, checkpoint, POSITIONS, NOW))
    assert not checkpoint.folder.exists("query"), "it is moved, and the other files are not"

    complete_reset(checkpoint)
    latest = StartPositions(left="latest", right="latest")
    assert reset_checkpoint(checkpoint, latest, NOW + timedelta(hours=1)) is None
    assert {**NEW, "starts.json": {"format": 1, "left": "latest", "right": "latest"}} == files(disk)


def test_rest_of_a_folder_that_an_object_store_has_moved_partly_is_moved_next_to_it() -> None:
    disk, checkpoint = checkpoint_with(OLD)
    pending = {"format": 1, "left": "latest", "right": "latest", "aside": ASIDE}
    disk.files[f"{ROOT}/reset.json"] = pending
    disk.files[f"{ROOT}/{ASIDE}/query/metadata"] = disk.files.pop(f"{ROOT}/query/metadata")

    complete_reset(checkpoint)
    assert [f"{ASIDE}/query/metadata", f"{ASIDE}/rest/query/offsets/0"] == sorted(
        name for name in files(disk) if "query/" in name
    )


def test_holder_of_the_lease_first_completes_the_reset() -> None:
    disk, checkpoint = checkpoint_with(OLD)
    interrupt(disk, 2, "before", partial(reset_checkpoint, checkpoint, POSITIONS, NOW))

    with pytest.raises(CheckpointError, match=r"is not complete.*`streamjoin checkpoint repair`"):
        check_no_reset_is_pending(checkpoint)
    with leased(checkpoint):
        check_no_reset_is_pending(checkpoint)
        assert POSITIONS == checkpoint.start_positions
    assert NEW == files(disk)


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A checkpoint that all commands open, and whose reset is not complete."""
    disk, checkpoint = checkpoint_with(OLD)
    interrupt(disk, 2, "before", partial(reset_checkpoint, checkpoint, POSITIONS, NOW))
    no_session: Any = None

    @contextmanager
    def opened(*_: object) -> Iterator[OpenCheckpoint]:
        yield OpenCheckpoint(no_session, checkpoint)

    for module in (cli, change_cli):
        monkeypatch.setattr(module, "view_checkpoint", opened)
    monkeypatch.setattr(change_cli, "Checkpoint", lambda *_: checkpoint_with({})[1])
    return disk


def other() -> tuple[JoinPlan, JoinPlan]:
    """A join and one with another condition and checkpoint."""
    return plan(), plan(checkpoint="/other", join__condition="left.cost > 1")


COMMANDS: dict[str, Callable[[Any], object]] = {
    "verify": lambda settings: cli.verify(plan(), settings),
    "backup": lambda settings: cli.backup(plan(), settings, "elsewhere"),
    "state": lambda settings: cli.state(plan(), settings, SIDES, []),
    "change": lambda settings: change_cli.plan(*other(), settings),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_does_not_read_the_rest_of_the_old_query(command: str, interrupted: Disk) -> None:
    before = files(interrupted)
    with pytest.raises(CheckpointError, match=r"is not complete.*`streamjoin checkpoint repair`"):
        COMMANDS[command](None)
    assert before == files(interrupted)


def test_repair_completes_the_reset(interrupted: Disk) -> None:
    settings: Any = None
    assert ["the reset that was interrupted is complete"] == cli.repair(plan(), settings).lines
    assert NEW == files(interrupted)
    assert ["nothing to repair"] == cli.repair(plan(), settings).lines
