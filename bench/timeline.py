"""Draws the latency of each second over some minutes, so that the ends of intervals are visible.

python -m bench.timeline                                  the real-time engine and Kafka Streams
python -m bench.timeline --seconds 60 --warm-up-seconds 20 --program streamjoin     a short run

The programs run one after the other. The picture is bench/results/timeline.svg.
"""

import argparse
import json
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter

from bench.__main__ import KAFKA, exit_code, run_folder
from bench.figures import percentile
from bench.latency import Latency, Sample, figures, samples, watch_results
from bench.load import WORKLOADS
from bench.programs import PROGRAMS
from bench.report import latency_table, machine, printed
from deploy.local.kafka import EmbeddedKafka

_RESULTS = Path(__file__).parent / "results"
_PROGRAMS = ("streamjoin-real-time-exactly-once", "kafka-streams")
_INCHES = (11, 3)


class Second(NamedTuple):
    """The latencies of the results that were due in one second, in milliseconds."""

    at: int
    """Seconds since the beginning of the measurement."""
    p50_ms: float
    max_ms: float


def by_second(measured: Iterable[Sample], since: float) -> list[Second]:
    """`since`: beginning of the measurement, in seconds since 1970."""
    latencies: dict[int, list[float]] = defaultdict(list)
    for sample in measured:
        latencies[int(sample.due_ms / 1_000 - since)].append(sample.latency_ms)
    return [
        Second(at, percentile(sorted(latencies[at]), 50), max(latencies[at]))
        for at in sorted(latencies)
    ]


def draw(timelines: Mapping[str, Sequence[Second]], picture: Path) -> None:
    # Text stays text, and the same figures give the same file: it can be kept in git.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "timeline", "font.size": 9}):
        figure = Figure(figsize=(_INCHES[0], _INCHES[1] * len(timelines)), layout="constrained")
        panels = figure.subplots(len(timelines), 1, sharex=True, sharey=True, squeeze=False)
        for [axes], (name, seconds) in zip(panels, timelines.items(), strict=True):
            at = [second.at for second in seconds]
            axes.plot(at, [second.max_ms for second in seconds], linewidth=0.8, label="maximum")
            axes.plot(at, [second.p50_ms for second in seconds], linewidth=0.8, label="p50")
            axes.set_title(name)
            axes.set_ylabel("latency, ms")
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
            axes.grid(visible=True, alpha=0.3)
            axes.legend(fontsize="small", loc="upper right")
        panels[-1][0].set_xlabel("seconds")
        figure.savefig(picture, format="svg", metadata={"Date": None})


def run(kafka: EmbeddedKafka, arguments: argparse.Namespace) -> bool:
    timelines: dict[str, list[Second]] = {}
    latencies: dict[str, list[Latency]] = {}
    for name in arguments.programs or _PROGRAMS:
        program, folder = PROGRAMS[name], run_folder()
        program.prepare()
        watched = watch_results(
            *(program, WORKLOADS["inner"], kafka, folder),
            rate=arguments.rate,
            seconds=arguments.seconds,
            warm_up_seconds=arguments.warm_up_seconds,
        )
        timelines[name] = by_second(samples(watched), watched.since)
        latencies[name] = [figures(watched)]
        if latencies[name][0].correct:
            shutil.rmtree(folder)
    _RESULTS.mkdir(exist_ok=True)
    (_RESULTS / "timeline.json").write_text(json.dumps(timelines))
    picture = _RESULTS / "timeline.svg"
    draw(timelines, picture)
    table = printed(latency_table(latencies))
    sys.stdout.write(f"{machine()}\n{table}\nThe picture is {picture}\n")
    return all(latency.correct for [latency] in latencies.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.timeline", description=__doc__)
    parser.add_argument("--rate", type=int, default=1_000, help="records/s a side (1,000)")
    parser.add_argument("--seconds", type=float, default=300, help="that are drawn (300)")
    parser.add_argument(
        "--warm-up-seconds", type=float, default=180, help="from the first result (180)"
    )
    parser.add_argument(
        "--program",
        action="append",
        dest="programs",
        choices=PROGRAMS,
        help=f"may be repeated ({', '.join(_PROGRAMS)})",
    )
    return exit_code(KAFKA, partial(run, arguments=parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
