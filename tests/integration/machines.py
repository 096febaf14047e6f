"""The local files of a job whose checkpoint is elsewhere."""

from pathlib import Path

import pytest


class Machine:
    """A folder for all local files of a job; the job must survive their loss."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.scratch = folder / "scratch"
        self.scratch.mkdir(parents=True)
        monkeypatch.setenv("SPARK_LOCAL_DIRS", str(self.scratch))
