"""What the tests of the sidecar share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from job.protocol.control import control_socket
from tests.unit.service.browser import chromium, lively, running, serving_page
from tests.unit.service.builders import SmallJob


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the control socket of a test's job is."""
    return tmp_path / "job.sock"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def job(path: Path) -> Iterator[SmallJob]:
    """One that answers whatever the page asks."""
    with control_socket(path, running_job := lively(SmallJob(running()))):
        yield running_job


@pytest.fixture
def url(path: Path, job: SmallJob) -> Iterator[str]:
    """Of the page."""
    assert job.answers
    with serving_page(path) as address:
        yield address
