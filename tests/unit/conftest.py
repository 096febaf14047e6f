"""Unit tests stay in one process, except those marked `processes`, and except the one that answers
questions about SQL."""

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

_popen = subprocess.Popen


@pytest.fixture(autouse=True)
def single_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps `make test-unit` quick: it runs the tests without the marker."""
    if request.node.get_closest_marker("processes") is None:
        monkeypatch.setattr(subprocess, "Popen", _only_for_sql)


def _only_for_sql(command: Any, **options: Any) -> Any:
    if "streamjoin.SqlWorker" not in command:
        raise AssertionError("mark this test, or its module, with pytest.mark.processes")
    return _popen(command, **options)


@pytest.fixture(scope="session", autouse=True)
def ended_worker() -> Iterator[None]:
    yield
    from tests.sql_worker import WORKER

    WORKER.close()
