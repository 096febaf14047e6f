"""Start positions of a reset that names only some partitions."""

from types import SimpleNamespace
from typing import Any

import pytest

from job.control.reset import Reset
from job.protocol import calls
from job.redaction import Redaction
from job.spec.start_positions import StartPositions
from tests.unit.checkpoint.folders import checkpoint_with
from tests.unit.specs import plan

FORMAT = {"format": 1}


@pytest.mark.parametrize(
    ("stored", "left"),
    [
        pytest.param({"left": {"0": 5, "1": 6}, "right": {"0": 7}}, {0: 9, 1: 6}, id="offsets"),
        pytest.param({"left": "latest", "right": "latest"}, {0: 9}, id="named starts"),
        pytest.param(None, {0: 9}, id="none"),
    ],
)
def test_reset_before_a_batch_keeps_the_start_of_the_other_partitions(
    stored: dict[str, Any] | None, left: dict[int, int]
) -> None:
    files = {} if stored is None else {"starts.json": {**FORMAT, **stored}}
    _, checkpoint = checkpoint_with(files)
    resources: Any = SimpleNamespace(checkpoint=lambda: checkpoint, release=lambda: None)
    reset = Reset(plan(), resources, Redaction(), on_reset=lambda: None)

    starts = StartPositions(left={0: 9}, right="latest")
    reset.request(calls.Reset(starts=starts))
    reset.execute()

    assert reset.report is not None
    assert reset.report.error is None
    assert StartPositions(left=left, right="latest") == checkpoint.start_positions
