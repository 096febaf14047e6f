"""A test that hangs fails with the stacks of all threads, the logs of its jobs and the state of its
brokers, and the run goes on.

pytest-timeout raises an exception in the main thread at the limit. A thread of this module collects
the report shortly before: afterwards the test ends its jobs. If the main thread does not react,
because it is in C code or the clean-up hangs too, the thread prints the report and ends the
process. pytest-xdist then reports the test as failed, and starts another worker.
"""

import faulthandler
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.failures import record, state_of
from tests.processes import has_ended

LOG_LINES = 200
COLLECT_SECONDS = 10.0
"""Time before the limit at which the report is collected. At most half of the limit."""
GRACE_SECONDS = float(os.environ.get("TEST_GRACE_SECONDS", "180"))
"""Time for the clean-up of a test after its limit: a job and a shared JVM have 60 s each to end."""


class HangWatch:
    """Reports and ends hanging tests, in each process that runs tests."""

    def __init__(self) -> None:
        self._stderr = os.fdopen(os.dup(2), "w")  # pytest redirects 2 while a test runs
        self._running: tuple[pytest.Item, float, float] | None = None
        """The test, and when its report is collected and its limit reached."""
        self._report: tuple[pytest.Item | None, str] = (None, "")
        faulthandler.register(signal.SIGUSR1, file=self._stderr, all_threads=True)
        threading.Thread(target=self._watch, name="hangs", daemon=True).start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        note = running_tests() / f"running-{os.getpid()}"
        note.write_text(item.nodeid)
        try:
            return (yield)
        finally:
            note.unlink(missing_ok=True)
            self._running = None
            faulthandler.cancel_dump_traceback_later()

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, item: pytest.Item, settings: Any) -> None:
        limit = time.monotonic() + settings.timeout
        collect_at = limit - min(COLLECT_SECONDS, settings.timeout / 2)
        self._running = (item, collect_at, limit)
        # If even the thread cannot run, because C code holds Python's lock.
        last = settings.timeout + 2 * GRACE_SECONDS
        faulthandler.dump_traceback_later(last, exit=True, file=self._stderr)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        error = None if call.excinfo is None else call.excinfo.value
        # The text of an error of Java can fail, when the JVM has ended.
        if isinstance(error, pytest.fail.Exception) and str(error).startswith("Timeout ("):
            reported, text = self._report
            if reported is not item:
                text = "no report: a broker did not answer before the limit"
            report.sections.append(("shortly before the limit", text))
        return report

    def _watch(self) -> None:
        while True:
            time.sleep(1)
            if (running := self._running) is None:
                continue
            item, collect_at, limit = running
            if self._report[0] is not item and time.monotonic() > collect_at:
                self._report = (item, report_of(item))
            if time.monotonic() > limit + GRACE_SECONDS:
                self._give_up(item)

    def _give_up(self, item: pytest.Item) -> None:
        reason = (
            f"{item.nodeid} hangs and does not react to its timeout: the process is ended "
            f"{GRACE_SECONDS:.0f} s after the limit"
        )
        record(f"FAILED {item.nodeid}", reason)
        print(f"{reason}\n{self._report[1]}\n{stacks()}", file=self._stderr, flush=True)
        for process in psutil.Process().children(recursive=True):
            process.kill()
        os._exit(1)


class SkipCrashedTest:
    """pytest-xdist gives the test that ended a worker to the next worker too."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        """True: it is reported already, and not run."""
        own = f"running-{os.getpid()}"
        others = [note for note in running_tests().glob("running-*") if note.name != own]
        return (
            any(not _is_running(note) and note.read_text() == item.nodeid for note in others)
            or None
        )


def _is_running(note: Path) -> bool:
    try:
        return not has_ended(psutil.Process(int(note.name.partition("-")[2])))
    except psutil.NoSuchProcess:
        return False


def running_tests() -> Path:
    """Folder with a file for each process that runs a test: running-PID contains the test. It stays
    if the process crashes."""
    return Path(os.environ["RUNNING_TESTS"])


def report_of(item: pytest.Item) -> str:
    try:
        return f"{stacks()}\n{state_of(item, LOG_LINES)}"
    except Exception:  # the report must not end the thread
        return traceback.format_exc()


def stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"--- thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
        if ident != threading.get_ident()
    )


def pytest_configure(config: pytest.Config) -> None:
    if "RUNNING_TESTS" not in os.environ:
        folder = os.environ.get("CI_RESULTS") or tempfile.mkdtemp(prefix="running-tests-")
        os.environ["RUNNING_TESTS"] = folder
        if "CI_RESULTS" not in os.environ:
            config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
    config.pluginmanager.register(SkipCrashedTest(), "not-again")
    # A test that runs pytest inside its own process has one already.
    if not any(thread.name == "hangs" for thread in threading.enumerate()):
        config.pluginmanager.register(HangWatch(), "hangs")
