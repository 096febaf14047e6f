"""A small job for the commands that call the running job."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from job.protocol.control import control_socket
from tests.unit.service.builders import SmallJob, batch, just_polled, status_after
from tests.unit.specs import spec_yaml


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """Of another state than a valid spec: it has an unset variable."""
    path = tmp_path / "join.yaml"
    path.write_text(spec_yaml(name="ad_attribution", kafka__bootstrap_servers="${NOT_SET}"))
    return path


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallJob]:
    path = tmp_path / "job.sock"
    monkeypatch.setenv("STREAMJOIN_SOCKET", str(path))
    small = SmallJob(status_after(batch(), brokers=just_polled()))
    with control_socket(path, small):
        yield small
