"""What the tests of the sidecar share."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the control socket of a test's job is."""
    return tmp_path / "job.sock"
