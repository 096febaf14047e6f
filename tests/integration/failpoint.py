"""The action that hits the job once; see failpoints/sitecustomize.py."""

import os
from pathlib import Path

import pytest

from tests.integration.jobs import START_SECONDS
from tests.polling import wait_until

FAILPOINTS = Path(__file__).with_name("failpoints")


class Failpoint:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._file = folder / "failpoint"
        monkeypatch.setenv("STREAMJOIN_TEST_FAILPOINT", str(self._file))
        monkeypatch.setenv("PYTHONPATH", f"{FAILPOINTS}:{os.environ.get('PYTHONPATH', '')}")

    def arm(self, action: str, point: str) -> None:
        self._file.write_text(f"{action} {point}")

    def wait(self) -> None:
        wait_until(lambda: not self._file.exists(), START_SECONDS, "the failpoint is reached")
