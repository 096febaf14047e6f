"""CPU time and memory of a job that receives no records.

    python -m bench.idle --minutes 60                 the real-time engine, exactly once
    python -m bench.idle --program streamjoin         the micro-batch engine

Joins some records first. The figures begin a minute after the last of their results, and are those
of the job's process tree, without the broker. The log of the job is kept.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import mean

from rich.box import MARKDOWN
from rich.table import Table

from bench.__main__ import KAFKA, exit_code, run_folder
from bench.figures import Spread
from bench.latency import Stream, Watcher
from bench.load import WORKLOADS
from bench.output import new_output
from bench.processes import memory_at
from bench.programs import PROGRAMS
from bench.report import machine, printed
from bench.running import Program, Running, Task, running
from bench.topics import temporary_topics
from deploy.local.kafka import EmbeddedKafka
from job.errors import StreamjoinError

_WORKLOAD = replace(WORKLOADS["inner"], partitions=2)
_DEFAULT = "streamjoin-real-time-exactly-once"
# Records/s a side, and for how long: the job has changed to real time and a state has rows.
_RATE, _LOADED_SECONDS = 200, 30.0
_RESULT_SECONDS = 120.0
_MINUTE_SECONDS = 60.0


@dataclass(frozen=True)
class Minute:
    cpu_seconds: float
    memory_bytes: int
    """Resident, at the end of the minute."""
    foreign_cores: float


def measure_idle(
    program: Program, kafka: EmbeddedKafka, folder: Path, *, minutes: int
) -> Iterator[Minute]:
    """Each minute of an idle job. Raises StreamjoinError if the job ends or results are missing."""
    with ExitStack() as opened:
        output = opened.enter_context(new_output(kafka, _WORKLOAD.partitions))
        left, right = f"{output.topic}-left", f"{output.topic}-right"
        opened.enter_context(temporary_topics(kafka, left, right, partitions=_WORKLOAD.partitions))
        task = Task(_WORKLOAD, kafka.bootstrap_servers, left, right, output.topic)
        run = opened.enter_context(running(program, task, kafka, folder))
        with output.consumer() as consumer:
            _join_some_records(Stream(task, _RATE), Watcher(consumer, run))
        _pass_minute(run)
        for _ in range(minutes):
            yield _pass_minute(run)


def _join_some_records(stream: Stream, watcher: Watcher) -> None:
    stream.start()
    try:
        if not watcher.watch(1, at_most_seconds=_RESULT_SECONDS):
            raise StreamjoinError(f"no result within {_RESULT_SECONDS:.0f} s")
        watcher.watch(float("inf"), at_most_seconds=_LOADED_SECONDS)
    finally:
        stream.end()
    if not watcher.watch(stream.pairs, at_most_seconds=_RESULT_SECONDS):
        raise StreamjoinError(f"{len(watcher.seen):,} results, expected {stream.pairs:,}")


def _pass_minute(run: Running) -> Minute:
    since = time.time()
    time.sleep(_MINUTE_SECONDS)
    until = time.time()
    run.check()
    spent = run.watch.spent(since, until)
    return Minute(spent.tree, memory_at(run.watch.samples, until), spent.foreign_cores)


def report(minutes: Sequence[Minute]) -> str:
    """The machine, and a table of the first and the last quarter of the minutes, and of all."""
    columns = (
        "minutes",
        "job, cores used",
        "most in a minute",
        "memory, MiB",
        "foreign load, cores",
    )
    table = Table(*columns, box=MARKDOWN)
    quarter = max(1, len(minutes) // 4)
    parts = {"first quarter": minutes[:quarter], "last quarter": minutes[-quarter:], "all": minutes}
    for name, part in parts.items():
        cores = [minute.cpu_seconds / _MINUTE_SECONDS for minute in part]
        memory = Spread.of([minute.memory_bytes / 2**20 for minute in part])
        table.add_row(
            *(name, f"{mean(cores):.3f}", f"{max(cores):.3f}"),
            f"{memory.median:,.0f} [{memory.lowest:,.0f}-{memory.highest:,.0f}]",
            f"{mean(minute.foreign_cores for minute in part):.2f}",
        )
    return f"{machine()}\n{printed(table)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.idle", description="Watch an idle job.")
    parser.add_argument("--program", choices=PROGRAMS, default=_DEFAULT)
    parser.add_argument("--minutes", type=int, default=60, help="that are measured (60)")
    return exit_code(KAFKA, partial(_measure, parser.parse_args()))


def _measure(options: argparse.Namespace, kafka: EmbeddedKafka) -> bool:
    folder = run_folder()
    sys.stdout.write(f"log: {folder / 'log'}\n")
    minutes = []
    for minute in measure_idle(PROGRAMS[options.program], kafka, folder, minutes=options.minutes):
        minutes.append(minute)
        sys.stdout.write(
            f"minute {len(minutes)}: {minute.cpu_seconds:.2f} CPU-seconds, "
            f"{minute.memory_bytes / 2**20:,.0f} MiB\n"
        )
        sys.stdout.flush()
    sys.stdout.write(report(minutes))
    return True


if __name__ == "__main__":
    sys.exit(main())
