"""A job that can be broken: at failpoints, with all its processes, with shorter waits."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests import processes
from tests.integration.jobs import START_SECONDS, Job
from tests.polling import wait_until

FAILPOINTS = Path(__file__).parents[1] / "integration" / "failpoints"


class FaultyJob(Job):
    """With the failpoints, and short waits."""

    def __init__(self, spec: str, folder: Path, more: Mapping[str, str] | None = None) -> None:
        super().__init__(spec, folder)
        self.failpoint = folder / "failpoint"
        self._more = dict(more or {})

    @property
    def environment(self) -> dict[str, str]:
        return {
            **super().environment,
            "PYTHONPATH": f"{FAILPOINTS}:{os.environ.get('PYTHONPATH', '')}",
            "STREAMJOIN_TEST_FAILPOINT": str(self.failpoint),
            "STREAMJOIN_RESTART_DELAY_MAX_SECONDS": "4",
            **self._more,
        }

    @property
    def tree(self) -> list[psutil.Process]:
        """The driver, its JVM and Spark's Python workers."""
        return processes.tree(self.process.pid)

    @property
    def jvm(self) -> psutil.Process:
        [jvm] = [each for each in self.tree if processes.name(each) == "java"]
        return jvm

    def kill_tree(self) -> int:
        """SIGKILL to all of it at once; how many processes that were."""
        tree = self.tree
        processes.signal_all(tree, signal.SIGKILL)
        self.process.wait()
        psutil.wait_procs(tree, START_SECONDS)
        return len(tree)

    def arm(self, action: str, point: str) -> None:
        self.failpoint.write_text(f"{action} {point}")

    def wait_for_failpoint(self) -> None:
        wait_until(lambda: not self.failpoint.exists(), START_SECONDS, "the failpoint is reached")
