"""The number of state partitions of a run, and the offsets that Kafka must still have."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from job.errors import CheckpointError
from job.kafka.retention import next_offsets
from job.query.preparation import Preparation
from job.replay.replay import Replay
from job.settings import JobSettings
from job.spec.start_positions import StartPositions
from tests.unit.replay.test_replay import REPLAY
from tests.unit.specs import plan


def partitions(
    wanted: int | None, *, frozen: str | None = None, replay: Replay | None = None
) -> int:
    """`wanted`: of the environment. The plan itself has two."""
    settings, unused = JobSettings(state_partitions=wanted), SimpleNamespace()
    made: Any = Preparation(plan(), settings, unused, unused)  # type: ignore[arg-type]
    made.frozen = None if frozen is None else {"state_partitions": frozen}
    checkpoint = SimpleNamespace(freeze=lambda *_: None, folder=SimpleNamespace(root="file:/new"))
    planned = replace(plan(), state_partitions=wanted or 2)
    count: int = made._freeze_settings(planned, checkpoint, None, replay).state_partitions
    return count


def test_change_sets_the_number_of_state_partitions() -> None:
    assert 2 == partitions(None)
    assert 3 == partitions(None, replay=REPLAY)
    assert 3 == partitions(3, replay=REPLAY)
    assert 5 == partitions(None, frozen="5", replay=REPLAY)


def test_other_number_than_that_of_the_change_is_refused() -> None:
    with pytest.raises(CheckpointError, match=r"STREAMJOIN_STATE_PARTITIONS is 8.* for 3 state"):
        partitions(8, replay=REPLAY)


def test_retention_is_checked_for_added_partitions_and_for_a_new_checkpoint() -> None:
    join = plan().reading({"left": (3,), "right": (1,)})
    starts = StartPositions(left={0: 7, 1: 5}, right="latest")

    assert next_offsets(join, None, None) is None
    assert {"left": {0: 7, 1: 5, 2: 0}, "right": {}} == next_offsets(join, None, starts)
    read = {"left": {0: 9, 1: 9}, "right": {0: 4}}
    assert {"left": {0: 9, 1: 9, 2: 0}, "right": {0: 4}} == next_offsets(join, read, starts)
