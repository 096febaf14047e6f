"""One job from empty to full state, measured at that size, killed there, and started again."""

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer

from bench.backlog import Addressed, produce
from bench.growth.batches import Batches, Point, Steady, points, steady
from bench.growth.load import Shape, events, table_events
from bench.load import Impression, RowSet, row_of, row_set
from bench.output import new_output
from bench.running import Program, Running, Task, running
from bench.streamjoin import checkpoint_of, socket_of
from bench.topics import temporary_topics
from deploy.local.kafka import EmbeddedKafka
from job.errors import StreamjoinError

_LOOK_SECONDS = 2.0
_POLL_SECONDS = 0.05
# Speed of a busy machine; librdkafka alone writes 400,000 records a second.
_RECORDS_PER_SECOND_AT_LEAST = 5_000
# A start takes 10 s, a batch some seconds, reading a large state again perhaps minutes.
_STALLED_SECONDS = 600.0
# Records that remain for the job that is started again. The job reads some of them before it is
# killed: a quick one four batches of a table's stream between two looks.
_BATCHES_AFTER_RESTART = 10


@dataclass(frozen=True)
class Phases:
    """Sizes of one run, in batches."""

    warm_up: int
    """At least this many before the steady ones, however small the state."""
    steady: int


@dataclass(frozen=True)
class Growth:
    correct: bool
    outputs: int
    expected_outputs: int
    loading: Steady | None
    """The batches that read the table, but the first. None: there are none."""
    steady: Steady
    peak_memory_bytes: int
    checkpoint_bytes: int
    """Time at which the job was killed, and the number of files below."""
    checkpoint_files: int
    restart_seconds: float
    """From the launch after SIGKILL to the first record that a read_committed consumer receives."""
    foreign_cores: float
    points: list[Point]


def measure_growth(
    program: Program, shape: Shape, phases: Phases, kafka: EmbeddedKafka, folder: Path
) -> Growth:
    steady_after = shape.rows_before_steady(phases.warm_up)
    killed_after = steady_after + phases.steady * shape.batch_rows
    partitions = shape.workload.partitions
    with ExitStack() as opened:
        output = opened.enter_context(new_output(kafka, partitions))
        left, right = f"{output.topic}-left", f"{output.topic}-right"
        opened.enter_context(temporary_topics(kafka, left, right, partitions=partitions))
        task = Task(shape.workload, kafka.bootstrap_servers, left, right, output.topic)
        rows = killed_after + _BATCHES_AFTER_RESTART * shape.batch_rows
        expected = _produce(shape, rows, task, kafka)
        batches = Batches(socket_of(folder))
        with running(program, task, kafka, folder) as run:
            _follow(batches, run, until=lambda: batches.input_rows >= killed_after)
            killed_at = time.time()
            run.kill()
        before_kill = list(points(batches.ended, run.watch.samples))
        checkpoint_files, checkpoint_bytes = size_of(checkpoint_of(folder))
        with (
            output.consumer(at_end=True) as consumer,
            running(program, task, kafka, folder) as again,
        ):
            first_output_at = _first_since(again.started_at, consumer, again)
            _follow(batches, again, until=lambda: batches.have_read(*shape.records(rows)))
        results = row_set(row_of(record.value) for record in output.records())
    return Growth(
        correct=results == expected,
        outputs=results.count,
        expected_outputs=expected.count,
        loading=_loading(shape, before_kill),
        steady=steady(before_kill, rows_before=steady_after),
        peak_memory_bytes=max(job.watch.peak_memory_bytes for job in (run, again)),
        checkpoint_bytes=checkpoint_bytes,
        checkpoint_files=checkpoint_files,
        restart_seconds=first_output_at - again.started_at,
        foreign_cores=run.watch.spent(run.started_at, killed_at).foreign_cores,
        points=before_kill,
    )


def _loading(shape: Shape, points: Sequence[Point]) -> Steady | None:
    loading = [point for point in points if point.rows_before < shape.state_rows]
    return steady(loading, rows_before=0) if shape.is_table and loading else None


def _produce(shape: Shape, rows: int, task: Task, kafka: EmbeddedKafka) -> RowSet:
    """The expected results of `rows` of both sides, once they are in Kafka."""
    left, right = shape.records(rows)
    arrays = table_events(shape, right) if shape.is_table else events(shape, left)

    def addressed() -> Iterator[Addressed]:
        for event in arrays.arriving():
            is_left = isinstance(event, Impression)
            yield Addressed(task.left_topic if is_left else task.right_topic, event)

    produce(kafka, addressed(), seconds=60 + rows / _RECORDS_PER_SECOND_AT_LEAST)
    return row_set(arrays.joined())


def _follow(batches: Batches, run: Running, *, until: Callable[[], bool]) -> None:
    read, changed_at = batches.input_rows, time.monotonic()
    while not until():
        run.check()
        batches.look()
        if batches.input_rows != read:
            read, changed_at = batches.input_rows, time.monotonic()
        if time.monotonic() - changed_at > _STALLED_SECONDS:
            raise StreamjoinError(f"no batch has ended for {_STALLED_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


def _first_since(moment: float, consumer: Consumer, run: Running) -> float:
    """Time at which the consumer received a record that was written after `moment`.

    When an open transaction ends, older records become visible as well: results of the interrupted
    batch.
    """
    deadline = time.monotonic() + _STALLED_SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(_POLL_SECONDS)
        if message is None:
            run.check()
        elif message.error() is None and message.timestamp()[1] >= moment * 1_000:
            return time.time()
    raise StreamjoinError(f"no result within {_STALLED_SECONDS:.0f} s of the restart")


def size_of(folder: Path) -> tuple[int, int]:
    """Files in the folder, and their bytes."""
    sizes = [
        (Path(inside) / name).stat().st_size
        for inside, _, names in os.walk(folder)
        for name in names
    ]
    return len(sizes), sum(sizes)
