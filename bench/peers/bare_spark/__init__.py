"""The same Spark with the same settings, without this project's code."""

import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.running import Program, Task
from bench.streamjoin import checkpoint_of, join_spec
from deploy.local.processes import start_child
from job.installation.java import java_home
from job.spec.output import Delivery


@dataclass(frozen=True)
class BareSpark(Program):
    """With `joins` its own join and Kafka sink; without, the same work as it has without a join."""

    is_peer: bool = field(default=True, kw_only=True)

    def start(self, task: Task, folder: Path, log: Path) -> subprocess.Popen[bytes]:
        spec = folder / "spec.yaml"
        spec.write_text(join_spec(task, checkpoint_of(folder), Delivery.AT_LEAST_ONCE))
        environment = {
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "SPARK_LOCAL_DIRS": str(folder / "scratch"),
        }
        query = "join" if self.joins else "no-join"
        return start_child(
            [sys.executable, "-m", "bench.peers.bare_spark", spec, query],
            log=log,
            environment=environment,
        )
