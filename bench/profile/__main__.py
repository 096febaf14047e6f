"""Profiles the CPU time of a program, down to the function: in a backlog, or in small batches.

python -m bench.profile --program streamjoin --program bare-spark
python -m bench.profile --rate 100
"""

import argparse
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import psutil
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table

from bench.__main__ import KAFKA, exit_code, run_folder, waiting_backlog
from bench.backlog import Backlog
from bench.latency import Stream
from bench.load import WORKLOADS
from bench.output import new_output
from bench.profile.parts import parts
from bench.programs import PROGRAMS
from bench.report import machine, printed
from bench.running import Program, Running, Task, running
from bench.topics import temporary_topics
from deploy.local.kafka import EmbeddedKafka
from job.errors import StreamjoinError
from job.installation.jars import fetch, jar_folder
from job.installation.java import java_home

_RESULTS = Path(__file__).parents[1] / "results"
_LOOK_SECONDS = 0.5
# Long enough to show a share of 1 %, short enough to cost 1 %.
_EVERY = "5ms"
# Time to attach and to write the stacks.
_PATIENCE_SECONDS = 60.0
_SPARKS = (
    "streamjoin",
    "streamjoin-at-least-once",
    "streamjoin-real-time",
    "streamjoin-processor",
    "bare-spark",
    "no-join",
)


class Profiling:
    def __init__(self, arguments: argparse.Namespace, kafka: EmbeddedKafka) -> None:
        self._arguments = arguments
        self._kafka = kafka
        self._console = Console()
        self._workload = WORKLOADS[arguments.workload]

    def run(self) -> bool:
        fetch("profiler")
        waiting = None
        if not self._arguments.rate:
            records = self._arguments.records
            waiting = waiting_backlog(self._workload, records, self._kafka, self._console)
        self._say(machine())
        for name in dict.fromkeys(self._arguments.programs):
            with self._console.status(f"{name} is running…"):
                stacks = self._stacks(PROGRAMS[name], waiting)
            self._say(f"\n{name}: stacks in {stacks}")
            self._say(printed(_table(stacks)))
        return True

    def _stacks(self, program: Program, waiting: Backlog | None) -> Path:
        """Profile a program that reads a backlog, or records that arrive meanwhile."""
        rate = self._arguments.rate
        file = _RESULTS / f"{program.name}{f'-{rate}' if rate else ''}.collapsed"
        file.parent.mkdir(exist_ok=True)
        folder = run_folder()
        with ExitStack() as opened:
            output = opened.enter_context(new_output(self._kafka, self._workload.partitions))
            if waiting:
                topics = (waiting.left_topic, waiting.right_topic)
            else:
                topics = (f"{output.topic}-left", f"{output.topic}-right")
                partitions = self._workload.partitions
                opened.enter_context(temporary_topics(self._kafka, *topics, partitions=partitions))
            task = Task(self._workload, self._kafka.bootstrap_servers, *topics, output.topic)
            run = opened.enter_context(running(program, task, self._kafka, folder))
            if rate:
                stream = Stream(task, rate)
                opened.callback(stream.end)
                stream.start()
            _pass_by(self._arguments.after, run)
            _sample(run.jvm(), self._arguments.seconds, file)
            run.check()
            if waiting and output.committed() >= waiting.expected.count:
                raise StreamjoinError("the backlog had ended before: take more --records")
        shutil.rmtree(folder)
        return file

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)


def _pass_by(seconds: float, run: Running) -> None:
    """The JIT compiler dominates the first batches."""
    until = run.started_at + seconds
    while time.time() < until:
        run.check()
        time.sleep(_LOOK_SECONDS)


def _sample(jvm: psutil.Process, seconds: int, file: Path) -> None:
    (loader,) = jar_folder("profiler").glob("*.jar")
    answer = subprocess.run(
        [
            *(java_home() / "bin" / "java", "-jar", loader, "profiler"),
            *("-e", "ctimer", "-i", _EVERY, "-t", "-d", str(seconds)),
            *("-o", "collapsed", "-f", file, str(jvm.pid)),
        ],
        capture_output=True,
        text=True,
        timeout=seconds + _PATIENCE_SECONDS,
        check=False,
    )
    if answer.returncode:
        raise StreamjoinError(f"async-profiler failed:\n{answer.stdout}{answer.stderr}")


def _table(stacks: Path) -> Table:
    table = Table("part", "share", "functions on top of the stack", box=MARKDOWN)
    with stacks.open() as lines:
        for part in parts(lines):
            heaviest = ", ".join(f"{frame} {share:.1%}" for frame, share in part.heaviest)
            table.add_row(part.name, f"{part.share:.1%}", heaviest)
    return table


def main() -> int:
    arguments = _arguments()
    return exit_code(KAFKA, lambda kafka: Profiling(arguments, kafka).run())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.profile", description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="waiting on the left side")
    parser.add_argument("--workload", choices=("inner", "table"), default="inner")
    parser.add_argument("--rate", type=int, default=0, help="records/s a side, and none waiting")
    parser.add_argument("--after", type=float, default=50, help="seconds from the launch (50)")
    parser.add_argument("--seconds", type=int, default=20, help="that are looked at (20)")
    parser.add_argument("--program", action="append", dest="programs", choices=_SPARKS)
    arguments = parser.parse_args()
    arguments.programs = arguments.programs or ["streamjoin"]
    return arguments


if __name__ == "__main__":
    sys.exit(main())
