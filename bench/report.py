"""The report: a line of JSON for each run, and tables of medians for people."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

import psutil
from rich.box import MARKDOWN
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench.figures import Spread
from bench.growth.run import Growth
from bench.latency import Latency
from bench.throughput import Throughput

_NEVER_FOLDED = 1_000
# Above this, other processes on the machine may have changed the figures.
DISTURBED_ABOVE_CORES = 0.1

Measurement = Throughput | Latency | Growth
Run = TypeVar("Run", Throughput, Latency)
Runs = Mapping[str, list[Run]]
"""The runs of each program, by its name."""


@dataclass(frozen=True)
class Figure(Generic[Run]):
    name: str
    value: Callable[[Run], float | None]
    written: Callable[[float], str]


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _tenths(value: float) -> str:
    return f"{value:,.1f}"


def _hundredths(value: float) -> str:
    return f"{value:,.2f}"


def _mebibytes(value: float) -> str:
    return f"{value / 2**20:,.0f}"


_THROUGHPUT: Sequence[Figure[Throughput]] = (
    Figure("results", lambda run: run.outputs, _whole),
    Figure("rows/s, cold", lambda run: run.cold_rows_per_second, _whole),
    Figure("rows/s, steady", lambda run: run.steady_rows_per_second, _whole),
    Figure("rows per CPU-second, cold", lambda run: run.cold_rows_per_cpu_second, _whole),
    Figure("rows per CPU-second, steady", lambda run: run.steady_rows_per_cpu_second, _whole),
    Figure("launch to first output, s", lambda run: run.first_output_seconds, _tenths),
    Figure("peak memory, MiB", lambda run: run.peak_memory_bytes, _mebibytes),
    Figure("broker, CPU-seconds", lambda run: run.broker_cpu_seconds, _tenths),
    Figure("foreign load, cores", lambda run: run.foreign_cores, _hundredths),
)
_LATENCY: Sequence[Figure[Latency]] = (
    Figure("latency p50, ms", lambda run: run.p50_ms, _whole),
    Figure("latency p90, ms", lambda run: run.p90_ms, _whole),
    Figure("latency p99, ms", lambda run: run.p99_ms, _whole),
    Figure("latency max, ms", lambda run: run.max_ms, _whole),
    Figure("unmatched rows p50, ms", lambda run: run.unmatched_p50_ms, _whole),
    Figure("unmatched rows p99, ms", lambda run: run.unmatched_p99_ms, _whole),
    Figure("unmatched rows max, ms", lambda run: run.unmatched_max_ms, _whole),
    Figure("job, cores used", lambda run: run.job_cores, _hundredths),
    Figure("peak memory, MiB", lambda run: run.peak_memory_bytes, _mebibytes),
    Figure("foreign load, cores", lambda run: run.foreign_cores, _hundredths),
)


def throughput_table(runs: Runs[Throughput]) -> Table:
    expected = sorted(
        {run.expected_outputs for measurements in runs.values() for run in measurements}
    )
    numbers = " or ".join(map(_whole, expected))
    results, *others = _THROUGHPUT
    return _table((replace(results, name=f"results, expected {numbers}"), *others), runs)


def latency_table(runs: Runs[Latency]) -> Table:
    return _table(_LATENCY, runs)


def _table(figures: Sequence[Figure[Run]], runs: Runs[Run]) -> Table:
    # Markdown, so that it can be pasted into documents.
    table = Table(box=MARKDOWN)
    table.add_column(Text("median [lowest-highest]"))
    for program in runs:
        table.add_column(Text(program), justify="right")
    for figure in figures:
        table.add_row(figure.name, *(_cell(figure, measurements) for measurements in runs.values()))
    return table


def _cell(figure: Figure[Run], runs: Sequence[Run]) -> Text:
    values = [value for run in runs if (value := figure.value(run)) is not None]
    if not values:
        return Text("-")
    spread = Spread.of(values)
    lowest, highest = figure.written(spread.lowest), figure.written(spread.highest)
    return Text(f"{figure.written(spread.median)} [{lowest}-{highest}]")


def printed(table: Table) -> str:
    """Each row on one line, even on a narrow terminal: the table is pasted as Markdown."""
    console = Console(width=_NEVER_FOLDED)
    with console.capture() as capture:
        console.print(table)
    return capture.get()


def remarks(name: str, runs: Runs[Run]) -> Iterator[str]:
    """Reservations that a reader must know before quoting the figures."""
    for program, measurements in runs.items():
        for number, run in enumerate(measurements, start=1):
            yield from remarks_on_run(f"{program}, {name} run {number}", run)


def remarks_on_run(name: str, run: Measurement) -> Iterator[str]:
    if lost := lost_rows(run):
        yield f"{name} lost {lost:,} of {run.expected_outputs:,} rows"
    elif not run.correct:
        yield (
            f"{name} is WRONG: {run.outputs:,} rows were written where "
            f"{run.expected_outputs:,} were expected, or their content differs"
        )
    if is_disturbed(run):
        yield (
            f"{name} was disturbed: other programs used "
            f"{run.foreign_cores:.2f} cores (limit {DISTURBED_ABOVE_CORES})"
        )


def is_failed(run: Measurement) -> bool:
    """Whether the result set is wrong, other than for a peer in the uneven workload."""
    return not run.correct and not lost_rows(run)


def lost_rows(run: Measurement) -> int:
    """Missing rows that are a figure of the run, not an error; see `Throughput.may_lose_rows`."""
    if not isinstance(run, Throughput) or not run.may_lose_rows:
        return 0
    return max(0, run.expected_outputs - run.outputs)


def is_disturbed(run: Measurement) -> bool:
    return run.foreign_cores > DISTURBED_ABOVE_CORES


def append_line(file: Path, run: Measurement, settings: Mapping[str, object]) -> None:
    line = {
        "kind": type(run).__name__.lower(),
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": machine(),
        **settings,
        "disturbed": is_disturbed(run),
        **asdict(run),
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as lines:
        lines.write(json.dumps(line) + "\n")


def machine() -> str:
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _commit() -> str | None:
    """The measured version, from git; a plus marks changed files."""
    git = shutil.which("git")
    if git is None:
        return None
    answer = subprocess.run(
        [git, "describe", "--always", "--abbrev=12", "--dirty=+"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or None
