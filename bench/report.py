"""What was measured: a line of JSON for each run, and a table of medians for people."""

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

import psutil
from rich.box import MARKDOWN
from rich.table import Table

from bench.figures import Spread
from bench.latency import Latency
from bench.throughput import Throughput

# Above this, what else ran on the machine may have changed the figures.
DISTURBED_ABOVE_CORES = 0.1

Measurement = Throughput | Latency
Run = TypeVar("Run", Throughput, Latency)


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
    Figure("job, cores used", lambda run: run.job_cores, _hundredths),
    Figure("peak memory, MiB", lambda run: run.peak_memory_bytes, _mebibytes),
    Figure("foreign load, cores", lambda run: run.foreign_cores, _hundredths),
)


def throughput_table(runs: Sequence[Throughput]) -> Table:
    return _table(_THROUGHPUT, runs)


def latency_table(runs: Sequence[Latency]) -> Table:
    return _table(_LATENCY, runs)


def _table(figures: Sequence[Figure[Run]], runs: Sequence[Run]) -> Table:
    # Markdown, so that it can be pasted where it is to be quoted.
    table = Table(box=MARKDOWN)
    table.add_column("figure")
    for heading in ("median", "lowest", "highest"):
        table.add_column(heading, justify="right")
    for figure in figures:
        values = [value for run in runs if (value := figure.value(run)) is not None]
        table.add_row(figure.name, *_cells(values, figure.written))
    return table


def _cells(values: Sequence[float], written: Callable[[float], str]) -> Iterator[str]:
    if not values:
        return iter(("-", "-", "-"))
    spread = Spread.of(values)
    return map(written, (spread.median, spread.lowest, spread.highest))


def verdicts(name: str, runs: Sequence[Measurement]) -> Iterator[str]:
    """What a reader must know before quoting the figures."""
    for number, run in enumerate(runs, start=1):
        if not run.correct:
            yield (
                f"{name} run {number} is WRONG: {run.outputs:,} rows came out where "
                f"{run.expected_outputs:,} were expected, or their content differs"
            )
        if is_disturbed(run):
            yield (
                f"{name} run {number} was disturbed: other programs used "
                f"{run.foreign_cores:.2f} cores (limit {DISTURBED_ABOVE_CORES})"
            )


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
    """What was measured, as far as git knows; a plus says that files had been changed since."""
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
