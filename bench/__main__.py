"""`make bench`: measures how fast the join is on this machine, and verifies its results.

python -m bench --records 20000 --runs 1 --latency-seconds 10     a short measurement
"""

import argparse
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from rich.console import Console

from bench import latency, throughput
from bench.backlog import Backlog, backlog, delete_stray_topics
from bench.latency import Latency
from bench.load import WORKLOADS, Workload
from bench.programs import PROGRAMS
from bench.report import (
    Measurement,
    Runs,
    append_line,
    is_failed,
    latency_table,
    machine,
    printed,
    remarks,
    throughput_table,
)
from bench.running import Program
from bench.throughput import Throughput
from bench.timeline import Timeline, draw, timeline
from deploy.local.kafka import EmbeddedKafka
from job.errors import StreamjoinError

_REPOSITORY = Path(__file__).parents[1]
DATA = _REPOSITORY / "data" / "bench"
KAFKA = DATA / "kafka"
_RESULTS = _REPOSITORY / "bench" / "results" / "results.jsonl"
_PICTURE = _RESULTS.with_name("latency.svg")
# A heap that never grows: garbage collection of the broker would be measured as part of the
# program.
BROKER_JVM_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseSerialGC")

Run = TypeVar("Run", Throughput, Latency)


class Bench:
    """Options of one `make bench`."""

    def __init__(self, arguments: argparse.Namespace, kafka: EmbeddedKafka) -> None:
        self._arguments = arguments
        self._kafka = kafka
        self._workload = WORKLOADS[arguments.workload]
        # A program that is named twice is measured once.
        self._programs = [PROGRAMS[name] for name in dict.fromkeys(arguments.programs)]
        self._console = Console()
        self._timelines: dict[str, Timeline] = {}
        """Of the last run of each program."""

    def run(self) -> bool:
        """Measure and report; whether all results were right."""
        self._prepare()
        records = self._arguments.records
        waiting = waiting_backlog(self._workload, records, self._kafka, self._console)
        throughputs: Runs[Throughput] = {program.name: [] for program in self._programs}
        latencies: Runs[Latency] = {program.name: [] for program in self._programs}
        for number, program in in_turn(self._programs, self._arguments.runs):
            throughputs[program.name].append(
                self._measure(number, program, partial(self._throughput, program, waiting))
            )
            if self._arguments.latency_seconds:
                latencies[program.name].append(
                    self._measure(number, program, partial(self._latency, program))
                )
        self._report(throughputs, latencies)
        return not any(is_failed(run) for runs in both(throughputs, latencies) for run in runs)

    def _prepare(self) -> None:
        with self._console.status("Jars and classes of the programs…"):
            for program in self._programs:
                program.prepare()

    def _throughput(self, program: Program, waiting: Backlog, folder: Path) -> Throughput:
        return throughput.measure_throughput(program, self._workload, waiting, self._kafka, folder)

    def _latency(self, program: Program, folder: Path) -> Latency:
        watched = latency.watch_results(
            program,
            self._workload,
            self._kafka,
            folder,
            rate=self._arguments.rate,
            seconds=self._arguments.latency_seconds,
            warm_up_seconds=self._arguments.warm_up_seconds,
        )
        self._timelines[program.name] = timeline(watched)
        return latency.figures(watched)

    def _measure(self, number: int, program: Program, measure: Callable[[Path], Run]) -> Run:
        folder = run_folder()
        with self._console.status(f"{program.name}, run {number} of {self._arguments.runs}…"):
            run = measure(folder)
        append_line(_RESULTS, run, self._settings(program))
        if not is_failed(run):
            shutil.rmtree(folder)
        else:
            self._say(f"The program's log and state are kept in {folder}")
        return run

    def _settings(self, program: Program) -> dict[str, object]:
        options = vars(self._arguments)
        settings = {name: options[name] for name in options if name not in {"runs", "programs"}}
        return {"program": program.name, **settings}

    def _report(self, throughputs: Runs[Throughput], latencies: Runs[Latency]) -> None:
        name = f"Workload {self._workload.name}, runs: {self._arguments.runs}"
        self._say(machine())
        waiting = f"{self._arguments.records:,} impressions and the clicks on them"
        self._say(f"\n{name}, {waiting} waiting in Kafka")
        self._say(printed(throughput_table(throughputs)))
        if self._arguments.latency_seconds:
            self._say(f"{name}, {self._arguments.rate:,} records/s a side")
            self._say(printed(latency_table(latencies)))
            draw(self._timelines, _PICTURE)
            self._say(f"The latency of each second is in {_PICTURE.relative_to(_REPOSITORY)}")
        for line in self._remarks(throughputs, latencies):
            self._say(line)

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _remarks(self, throughputs: Runs[Throughput], latencies: Runs[Latency]) -> Iterator[str]:
        runs = [run for runs in both(throughputs, latencies) for run in runs]
        yield f"{sum(run.correct for run in runs)} of {len(runs)} result sets are as expected."
        yield from remarks("throughput", throughputs)
        yield from remarks("latency", latencies)


