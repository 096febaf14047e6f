"""Fixtures of the tests of the service."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from job.protocol.control import control_socket
from tests.unit.service.browser import chromium, running, serving_page, with_answers
from tests.unit.service.builders import SmallJob


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Path of the control socket of the test's job."""
    return tmp_path / "job.sock"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def job(path: Path) -> Iterator[SmallJob]:
    """A job that answers every call of the page."""
    with control_socket(path, running_job := with_answers(SmallJob(running()))):
        yield running_job


@pytest.fixture
def url(path: Path, job: SmallJob) -> Iterator[str]:
    """URL of the page."""
    assert job.answers
    with serving_page(path) as address:
        yield address
