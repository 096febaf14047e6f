"""`make bench`: how fast the join is on this machine, its results verified.

python -m bench --records 20000 --runs 1 --latency-seconds 10        a quick look
"""

import argparse
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from bench import latency, throughput
from bench.backlog import Backlog, backlog, delete_stray_topics
from bench.latency import Latency
from bench.load import WORKLOADS
from bench.programs import PROGRAMS
from bench.report import (
    Measurement,
    append_line,
    latency_table,
    machine,
    throughput_table,
    verdicts,
)
from bench.throughput import Throughput
from deploy.local.kafka import EmbeddedKafka
from job.errors import StreamjoinError

_REPOSITORY = Path(__file__).parents[1]
_DATA = _REPOSITORY / "data" / "bench"
_KAFKA = _DATA / "kafka"
_RESULTS = _REPOSITORY / "bench" / "results" / "results.jsonl"
# A heap that never grows: a broker busy with itself would be measured as part of the program.
_BROKER_JVM_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseSerialGC")

Run = TypeVar("Run", Throughput, Latency)


class Bench:
    """One `make bench`."""

    def __init__(self, arguments: argparse.Namespace, kafka: EmbeddedKafka) -> None:
        self._arguments = arguments
        self._kafka = kafka
        self._workload = WORKLOADS[arguments.workload]
        self._program = PROGRAMS[arguments.program]
        self._console = Console()

    def run(self) -> bool:
        """Measure and report; whether all results were right."""
        waiting = self._backlog()
        throughputs: list[Throughput] = []
        latencies: list[Latency] = []
        for number in range(1, self._arguments.runs + 1):
            throughputs.append(self._measured(number, lambda at: self._throughput(waiting, at)))
            if self._arguments.latency_seconds:
                latencies.append(self._measured(number, self._latency))
        self._report(throughputs, latencies)
        runs: list[Measurement] = [*throughputs, *latencies]
        return all(run.correct for run in runs)

    def _backlog(self) -> Backlog:
        folder = _KAFKA / "backlogs"
        delete_stray_topics(self._kafka, folder)
        with self._console.status("Records into Kafka, once; they are kept for the next time…"):
            return backlog(self._workload, self._arguments.records, self._kafka, folder)

    def _throughput(self, waiting: Backlog, folder: Path) -> Throughput:
        return throughput.measured(self._program, self._workload, waiting, self._kafka, folder)

    def _latency(self, folder: Path) -> Latency:
        return latency.measured(
            self._program,
            self._workload,
            self._kafka,
            folder,
            rate=self._arguments.rate,
            seconds=self._arguments.latency_seconds,
        )

    def _measured(self, number: int, measure: Callable[[Path], Run]) -> Run:
        folder = _DATA / "runs" / uuid.uuid4().hex[:8]
        with self._console.status(f"Run {number} of {self._arguments.runs}…"):
            run = measure(folder)
        settings = {name: value for name, value in vars(self._arguments).items() if name != "runs"}
        append_line(_RESULTS, run, settings)
        if run.correct:
            shutil.rmtree(folder)
        else:
            self._say(f"The program's log and state are kept in {folder}")
        return run

    def _report(self, throughputs: list[Throughput], latencies: list[Latency]) -> None:
        name = f"{self._program.name}, workload {self._workload.name}, runs: {len(throughputs)}"
        self._say(machine())
        self._say(f"\n{name}, {self._arguments.records:,} records a side waiting in Kafka")
        self._console.print(throughput_table(throughputs))
        if latencies:
            self._say(f"{name}, {self._arguments.rate:,} records/s a side")
            self._console.print(latency_table(latencies))
        for line in self._verdicts(throughputs, latencies):
            self._say(line)

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False)

    def _verdicts(self, throughputs: list[Throughput], latencies: list[Latency]) -> Iterator[str]:
        runs: list[Measurement] = [*throughputs, *latencies]
        yield f"{sum(run.correct for run in runs)} of {len(runs)} result sets are as expected."
        yield from verdicts("throughput", throughputs)
        yield from verdicts("latency", latencies)


def main() -> int:
    arguments = _arguments()
    try:
        with EmbeddedKafka(_KAFKA, jvm_options=_BROKER_JVM_OPTIONS) as kafka:
            return 0 if Bench(arguments, kafka).run() else 1
    except StreamjoinError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure the join on this machine.")
    parser.add_argument("--records", type=int, default=1_000_000, help="on each side (1,000,000)")
    parser.add_argument("--runs", type=int, default=3, help="of each measurement (3)")
    parser.add_argument("--workload", choices=WORKLOADS, default="inner")
    parser.add_argument("--program", choices=PROGRAMS, default="streamjoin")
    parser.add_argument("--rate", type=int, default=1_000, help="records/s a side (1,000)")
    parser.add_argument(
        "--latency-seconds",
        type=float,
        default=60,
        help="measured at that rate; 0: not at all (60)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
