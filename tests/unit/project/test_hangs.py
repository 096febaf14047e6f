"""tests/hangs.py, tests/failures.py and tests/cpu_time.py: what a run of pytest reports."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
CONFTEST = """
pytest_plugins = ["tests.cpu_time", "tests.failures", "tests.hangs"]
"""
HOOK = """
def pytest_runtest_protocol():
    raise ProcessLookupError("of a hook")
"""
TESTS = """
import ctypes, psutil, signal, subprocess, sys, time
import pytest

@pytest.fixture
def log(tmp_path):
    (tmp_path / "job.log").write_text("".join(f"line {n}\\n" for n in range(500)))
    (tmp_path / "000001.log").write_text("of RocksDB")

@pytest.mark.timeout(4)
def test_hangs_in_python(log):
    time.sleep(600)

@pytest.mark.timeout(4)
def test_does_not_react(log):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    time.sleep(600)

@pytest.mark.timeout(4)
def test_holds_the_lock(log):
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
    ctypes.PyDLL(None).sleep(600)

def test_fails(log):
    assert 1 == 2, "the message"

ORPHAN = '''
import os, time
if os.fork() == 0:
    os.setsid()
    while time.process_time() < 2: pass
    os._exit(0)
'''
def test_after():
    subprocess.run([sys.executable, "-c", ORPHAN])
    while {"zombie"} != {c.status() for c in psutil.Process().children(recursive=True)}:
        time.sleep(1)  # a poll takes CPU time, which is measured
"""


class Run(NamedTuple):
    output: str
    failures: str
    """The file for .ci/run."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return run_pytest(tmp_path_factory.mktemp("run"), CONFTEST, TESTS)


def run_pytest(folder: Path, conftest: str, tests: str) -> Run:
    """In one worker."""
    (folder / "conftest.py").write_text(conftest)
    (folder / "test_planted.py").write_text(tests)
    (folder / "results").mkdir()
    plugins = ["-p", "xdist", "-p", "pytest_timeout"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "-n1", "--dist=loadfile", "test_planted.py"],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "CI_RESULTS": str(folder / "results"),
            "RUNNING_TESTS": str(folder / "results"),
            "TEST_GRACE_SECONDS": "5",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
        check=False,
    )
    return Run(done.stdout, (folder / "results/failures").read_text())


def test_tests_that_hang_fail_and_the_others_run(run: Run) -> None:
    assert "4 failed, 1 passed" in run.output.splitlines()[-1], run.output
    for name in ("hangs_in_python", "does_not_react", "holds_the_lock", "fails"):
        assert f"FAILED test_planted.py::test_{name}" in run.failures


def test_hang_is_reported_with_the_stacks_and_the_log_of_the_job(run: Run) -> None:
    assert 1 == run.output.count("shortly before the limit")
    for name in ("test_hangs_in_python", "test_does_not_react"):
        assert f"{name}0/job.log:\nline 300\n" in run.output
        assert f", in {name}\n" in run.output
    assert " in test_holds_the_lock\n" in run.output
    assert "test_does_not_react hangs and does not react to its timeout" in run.failures


def test_error_outside_of_a_test_is_a_failure(tmp_path: Path) -> None:
    run = run_pytest(tmp_path, CONFTEST + HOOK, "def test_a(): pass")

    assert run.failures.startswith("ERROR of pytest\n"), run.output
    assert "ProcessLookupError: of a hook" in run.failures


def test_failed_test_shows_the_end_of_the_log_of_its_job(run: Run) -> None:
    assert "test_fails0/job.log:\nline 440\n" in run.output
    assert "of RocksDB" not in run.output
    assert "    AssertionError: the message\n    assert 1 == 2\n    at " in run.failures


def test_cpu_time_contains_that_of_processes_whose_parent_has_ended(run: Run) -> None:
    [line, *_] = [line for line in run.output.splitlines() if line.endswith("  test_planted.py")]

    assert 2 <= int(line.split()[0]) <= 6
