"""Runs the job on a standalone cluster of this machine: a master, workers of one core, and the job.

python -m bench.cluster SPEC WORKERS
"""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.streamjoin import Streamjoin, job_command
from deploy.local.ports import free_ports
from deploy.local.processes import start_child, stop_child

_HOST = "127.0.0.1"
_PORTS = range(17_077, 17_177)
_STOP_SECONDS = 50.0
# Memory of an executor by default.
_WORKER_MEMORY = "1g"


@dataclass(frozen=True)
class OnCluster(Streamjoin):
    workers: int = field(kw_only=True)
    """Each has one core, and its executor its own Python."""

    def command(self, spec: Path) -> list[str | Path]:
        return [sys.executable, "-m", "bench.cluster", spec, str(self.workers)]


def main() -> int:
    spec, workers = Path(sys.argv[1]), int(sys.argv[2])
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    [port] = free_ports(_PORTS, 1)
    master = f"spark://{_HOST}:{port}"
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,  # spark-class finds Spark by it
        "SPARK_LOCAL_IP": _HOST,
        "STREAMJOIN_SPARK_MASTER": master,
        "STREAMJOIN_CHECKPOINT_IS_SHARED": "true",
    }
    with ExitStack() as started:

        def start(command: Sequence[str | Path], log: str) -> subprocess.Popen[bytes]:
            child = start_child(command, log=spec.with_name(log), environment=environment)
            started.callback(stop_child, child, grace_seconds=_STOP_SECONDS)
            return child

        start(_daemon("master.Master", "--port", str(port)), "master.log")
        for number in range(workers):
            work = ["--cores", "1", "--memory", _WORKER_MEMORY, "--work-dir"]
            folder = spec.with_name(f"worker-{number}")
            start(_daemon("worker.Worker", *work, str(folder), master), f"{folder.name}.log")
        try:
            return start(job_command(spec), "job.log").wait()
        except KeyboardInterrupt:
            return 130


def _daemon(name: str, *options: str) -> list[str | Path]:
    """A worker retries until the master is up."""
    spark_class = Path(sys.executable).with_name("spark-class")
    place = ["--host", _HOST, "--webui-port", "0"]
    return [spark_class, f"org.apache.spark.deploy.{name}", *place, *options]


if __name__ == "__main__":
    sys.exit(main())
