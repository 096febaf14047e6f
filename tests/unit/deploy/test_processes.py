"""Child processes: they end on request, and never outlive their parent."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from threading import Thread

import psutil
import pytest

from deploy.local.processes import last_lines, start_child, stop_child
from tests.polling import wait_until
from tests.processes import has_ended

pytestmark = pytest.mark.processes

TIMEOUT = 30.0
TELL_AND_WAIT = "echo up; while true; do sleep 0.05; done"


def test_output_goes_to_the_log_after_what_stood_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")

    assert 3 == start_child(["sh", "-c", "echo out; echo err >&2; exit 3"], log=log).wait(TIMEOUT)

    assert "before\nout\nerr\n" == log.read_text()


def test_last_lines_leave_out_what_an_earlier_run_wrote(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("old\n1\n2\n3\n")

    assert "2\n3" == last_lines(log, start=len("old\n"), count=2)
    assert "1\n2\n3" == last_lines(log, start=len("old\n"))


def test_child_gets_sigterm_and_may_clean_up(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = start_child(["sh", "-c", "trap 'echo tidy; exit 0' TERM; " + TELL_AND_WAIT], log=log)
    wait_until(lambda: "up" in log.read_text(), TIMEOUT, "the child is up")

    assert 0 == stop_child(child, grace_seconds=TIMEOUT)

    assert "up\ntidy\n" == log.read_text()


def test_child_that_will_not_end_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    child = start_child(["sh", "-c", "trap '' TERM; " + TELL_AND_WAIT], log=log)
    wait_until(lambda: "up" in log.read_text(), TIMEOUT, "the child is up")

    assert -signal.SIGKILL == stop_child(child, grace_seconds=0.1)
    assert -signal.SIGKILL == stop_child(child, grace_seconds=0.1)


def test_ctrl_c_does_not_reach_a_child(tmp_path: Path) -> None:
    child = start_child(["sleep", "600"], log=tmp_path / "log")

    assert os.getpgid(child.pid) != os.getpgid(0)

    stop_child(child, grace_seconds=TIMEOUT)


def test_child_outlives_the_thread_that_started_it(tmp_path: Path) -> None:
    children = []

    def start() -> None:
        child = start_child(["sleep", "600"], log=tmp_path / "log")
        wait_until(lambda: "sleep" == psutil.Process(child.pid).name(), TIMEOUT, "it sleeps")
        children.append(child)

    thread = Thread(target=start)
    thread.start()
    thread.join()
    [child] = children

    # Linux would have killed it when the thread ended; SIGTERM ends it here.
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.3)
    assert -signal.SIGTERM == stop_child(child, grace_seconds=TIMEOUT)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_child_dies_with_a_killed_parent(tmp_path: Path) -> None:
    program = f"""
import pathlib
from deploy.local.processes import start_child
child = start_child(["sleep", "600"], log=pathlib.Path({str(tmp_path / "log")!r}))
print(child.pid, flush=True)
child.wait()
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = psutil.Process(int(parent.stdout.readline()))
        wait_until(lambda: "sleep" == child.name(), TIMEOUT, "the child sleeps")

        parent.kill()

    wait_until(lambda: has_ended(child), TIMEOUT, "the child has ended")
