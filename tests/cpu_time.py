"""CPU time of a test run, by level and by file: of pytest, its workers and all their descendants.

Descendants whose parent was killed become children of the worker, and stay zombies until it ends:
so a count of its descendants misses none of them, except those whose parent ignores SIGCHLD.
"""

import ctypes
import json
import os
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes import tree

_PR_SET_CHILD_SUBREAPER = 36
_SLOWEST = 15
OTHER = "pytest itself"


def adopt_orphans() -> None:
    """Make this process the parent of its descendants whose own parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def cpu_seconds() -> float:
    """Of this process and all its descendants, also those that have ended."""
    used = 0.0
    for process in tree(os.getpid()):
        with suppress(psutil.NoSuchProcess):  # it has ended
            # A zombie has its times until its parent waits for it.
            times = process.cpu_times()
            used += times.user + times.system + times.children_user + times.children_system
    return used


class CpuTime:
    """In each process of pytest."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._counted = 0.0
        self._has_workers = False

    def _count(self, name: str) -> None:
        now = cpu_seconds()
        self.seconds[name] += now - self._counted  # type: ignore[assignment]  # a Counter of floats
        self._counted = now

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        if not self._counted:
            self._count(OTHER)
        result = yield
        if nextitem is None or nextitem.path != item.path:
            self._count(str(item.path.relative_to(item.config.rootpath)))
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workeroutput"):
            self._count(OTHER)
            session.config.workeroutput["cpu"] = dict(self.seconds)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """A worker has ended; one that crashed has no output."""
        self._has_workers = True
        self.seconds.update(getattr(node, "workeroutput", {}).get("cpu", {}))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if hasattr(terminalreporter.config, "workeroutput"):
            return
        if self._has_workers:
            self.seconds[OTHER] += sum(os.times()[:2])  # type: ignore[assignment]
        else:
            self._count(OTHER)
        levels: Counter[str] = Counter()
        for name, seconds in self.seconds.items():
            levels[name.split("/")[1] if "/" in name else name] += seconds  # type: ignore[assignment]
        terminalreporter.section("CPU-seconds")
        for counter, count in ((levels, None), (self.seconds, _SLOWEST)):
            for name, seconds in counter.most_common(count):
                terminalreporter.write_line(f"{seconds:8.0f}  {name}")
        if folder := os.environ.get("CI_RESULTS"):
            line = json.dumps({name: round(seconds, 1) for name, seconds in levels.items()})
            (Path(folder) / f"levels-{os.getpid()}.json").write_text(line)


def pytest_configure(config: pytest.Config) -> None:
    if sys.platform == "linux":
        adopt_orphans()
        config.pluginmanager.register(CpuTime(), "cpu-time")
