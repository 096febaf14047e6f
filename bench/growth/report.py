"""The cost of growth: a table of the runs, and whether the limits are met."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from rich.box import MARKDOWN
from rich.table import Table

from bench.growth.batches import Steady
from bench.growth.load import Shape
from bench.growth.run import Growth

_MEBIBYTE = 2**20
# The heap (2,048 MiB) and RocksDB's memory (512 MiB) are settings; the rest are the JVM's classes,
# compiled code, stacks and buffers, and the Python process.
MEMORY_CAP_BYTES = 3_584 * _MEBIBYTE
_THROUGHPUT_SHARE, _ZIPF_SHARE = 0.8, 0.5
# A batch's time to evict varies by some tenths between two runs of the same size.
_EVICTION_FACTOR = 1.5

Runs = Mapping[Shape, Growth]

_FIGURES: Sequence[tuple[str, Callable[[Growth], str]]] = (
    ("rows in state", lambda run: f"{run.steady.state_rows:,}"),
    ("table read, rows/s", lambda run: _of_loading(run, lambda loading: loading.rows_per_second)),
    (
        "table read, rows per CPU-second",
        lambda run: _of_loading(run, lambda loading: loading.rows_per_cpu_second),
    ),
    ("rows/s, steady", lambda run: f"{run.steady.rows_per_second:,.0f}"),
    ("rows per CPU-second, steady", lambda run: f"{run.steady.rows_per_cpu_second:,.0f}"),
    ("batch, ms", lambda run: f"{run.steady.batch_ms:,.0f}"),
    ("commit of state, task-ms a batch", lambda run: f"{run.steady.commit_ms:,.0f}"),
    ("evicted rows a batch", lambda run: f"{run.steady.evicted_rows:,}"),
    ("eviction, task-ms a batch", lambda run: f"{run.steady.evict_ms:,.0f}"),
    ("eviction, task-µs a row", lambda run: f"{_evict_us(run):.2f}"),
    ("peak memory, MiB", lambda run: f"{run.peak_memory_bytes / _MEBIBYTE:,.0f}"),
    ("checkpoint, MiB", lambda run: f"{run.checkpoint_bytes / _MEBIBYTE:,.0f}"),
    ("checkpoint, files", lambda run: f"{run.checkpoint_files:,}"),
    ("SIGKILL, then launch to output, s", lambda run: f"{run.restart_seconds:.1f}"),
    ("foreign load, cores", lambda run: f"{run.foreign_cores:.2f}"),
)


def growth_table(runs: Runs) -> Table:
    # Markdown, so that it can be pasted into documents.
    table = Table(box=MARKDOWN)
    table.add_column("figure")
    for shape in runs:
        table.add_column(named(shape), justify="right")
    for figure, written in _FIGURES:
        table.add_row(figure, *(written(run) for run in runs.values()))
    return table


def loading_table(shape: Shape, run: Growth) -> Table:
    """How the table of the join is read: its keys in tenths, without the first batch."""
    table = Table(box=MARKDOWN)
    for column in ("keys read", "seconds", "rows/s", "rows per CPU-second", "memory, MiB"):
        table.add_column(column, justify="right")
    tenth, seconds = shape.state_rows / 10, 0.0
    loading = [point for point in run.points if point.rows_before < shape.state_rows]
    for _, group in groupby(loading, lambda point: int(point.rows_before / tenth)):
        points = list(group)
        rows, took = (sum(getattr(each, name) for each in points) for name in ("rows", "seconds"))
        seconds += took
        table.add_row(
            f"{points[-1].rows_before + points[-1].rows:,}",
            f"{seconds:.1f}",
            f"{rows / took:,.0f}",
            f"{rows / sum(point.cpu_seconds for point in points):,.0f}",
            f"{max(point.memory_bytes for point in points) / _MEBIBYTE:,.0f}",
        )
    return table


def named(shape: Shape) -> str:
    return f"{shape.keys}, {shape.state_rows:,}"


def limits(runs: Runs) -> Iterator[str]:
    """Each limit with the measured value, against the smallest run of its kind."""
    for shape, run in runs.items():
        memory = run.peak_memory_bytes / MEMORY_CAP_BYTES
        yield _line(shape, "peak memory is", memory, "of the cap", memory <= 1)
        base = _compared_with(shape, runs)
        if base is None:
            continue
        rate = run.steady.rows_per_second / runs[base].steady.rows_per_second
        least = _ZIPF_SHARE if shape.keys == "zipf" else _THROUGHPUT_SHARE
        yield _line(shape, "rows/s are", rate, f"of {named(base)}", rate >= least)
        if shape.keys == "uniform":
            evict = _evict_us(run) / _evict_us(runs[base])
            text = "time to evict a row is"
            yield _line(shape, text, evict, f"of {named(base)}", evict <= _EVICTION_FACTOR)


def _compared_with(shape: Shape, runs: Runs) -> Shape | None:
    if shape.keys == "zipf":
        twin = Shape(shape.state_rows, "uniform")
        return twin if twin in runs else None
    same_keys = (other for other in runs if other.keys == shape.keys)
    base = min(same_keys, key=lambda other: other.state_rows)
    return None if base == shape else base


def _line(shape: Shape, what: str, share: float, of: str, is_kept: bool) -> str:
    return f"{named(shape)}: {what} {share:.0%} {of}{'' if is_kept else ': LIMIT MISSED'}"


def _of_loading(run: Growth, figure: Callable[[Steady], float]) -> str:
    return "-" if run.loading is None else f"{figure(run.loading):,.0f}"


def _evict_us(run: Growth) -> float:
    return 1_000 * run.steady.evict_ms / max(1, run.steady.evicted_rows)
