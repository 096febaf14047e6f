"""Draws the measurements as one picture: the last run of each shape, the last of each rate."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from bench.growth.report import MEMORY_CAP_BYTES

Line = Mapping[str, Any]

_INCHES = (11, 7)
_DOT = 12


def newest(lines: Iterable[Line]) -> tuple[list[Line], list[Line]]:
    """The last growth run of each program and shape, and the last latency run of each rate, lowest
    first."""
    growths: dict[tuple[str, str, int], Line] = {}
    latencies: dict[int, Line] = {}
    for line in lines:
        if line["kind"] == "growth":
            growths[line["program"], line["keys"], line["state_rows"]] = line
        else:
            latencies[line["rate"]] = line
    return [growths[shape] for shape in sorted(growths)], [
        latencies[rate] for rate in sorted(latencies)
    ]


def draw(results: Path, picture: Path) -> None:
    growths, latencies = newest(json.loads(line) for line in results.read_text().splitlines())
    # Text stays text, and the same figures give the same file: it can be kept in git.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "growth", "font.size": 9}):
        figure = Figure(figsize=_INCHES, layout="constrained")
        ((throughput, memory), (batch, latency)) = figure.subplots(2, 2)
        for number, growth in enumerate(growths):
            _draw_growth(growth, throughput, memory, batch, color=f"C{number}")
        memory.axhline(MEMORY_CAP_BYTES / 2**20, color="grey", linestyle=":", label="cap")
        _label(throughput, "rows/s, both sides", "rows in state, millions")
        _label(memory, "resident memory, MiB", "rows in state, millions")
        _label(batch, "batch (dots), eviction (crosses), ms", "rows in state, millions")
        rates = [line["rate"] for line in latencies]
        for percent in (50, 99):
            latency.plot(
                rates,
                [line[f"p{percent}_ms"] for line in latencies],
                marker="o",
                label=f"p{percent}",
            )
        latency.set_xscale("log")
        latency.set_xticks(rates, [f"{rate:,}" for rate in rates])
        latency.minorticks_off()
        _label(latency, "latency, ms", "records/s on each side")
        figure.savefig(picture, format="svg", metadata={"Date": None})


def _draw_growth(growth: Line, throughput: Axes, memory: Axes, batch: Axes, *, color: str) -> None:
    points = growth["points"]
    name = f"{growth['program']}, {growth['keys']}, {growth['state_rows']:,}"
    state = [point["state_rows"] / 1e6 for point in points]

    def dots(axes: Axes, values: list[float]) -> None:
        axes.scatter(state, values, s=_DOT, color=color, label=name)

    dots(throughput, [point["rows"] / point["seconds"] for point in points])
    dots(memory, [point["memory_bytes"] / 2**20 for point in points])
    dots(batch, [point["batch_ms"] for point in points])
    evictions = [point["evict_ms"] for point in points]
    batch.scatter(state, evictions, s=_DOT, marker="x", color=color)


def _label(axes: Axes, vertical: str, horizontal: str) -> None:
    axes.set_ylabel(vertical)
    axes.set_xlabel(horizontal)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.grid(visible=True, alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
