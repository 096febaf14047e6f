"""The limit: what the same Spark with the same settings does when it joins nothing."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.running import Program, Task
from bench.streamjoin import join_spec
from deploy.local.java import java_home
from deploy.local.processes import start_child
from job.join_spec.model import Delivery


@dataclass(frozen=True)
class NoJoin(Program):
    joins: bool = field(default=False, kw_only=True)

    def start(self, task: Task, folder: Path, log: Path) -> subprocess.Popen[bytes]:
        spec = folder / "spec.yaml"
        spec.write_text(join_spec(task, folder / "checkpoint", Delivery.AT_LEAST_ONCE))
        environment = {**os.environ, "JAVA_HOME": str(java_home())}
        return start_child(
            [sys.executable, "-m", "bench.peers.no_join", spec], log=log, environment=environment
        )
