""".ci/run with stand-ins for its commands: nothing is lost, and the failures are its last lines."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[3]
MAKE = """#!/bin/sh
case "$1" in
  test-docker) echo "output of docker"; exec sleep "$DOCKER_SECONDS";;
  check) echo "output of check"; exit "$CHECK_CODE";;
  test) printf 'FAILED tests/test_a.py::test_b\\n    the message\\n' >"$CI_RESULTS/failures"
    echo "tests/test_c.py::test_d" >"$CI_RESULTS/running-99999999"
    echo "output of test"
    exec sh -c "$TEST";;
esac
"""
# The limit of the run is reached once the stand-in of the tests runs.
SLEEP = """#!/bin/sh
[ "$1" = 10 ] || exec /bin/sleep "$1"
until [ -e "$CI_RESULTS/running-99999999" ]; do /bin/sleep 0.1; done
"""
# Uses two CPU-seconds in a process whose parent ends at once, in a separate session.
ORPHAN = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while time.process_time() < 2: pass
        open(os.environ["CI_RESULTS"] + "/orphan", "w").close()
        time.sleep(600)
    os._exit(0)
os.wait()
while not os.path.exists(os.environ["CI_RESULTS"] + "/orphan"): time.sleep(0.1)
"""


def run(tmp_path: Path, **variables: str) -> tuple[int, str]:
    """Exit code and output of .ci/run."""
    shutil.copytree(ROOT / ".ci", tmp_path / ".ci")
    programs = {
        "make": MAKE,
        "sleep": SLEEP,
        **dict.fromkeys(("versitygw", "chromium", "promtool", "helm"), "#!/bin/sh\n"),
    }
    python = tmp_path / ".venv/bin/python"
    for path, text in (
        (python, "#!/bin/sh\nexit $UNCHANGED\n"),
        *((tmp_path / n, t) for n, t in programs.items()),
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    defaults = {
        "CHECK_CODE": "0",
        "DOCKER_SECONDS": "0",
        "FULL": "",
        "TEST": "rm $CI_RESULTS/failures",
        "UNCHANGED": "1",
    }
    done = subprocess.run(
        [tmp_path / ".ci/run"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", **defaults, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout


def test_run_without_failures_prints_the_output_and_the_cpu_time_of_each_step(
    tmp_path: Path,
) -> None:
    (tmp_path / "orphan.py").write_text(ORPHAN)
    code, output = run(tmp_path, TEST=f"rm $CI_RESULTS/failures; python3 {tmp_path}/orphan.py")

    assert (0, "Every step passed.") == (code, output.splitlines()[-1]), output
    for step in ("check", "test", "docker"):
        assert 1 == output.count(f"output of {step}"), output
    [cpu] = [line.split()[0] for line in output.splitlines() if line.endswith("  test")]
    assert int(cpu) >= 2
    assert "within the budget of 4800" in output


def test_failures_of_all_steps_are_the_last_lines(tmp_path: Path) -> None:
    code, output = run(tmp_path, CHECK_CODE="3", TEST="exit 2")

    assert 1 == code
    expected = [
        "step check ended with 3:",
        "    output of check",
        "step test ended with 2: see below",
        "FAILED tests/test_a.py::test_b",
        "    the message",
    ]
    last = output[output.index(" FAILURES ") :].splitlines()
    assert expected == [line for line in last[1:] if "exit code" not in line]
    assert 1 == output.count("output of docker"), output


def test_run_that_hangs_ends_with_the_tests_that_run(tmp_path: Path) -> None:
    code, output = run(tmp_path, LIMIT_SECONDS="10", DOCKER_SECONDS="600", TEST="sleep 600")

    assert 1 == code
    last = output[output.index(" FAILURES ") :]
    assert "step docker ended with 143:\n    output of docker" in last, output
    assert "step test ended with 143" in last
    assert ".ci/run has not ended after 10 s" in last
    assert "    tests/test_c.py::test_d (process 99999999)" in last
    assert "output of docker" in output


@pytest.mark.parametrize(("full", "images"), [("", False), ("1", True)])
def test_images_are_not_tested_if_unchanged_except_in_a_full_run(
    tmp_path: Path, full: str, *, images: bool
) -> None:
    code, output = run(tmp_path, UNCHANGED="0", FULL=full)

    assert 0 == code
    assert images == ("output of docker" in output)
    assert images != ("images: not tested" in output)
