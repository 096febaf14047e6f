"""The cost of a process tree includes all processes that ran in it."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest

from bench.processes import Sample, Spent, Watch, lasting_memory, spent, tree_usage
from tests.polling import wait_until

pytestmark = pytest.mark.processes

TIMEOUT = 30.0
BURN = "import time\nwhile time.process_time() < 0.3: pass"
HOLD = "held = bytearray(80_000_000); print('up', flush=True); import time; time.sleep(600)"


@contextmanager
def shell(script: str) -> Iterator[psutil.Process]:
    """A shell that prints "up" and is killed, with its children, in the end."""
    words = ["sh", "-c", script, sys.executable]
    with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
        assert process.stdout
        assert b"up\n" == process.stdout.readline()
        try:
            yield psutil.Process(process.pid)
        finally:
            os.killpg(process.pid, 9)


def test_cpu_of_a_child_that_has_ended_is_counted() -> None:
    with shell(f'"$0" -c "{BURN}"; echo up; sleep 600') as tree:
        cpu, _ = tree_usage(tree)

    assert cpu > 0.25


def test_process_that_has_just_appeared_may_show_the_memory_of_its_parent() -> None:
    assert 100 == lasting_memory({1: 100, 2: 100}, before={1: 90})
    assert 130 == lasting_memory({1: 100, 2: 30}, before={1: 100, 2: 100})


def test_process_that_has_ended_uses_nothing() -> None:
    with shell("echo up; sleep 600") as tree:
        pass

    assert (0.0, {}) == tree_usage(tree)


def test_watch_sees_its_tree_and_keeps_the_highest_memory() -> None:
    with (
        shell(f'"$0" -c "{HOLD}"; true') as tree,
        Watch(tree.pid, broker_pid=os.getpid()) as watch,
    ):
        wait_until(lambda: watch.peak_memory_bytes > 80_000_000, TIMEOUT, "it was seen")
        tree.children()[0].kill()

    assert watch.peak_memory_bytes > 80_000_000


def sample(at: float, *, tree: float) -> Sample:
    return Sample(at=at, tree=tree, broker=0, harness=0, machine=0, tree_memory_bytes=0)


def test_use_between_two_moments_is_read_between_the_samples() -> None:
    samples = [sample(10, tree=0), sample(20, tree=8), sample(30, tree=10)]

    assert 4 + 1 == spent(samples, since=15, until=25).tree
    assert 10 == spent(samples, since=0, until=99).tree


def test_foreign_load_is_what_nobody_here_used() -> None:
    used = Spent(seconds=10, tree=12, broker=3, harness=1, machine=18)

    assert 0.2 == pytest.approx(used.foreign_cores)
    assert 1.2 == pytest.approx(used.tree_cores)
