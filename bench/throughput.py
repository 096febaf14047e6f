"""Measures how long a backlog in Kafka takes to be joined, by the clock of the broker."""

import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.backlog import Backlog, close
from bench.load import Row, RowSet, Workload, row_of, row_set
from bench.output import Output, new_output
from bench.processes import Watch
from bench.running import Program, Running, Task, running
from deploy.local.kafka import EmbeddedKafka
from job.errors import StreamjoinError

_LOOK_SECONDS = 0.25
# Once all expected rows have arrived, wait this long for unexpected rows.
_SETTLED_SECONDS = 3.0
# A start takes 10 s, a batch some seconds. Without a new row for this long, no more will come.
_STALLED_SECONDS = 120.0
# Before the first result a table is read. Speed of a busy machine.
_TABLE_ROWS_PER_SECOND_AT_LEAST = 5_000
# After this long without new rows the backlog is closed once more: longer than the interval at
# which Kafka Streams emits unmatched rows.
_CLOSE_SECONDS = 1.5
# Results come batch by batch. A shorter time contains too few batches for a rate.
_STEADY_SECONDS = 2.0


@dataclass(frozen=True)
class Throughput:
    """Rows are input rows of both sides together. While results of a join with a table are written,
    the input rows are those of the stream: the table was read before."""

    correct: bool
    may_lose_rows: bool
    """Missing rows are a figure, not an error: a peer may drop late rows of an uneven backlog."""
    outputs: int
    expected_outputs: int
    cold_rows_per_second: float
    """From process launch to the last output."""
    steady_rows_per_second: float | None
    """Between 10 % and 90 % of the outputs; None if that took too short a time."""
    cold_rows_per_cpu_second: float
    steady_rows_per_cpu_second: float | None
    first_output_seconds: float
    peak_memory_bytes: int
    broker_cpu_seconds: float
    foreign_cores: float


def measure_throughput(
    program: Program,
    workload: Workload,
    backlog: Backlog,
    kafka: EmbeddedKafka,
    folder: Path,
    *,
    stalled_seconds: float = _STALLED_SECONDS,
) -> Throughput:
    with new_output(kafka, workload.partitions) as output:
        task = Task(
            workload,
            kafka.bootstrap_servers,
            backlog.left_topic,
            backlog.right_topic,
            output.topic,
        )
        expected = backlog.expected if program.joins else backlog.clicks
        if workload.is_table:
            stalled_seconds += backlog.records / _TABLE_ROWS_PER_SECOND_AT_LEAST
        with running(program, task, kafka, folder) as run:
            closed_at = 0.0
            for changed_at in _changes(output, expected.count, program, run, stalled_seconds):
                quiet_since = max(changed_at, closed_at)
                if workload.has_unmatched and time.monotonic() - quiet_since > _CLOSE_SECONDS:
                    close(backlog, workload, kafka)
                    closed_at = time.monotonic()
        return _figures(
            output,
            backlog,
            expected,
            run.watch,
            run.started_at,
            rows_with_results=backlog.clicks.count if workload.is_table else backlog.records,
            may_lose_rows=program.is_peer and workload.is_uneven,
        )


def _changes(
    output: Output, expected: int, program: Program, run: Running, stalled_seconds: float
) -> Iterator[float]:
    """Poll until all rows have arrived and no more come, or none have come for a long time.

    Each poll yields the time of the last new rows; nothing before the first.
    """
    settled_seconds = _SETTLED_SECONDS + program.commit_interval_seconds
    count, changed_at = 0, time.monotonic()
    while True:
        run.check()
        if (now_out := output.committed()) != count:
            count, changed_at = now_out, time.monotonic()
        limit = settled_seconds if count >= expected else stalled_seconds
        if time.monotonic() - changed_at > limit:
            return
        if count:
            yield changed_at
        time.sleep(_LOOK_SECONDS)


def _figures(
    output: Output,
    backlog: Backlog,
    expected: RowSet,
    watch: Watch,
    started_at: float,
    *,
    rows_with_results: int,
    may_lose_rows: bool,
) -> Throughput:
    appended = array("q")

    def rows() -> Iterator[Row]:
        for record in output.records():
            appended.append(record.appended_ms)
            yield row_of(record.value)

    results = row_set(rows())
    if not results.count:
        raise StreamjoinError("the output topic contains no results: see the log of the program")
    moments = sorted(appended)
    first, tenth, nine_tenths, last = (
        moments[int((len(moments) - 1) * share)] / 1_000 for share in (0, 0.1, 0.9, 1)
    )
    whole, steady = watch.spent(started_at, last), watch.spent(tenth, nine_tenths)
    is_steady = nine_tenths - tenth >= _STEADY_SECONDS
    steady_rows = 0.8 * rows_with_results
    return Throughput(
        correct=results == expected,
        may_lose_rows=may_lose_rows,
        outputs=results.count,
        expected_outputs=expected.count,
        cold_rows_per_second=backlog.records / (last - started_at),
        steady_rows_per_second=(steady_rows / (nine_tenths - tenth) if is_steady else None),
        cold_rows_per_cpu_second=backlog.records / whole.tree,
        steady_rows_per_cpu_second=steady_rows / steady.tree if is_steady else None,
        first_output_seconds=first - started_at,
        peak_memory_bytes=watch.peak_memory_bytes,
        broker_cpu_seconds=whole.broker,
        foreign_cores=whole.foreign_cores,
    )
