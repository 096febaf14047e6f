"""The fence number in the checkpoint."""

from datetime import UTC, datetime
from typing import Any

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.reset import reset_checkpoint
from job.spec.start_positions import StartPositions
from tests.unit.checkpoint.folders import Disk, Folder


def test_no_two_fences_have_one_number() -> None:
    checkpoint = object.__new__(Checkpoint)
    folder: Any = Folder(Disk(), "file:/c")
    checkpoint.folder = folder
    assert 0 == checkpoint.fence
    assert (1, 1) == (checkpoint.increment_fence(), checkpoint.fence)

    # The records in the commit topic stay, too.
    checkpoint.begin_exactly_once()
    checkpoint.end_exactly_once()
    assert (2, 2) == (checkpoint.increment_fence(), checkpoint.fence)

    positions = StartPositions(left="earliest", right="latest")
    reset_checkpoint(checkpoint, positions, datetime.now(UTC))
    assert 3 == checkpoint.increment_fence()