def run_folder(data: Path = DATA) -> Path:
    """A new folder for the state and the log of a program."""
    return data / "runs" / uuid.uuid4().hex[:8]


def in_turn(programs: Sequence[Program], runs: int) -> Iterator[tuple[int, Program]]:
    """The first run of each program, then the second of each: a change of the machine's speed
    affects all of them."""
    return ((number, program) for number in range(1, runs + 1) for program in programs)


def both(throughputs: Runs[Throughput], latencies: Runs[Latency]) -> list[Sequence[Measurement]]:
    return [*throughputs.values(), *latencies.values()]


def waiting_backlog(
    workload: Workload, records: int, kafka: EmbeddedKafka, console: Console
) -> Backlog:
    folder = KAFKA / "backlogs"
    delete_stray_topics(kafka, folder)
    with console.status("Records into Kafka, once; they are kept for the next time…"):
        return backlog(workload, records, kafka, folder)


def main() -> int:
    arguments = _arguments()
    return exit_code(KAFKA, lambda kafka: Bench(arguments, kafka).run())


def exit_code(folder: Path, run: Callable[[EmbeddedKafka], bool]) -> int:
    """Measure a program on its own broker; returns whether all results were right."""
    try:
        with EmbeddedKafka(folder, jvm_options=BROKER_JVM_OPTIONS) as kafka:
            return 0 if run(kafka) else 1
    except StreamjoinError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description="Measure the join on this machine.")
    parser.add_argument(
        "--records", type=int, default=1_000_000, help="on the left side (1,000,000)"
    )
    parser.add_argument("--runs", type=int, default=3, help="of each measurement (3)")
    parser.add_argument("--workload", choices=WORKLOADS, default="inner")
    parser.add_argument(
        "--program",
        action="append",
        dest="programs",
        choices=PROGRAMS,
        help="may be repeated: the programs run in turn (streamjoin)",
    )
    parser.add_argument("--rate", type=int, default=1_000, help="records/s a side (1,000)")
    parser.add_argument(
        "--latency-seconds",
        type=float,
        default=60,
        help="measured at that rate; 0: none (60)",
    )
    parser.add_argument(
        "--warm-up-seconds",
        type=float,
        default=latency.WARM_UP_SECONDS,
        help=f"from the first result until latency is measured ({latency.WARM_UP_SECONDS:.0f})",
    )
    arguments = parser.parse_args()
    arguments.programs = arguments.programs or ["streamjoin"]
    for name in arguments.programs:
        if WORKLOADS[arguments.workload].is_table and not PROGRAMS[name].joins_tables:
            parser.error(
                f"{name} does not run the workload {arguments.workload}: it joins no table"
            )
    return arguments


if __name__ == "__main__":
    sys.exit(main())
