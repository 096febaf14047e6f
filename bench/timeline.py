"""Draws the latency of each second of a measurement, of matched and of unmatched rows."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bench.figures import percentile
from bench.latency import Received, Watched, matched, unmatched

_INCHES = (11, 3)


@dataclass(frozen=True)
class Second:
    at: int
    """Seconds since the begin of the measurement."""
    p50_ms: float
    max_ms: float


@dataclass(frozen=True)
class Timeline:
    """`unmatched` is empty if the join emits no unmatched rows."""

    matched: Sequence[Second]
    unmatched: Sequence[Second]


def timeline(watched: Watched) -> Timeline:
    return Timeline(
        _seconds(watched, matched(watched)),
        _seconds(watched, unmatched(watched)),
    )


def _seconds(watched: Watched, results: Iterable[Received]) -> list[Second]:
    latencies = defaultdict(list)
    for result in results:
        latencies[int(result.due_ms / 1_000 - watched.since)].append(result.latency_ms)
    return [
        Second(at, percentile(sorted(of_second), 50), max(of_second))
        for at, of_second in sorted(latencies.items())
    ]


def draw(timelines: Mapping[str, Timeline], picture: Path) -> None:
    """One row for each program."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "timeline", "font.size": 9}):
        width, height = _INCHES
        figure = Figure(figsize=(width, height * len(timelines)), layout="constrained")
        rows = figure.subplots(len(timelines), 1, squeeze=False, sharex=True)
        for (program, of_program), [axes] in zip(timelines.items(), rows, strict=True):
            axes.set_title(program)
            _draw(axes, of_program.matched, "matched", "C0")
            _draw(axes, of_program.unmatched, "unmatched", "C1")
            axes.set_yscale("log")
            axes.set_ylabel("latency, ms")
            axes.legend()
        rows[-1][0].set_xlabel("seconds")
        figure.savefig(picture, format="svg", metadata={"Date": None})


def _draw(axes: Axes, seconds: Sequence[Second], kind: str, color: str) -> None:
    if not seconds:
        return
    at = [second.at for second in seconds]
    axes.plot(at, [second.p50_ms for second in seconds], color=color, label=f"{kind}, p50")
    highest = [second.max_ms for second in seconds]
    axes.plot(at, highest, color=color, linewidth=0.5, alpha=0.6, label=f"{kind}, highest")
