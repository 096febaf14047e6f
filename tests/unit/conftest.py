"""Unit tests stay in one process, except those marked `processes`."""

import subprocess
from typing import Any, NoReturn

import pytest


@pytest.fixture(autouse=True)
def single_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps `make test-unit` quick: it runs the tests without the marker."""
    if request.node.get_closest_marker("processes") is None:
        monkeypatch.setattr(subprocess, "Popen", _refused)


def _refused(*_: Any, **__: Any) -> NoReturn:
    raise AssertionError("mark this test, or its module, with pytest.mark.processes")
