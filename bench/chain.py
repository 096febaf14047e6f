"""Latency of a chain of two joins, next to that of one join.

    python -m bench.chain                          both engines, about 14 minutes
    python -m bench.chain --engine micro_batch     one engine

Each join is a separate job that delivers exactly once. The first one joins impressions and clicks,
the second one joins the results of the first and a third topic, which receives each click as well.
The latency begins when both copies of a click are due, half a second after its impression, and ends
when a read_committed consumer received the result. The logs of the jobs are kept.
"""

import argparse
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.__main__ import KAFKA, exit_code, run_folder
from bench.latency import Latency, Stream, Watcher, figures, watch_results, watch_stream
from bench.load import WORKLOADS
from bench.output import new_output
from bench.programs import PROGRAMS
from bench.report import latency_table, machine, printed, remarks
from bench.running import Program, Task, running
from bench.topics import temporary_topics
from deploy.local.kafka import EmbeddedKafka
from job.spec.engine import Engine

_WORKLOAD = replace(WORKLOADS["inner"], partitions=2)
# While the first join catches up, it writes the results of a batch by state partition: out of order
# by as much event time as the batch has, some 40 s after the start.
_SECOND_JOIN = replace(_WORKLOAD, watermark_delay_ms=120_000)
_PROGRAMS = {
    Engine.MICRO_BATCH: PROGRAMS["streamjoin"],
    Engine.REAL_TIME: PROGRAMS["streamjoin-real-time-exactly-once"],
}


def one_join(
    program: Program, kafka: EmbeddedKafka, folder: Path, options: argparse.Namespace
) -> Latency:
    rate, seconds, warm_up = options.rate, options.seconds, options.warm_up_seconds
    watched = watch_results(
        program, _WORKLOAD, kafka, folder, rate=rate, seconds=seconds, warm_up_seconds=warm_up
    )
    return figures(watched)


def two_joins(
    program: Program, kafka: EmbeddedKafka, folder: Path, options: argparse.Namespace
) -> Latency:
    """CPU time and memory are the sums of both jobs."""
    with ExitStack() as opened:
        output = opened.enter_context(new_output(kafka, _WORKLOAD.partitions))
        sides = ("left", "right", "joined", "third")
        left, right, joined, third = topics = [f"{output.topic}-{side}" for side in sides]
        opened.enter_context(temporary_topics(kafka, *topics, partitions=_WORKLOAD.partitions))
        servers = kafka.bootstrap_servers
        first = Task(_WORKLOAD, servers, left, right, joined, "bench_first")
        second = Task(_SECOND_JOIN, servers, joined, third, output.topic, "bench_second")
        stream = Stream(first, options.rate, click_topics=[third])
        jobs = [
            opened.enter_context(running(program, task, kafka, folder / task.join_name))
            for task in (first, second)
        ]
        consumer = opened.enter_context(output.consumer())
        opened.callback(stream.end)
        stream.start()
        watcher = Watcher(consumer, jobs[1])
        watched = watch_stream(watcher, stream, program, options.seconds, options.warm_up_seconds)
    measured = figures(watched)
    cores = jobs[0].watch.spent(watched.since, watched.until).tree_cores
    return replace(
        measured,
        job_cores=measured.job_cores + cores,
        foreign_cores=measured.foreign_cores - cores,
        peak_memory_bytes=measured.peak_memory_bytes + jobs[0].watch.peak_memory_bytes,
    )


def measure(options: argparse.Namespace, kafka: EmbeddedKafka) -> bool:
    runs: dict[str, list[Latency]] = {}
    for engine in options.engines or _PROGRAMS:
        for name, run in {"one join": one_join, "two joins": two_joins}.items():
            folder = run_folder()
            sys.stdout.write(f"{engine}, {name}, logs: {folder}\n")
            sys.stdout.flush()
            runs[f"{engine}, {name}"] = [run(_PROGRAMS[engine], kafka, folder, options)]
    sys.stdout.write(f"{machine()}\n{options.rate:,} records/s a side\n")
    sys.stdout.write(printed(latency_table(runs)))
    for remark in remarks("latency", runs):
        sys.stdout.write(f"{remark}\n")
    return all(run.correct for (run,) in runs.values())


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.chain", description="Latency of two joins.")
    parser.add_argument("--rate", type=int, default=200, help="records/s a side (200)")
    parser.add_argument("--seconds", type=float, default=120, help="measured (120)")
    parser.add_argument(
        "--warm-up-seconds", type=float, default=60, help="from the first result (60)"
    )
    parser.add_argument(
        "--engine", dest="engines", action="append", type=Engine, choices=_PROGRAMS,
        help="may be repeated (both)",
    )  # fmt: skip
    return exit_code(KAFKA, partial(measure, parser.parse_args()))


if __name__ == "__main__":
    sys.exit(main())
