"""`make bench-growth`: whether the join stays as fast, and as small, as its state grows.

A quick look, 6 minutes:

python -m bench.growth --state-rows 1000000 --warm-up-batches 5 --steady-batches 5 --rate 1000

A table:

python -m bench.growth --keys table --base-rows 100000 --latency-seconds 0

With `--program streamjoin-processor` the operator of the join is `streamjoin`.
"""

import argparse
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from rich.console import Console

from bench import latency
from bench.__main__ import exit_code, run_folder
from bench.growth import run
from bench.growth.load import ALL_KEYS, BATCH_ROWS, KEYS, SMALLEST_STATE_ROWS, Keys, Shape
from bench.growth.plot import draw
from bench.growth.report import growth_table, limits, loading_table, named
from bench.growth.run import Growth, Phases
from bench.latency import Latency
from bench.load import WORKLOADS
from bench.programs import PROGRAMS
from bench.report import Measurement, append_line, latency_table, machine, printed, remarks_on_run
from deploy.local.kafka import EmbeddedKafka

_MICRO_BATCH = ("streamjoin", "streamjoin-processor")
"""The programs that can run: both operators in micro-batches."""
_REPOSITORY = Path(__file__).parents[2]
_DATA = _REPOSITORY / "data" / "bench-growth"
_RESULTS = _REPOSITORY / "bench" / "results" / "growth.jsonl"
_PICTURE = _RESULTS.with_suffix(".svg")


class GrowthBench:
    """Options of one `make bench-growth`."""

    def __init__(self, arguments: argparse.Namespace, kafka: EmbeddedKafka) -> None:
        self._arguments = arguments
        self._program = PROGRAMS[arguments.program]
        self._kafka = kafka
        self._console = Console()

    def run(self) -> bool:
        """Measure and report; whether all results were right."""
        growths = {shape: self._growth(shape) for shape in shapes(self._arguments)}
        latencies = {f"{rate:,}/s a side": [self._latency(rate)] for rate in self._rates()}
        self._say(machine())
        if growths:
            self._say(printed(growth_table(growths)))
        for shape, growth in growths.items():
            if shape.is_table:
                self._say(f"{named(shape)}, the table is read:")
                self._say(printed(loading_table(shape, growth)))
        if latencies:
            self._say(printed(latency_table(latencies)))
        for line in limits(growths):
            self._say(line)
        runs: dict[str, Measurement] = {named(shape): result for shape, result in growths.items()}
        runs |= {rate: result for rate, [result] in latencies.items()}
        for name, result in runs.items():
            for line in remarks_on_run(name, result):
                self._say(line)
        self._say(f"{sum(result.correct for result in runs.values())} of {len(runs)} as expected.")
        self._say(f"The picture is {_PICTURE.relative_to(_REPOSITORY)}")
        return all(result.correct for result in runs.values())

    def _rates(self) -> list[int]:
        return self._arguments.rates if self._arguments.latency_seconds else []

    def _growth(self, shape: Shape) -> Growth:
        options = self._arguments
        phases = Phases(warm_up=options.warm_up_batches, steady=options.steady_batches)
        with self._console.status(f"State of {named(shape)}…"):
            folder = run_folder(_DATA)
            result = run.measure_growth(self._program, shape, phases, self._kafka, folder)
        settings = {
            "program": self._program.name,
            "keys": shape.keys,
            "state_rows": shape.state_rows,
        }
        self._note(result, settings, folder)
        return result

    def _latency(self, rate: int) -> Latency:
        seconds = self._arguments.latency_seconds
        with self._console.status(f"Latency at {rate:,}/s a side…"):
            folder = run_folder(_DATA)
            watched = latency.watch_results(
                self._program,
                WORKLOADS["inner"],
                self._kafka,
                folder,
                rate=rate,
                seconds=seconds,
            )
        result = latency.figures(watched)
        self._note(result, {"rate": rate, "latency_seconds": seconds}, folder)
        return result

    def _note(self, result: Measurement, settings: Mapping[str, object], folder: Path) -> None:
        append_line(_RESULTS, result, settings)
        draw(_RESULTS, _PICTURE)  # after each run: an interrupted measurement has a picture as well
        if result.correct:
            shutil.rmtree(folder)
        else:
            self._say(f"The program's log and state are kept in {folder}")

    def _say(self, line: str) -> None:
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)


def shapes(arguments: argparse.Namespace) -> Iterator[Shape]:
    """The run that others are compared with comes before them."""
    bases: list[Keys] = ["table" if keys == "table" else "uniform" for keys in arguments.keys]
    yield from dict.fromkeys(
        [
            *(Shape(arguments.base_rows, keys) for keys in bases),
            *(Shape(arguments.state_rows, keys) for keys in arguments.keys),
        ]
    )


def main() -> int:
    arguments = _arguments()
    # Gigabytes of records, produced again by each run: those of an interrupted run are useless.
    shutil.rmtree(_DATA / "kafka", ignore_errors=True)
    return exit_code(_DATA / "kafka", lambda kafka: GrowthBench(arguments, kafka).run())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench.growth", description="Measure the join on this machine as its state grows."
    )
    parser.add_argument(
        "--program", choices=_MICRO_BATCH, default=_MICRO_BATCH[0], help="(streamjoin)"
    )
    parser.add_argument(
        "--state-rows",
        type=int,
        default=10_000_000,
        help="in state, both sides together (10,000,000)",
    )
    parser.add_argument(
        "--base-rows",
        type=int,
        default=300_000,
        help="that it is compared with (300,000)",
    )
    parser.add_argument(
        "--keys",
        action="append",
        choices=ALL_KEYS,
        help="of the large state, or a table; may be repeated (uniform, zipf)",
    )
    parser.add_argument(
        "--warm-up-batches", type=int, default=20, help="at least, of a small state (20)"
    )
    parser.add_argument("--steady-batches", type=int, default=20, help="measured at full size (20)")
    parser.add_argument(
        "--rate",
        action="append",
        dest="rates",
        type=int,
        help="records/s a side for the latency, may be repeated (200, 1,000, 5,000, 10,000)",
    )
    parser.add_argument(
        "--latency-seconds", type=float, default=60, help="at each rate; 0: none (60)"
    )
    arguments = parser.parse_args()
    arguments.keys = arguments.keys or list(KEYS)
    arguments.rates = arguments.rates or [200, 1_000, 5_000, 10_000]
    for shape in shapes(arguments):
        if not shape.is_table and shape.state_rows < SMALLEST_STATE_ROWS:
            parser.error(
                f"{shape.state_rows:,} rows in state: a batch of the backlog alone is "
                f"{BATCH_ROWS:,} rows, which are in state until the next one ends; at least "
                f"{SMALLEST_STATE_ROWS:,}"
            )
    return arguments


if __name__ == "__main__":
    sys.exit(main())
