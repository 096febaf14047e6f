"""Access to the state while the query runs: refusals."""

from types import SimpleNamespace
from typing import Any

import pytest

from job.checkpoint.checkpoint import Checkpoint
from job.control import state_lookup
from job.control.state_lookup import state_reader
from job.errors import ConflictError
from job.protocol.status import QueryState
from tests.unit.checkpoint.folders import Disk, Folder
from tests.unit.replay.test_replay import REPLAY
from tests.unit.specs import plan

RESOURCES: Any = SimpleNamespace(has_jvm=True, session=lambda: None)


@pytest.mark.parametrize("is_changed", [False, True])
def test_state_before_the_first_batch_is_refused_with_the_replay_of_a_change(
    monkeypatch: pytest.MonkeyPatch, *, is_changed: bool
) -> None:
    disk = Disk()
    if is_changed:
        disk.files["file:/c/change.json"] = REPLAY.model_dump(mode="json")
    checkpoint: Any = object.__new__(Checkpoint)
    checkpoint.folder = Folder(disk, "file:/c")
    monkeypatch.setattr(state_lookup, "Checkpoint", lambda *_: checkpoint)

    with pytest.raises(ConflictError, match="there is no state: no batch has ended yet") as refused:
        state_reader(plan(), RESOURCES, QueryState.RUNNING)
    repeats = f"the query still reads {REPLAY.records:,} records again: repeat the call once"
    assert is_changed == (repeats in str(refused.value))
