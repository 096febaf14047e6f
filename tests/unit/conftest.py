"""Unit tests stay in one process, except those marked `processes`, and except the one that answers
questions about SQL."""

import subprocess
import sys
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


@pytest.fixture(autouse=True)
def commands_share_the_sql_worker(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A process for SQL takes 1 CPU-second to start: a command starts it only in tests with one of
    the markers."""
    starts = any(map(request.node.get_closest_marker, ("processes", "starts_sql_worker")))
    spec_file = sys.modules.get("job.commands.spec_file")
    if starts or spec_file is None:
        yield
        return
    from tests.sql_worker import WorkerOfCommands

    monkeypatch.setattr(spec_file, "SqlWorker", WorkerOfCommands)
    yield
    assert 0 == WorkerOfCommands.not_closed, "a command has not closed its worker"


@pytest.fixture(scope="session", autouse=True)
def ended_worker() -> Iterator[None]:
    yield
    from tests.sql_worker import WORKER

    WORKER.close()
