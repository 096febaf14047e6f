"""What a job has on its own machine, when its checkpoint is elsewhere."""

from pathlib import Path

import pytest


class Machine:
    """A folder for all that a job keeps beside its checkpoint; nothing in it may be missed."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.scratch = folder / "scratch"
        self.scratch.mkdir(parents=True)
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(self.scratch))
