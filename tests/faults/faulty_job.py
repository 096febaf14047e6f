"""A job that can be broken: at failpoints, with all its processes, with shorter waits."""

import os
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.integration.failpoint import FAILPOINTS
from tests.integration.jobs import START_SECONDS, Job
from tests.integration.jvms import SharedJvm
from tests.polling import wait_until
from tests.processes import name


class FaultyJob(Job):
    """A job with failpoints and short waits."""

    def __init__(
        self,
        spec: str,
        folder: Path,
        more: Mapping[str, str] | None = None,
        jvm: SharedJvm | None = None,
    ) -> None:
        super().__init__(spec, folder, jvm)
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
    def jvm(self) -> psutil.Process:
        [jvm] = [process for process in self.tree if name(process) == "java"]
        return jvm

    def arm(self, action: str, point: str) -> None:
        self.failpoint.write_text(f"{action} {point}")

    def wait_for_failpoint(self) -> None:
        wait_until(lambda: not self.failpoint.exists(), START_SECONDS, "the failpoint is reached")
