"""Time from SIGKILL to the first new result, at a steady rate of records.

    python -m bench.recovery                          3 kills of each kind, 5 minutes
    python -m bench.recovery --program streamjoin     the micro-batch engine
    python -m bench.recovery --rate 1000 --kills 1 --steady-seconds 200
                                                      near the end of an interval of three minutes

Kills the JVM of the job, then its driver, which is started again at once, in turn. A new result is
that of a click which is due after the kill. At the end each expected result must be there once. The
log of the job is kept.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import time

from rich.box import MARKDOWN
from rich.table import Table

from bench.__main__ import KAFKA, exit_code, run_folder
from bench.figures import Spread
from bench.latency import Stream, Watcher
from bench.load import WORKLOADS, row, row_of, row_set
from bench.output import new_output
from bench.programs import PROGRAMS
from bench.report import machine, printed
from bench.running import Program, Running, Task, running
from bench.topics import temporary_topics
from deploy.local.kafka import EmbeddedKafka
from job.errors import StreamjoinError

_WORKLOAD = WORKLOADS["inner"]
_PROGRAMS = ("streamjoin-real-time-exactly-once", "streamjoin", "streamjoin-processor")
"""Programs that deliver exactly once and continue after a kill."""
_RESULT_SECONDS = 120.0
# Time for unexpected results to arrive after all expected ones.
_SETTLED_SECONDS = 2.0


@dataclass(frozen=True)
class Recovery:
    victim: str
    seconds: float


class Kills:
    """Kills of one program, whose results `watcher` receives."""

    def __init__(self, watcher: Watcher, steady_seconds: float) -> None:
        self._watcher = watcher
        self._steady_seconds = steady_seconds

    def of(self, victim: str, run: Running) -> float:
        """Kill a process after a steady time. Returns the time of the kill."""
        self._watcher.watch(float("inf"), at_most_seconds=self._steady_seconds)
        killed_at = time()
        if victim == "JVM":
            run.jvm().kill()
        else:
            run.kill_driver()
        return killed_at

    def recovery(self, victim: str, killed_at: float) -> Recovery:
        """Wait for the first result of a click that is due after the kill."""
        seen = self._watcher.seen
        while True:
            if not self._watcher.watch(len(seen) + 1, at_most_seconds=_RESULT_SECONDS):
                raise StreamjoinError(f"no new result within {_RESULT_SECONDS:.0f} s")
            clicked_at = row_of(seen[-1].value).clicked_at
            if clicked_at is not None and clicked_at >= killed_at * 1_000:
                return Recovery(victim, seen[-1].at_ms / 1_000 - killed_at)


def measure_recoveries(
    program: Program,
    kafka: EmbeddedKafka,
    folder: Path,
    *,
    rate: int,
    count: int,
    steady_seconds: float,
) -> Iterator[Recovery]:
    """`count` recoveries of each kind, `steady_seconds` before each. Raises StreamjoinError if a
    result is wrong."""
    with ExitStack() as opened:
        output = opened.enter_context(new_output(kafka, _WORKLOAD.partitions))
        left, right = f"{output.topic}-left", f"{output.topic}-right"
        opened.enter_context(temporary_topics(kafka, left, right, partitions=_WORKLOAD.partitions))
        task = Task(_WORKLOAD, kafka.bootstrap_servers, left, right, output.topic)
        consumer = opened.enter_context(output.consumer())
        stream = Stream(task, rate)
        opened.callback(stream.end)
        driver_killed_at = None
        for number in range(count + 1):
            with running(program, task, kafka, folder) as run:
                if driver_killed_at is None:
                    watcher = Watcher(consumer, run)
                    kills = Kills(watcher, steady_seconds)
                    stream.start()
                    kills.recovery("launch", time())
                else:
                    watcher.run = run
                    yield kills.recovery("driver", driver_killed_at)
                if number < count:
                    yield kills.recovery("JVM", kills.of("JVM", run))
                    driver_killed_at = kills.of("driver", run)
                else:
                    _check_results(stream, watcher)


def _check_results(stream: Stream, watcher: Watcher) -> None:
    stream.end()
    watcher.watch(stream.pairs, at_most_seconds=_RESULT_SECONDS)
    watcher.watch(float("inf"), at_most_seconds=_SETTLED_SECONDS)
    expected = row_set(row(*stream.pair(ad_id)) for ad_id in range(stream.pairs))
    if row_set(row_of(record.value) for record in watcher.seen) != expected:
        raise StreamjoinError(
            f"{len(watcher.seen):,} results differ from the {expected.count:,} expected ones"
        )


def report(recoveries: Sequence[Recovery]) -> str:
    """The machine, and a table of the recoveries by killed process."""
    columns = ("SIGKILL to", "kills", "first new result after, s", "shortest", "longest")
    table = Table(*columns, box=MARKDOWN)
    for victim in dict.fromkeys(recovery.victim for recovery in recoveries):
        seconds = [recovery.seconds for recovery in recoveries if recovery.victim == victim]
        spread = Spread.of(seconds)
        figures = (f"{figure:.1f}" for figure in (spread.median, spread.lowest, spread.highest))
        table.add_row(victim, str(len(seconds)), *figures)
    return f"{machine()}\n{printed(table)}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.recovery", description="Kill the job and wait.")
    parser.add_argument("--program", choices=_PROGRAMS, default=_PROGRAMS[0])
    parser.add_argument("--rate", type=int, default=200, help="records/s a side (200)")
    parser.add_argument("--kills", type=int, default=3, help="of each process (3)")
    parser.add_argument(
        "--steady-seconds",
        type=float,
        default=15.0,
        help="from a recovery to the next kill; after 15 s the query is in real time again (15)",
    )
    return exit_code(KAFKA, partial(_measure, parser.parse_args()))


def _measure(options: argparse.Namespace, kafka: EmbeddedKafka) -> bool:
    folder = run_folder()
    sys.stdout.write(f"log: {folder / 'log'}\n")
    recoveries = []
    for recovery in measure_recoveries(
        *(PROGRAMS[options.program], kafka, folder),
        rate=options.rate,
        count=options.kills,
        steady_seconds=options.steady_seconds,
    ):
        recoveries.append(recovery)
        sys.stdout.write(f"{recovery.victim}: {recovery.seconds:.1f} s\n")
        sys.stdout.flush()
    sys.stdout.write(report(recoveries))
    return True


if __name__ == "__main__":
    sys.exit(main())
