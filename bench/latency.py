"""Measures latency at a steady rate of records, until a consumer has the result.

Each impression is followed, half a second later, by its click. The latency of a result is the time
from when its click was due until a read_committed consumer received it. Due, not sent: a delay of
this program or of the broker counts as waiting time.

In an outer join some impressions have no click. The latency of their results is the time from when
both sides had events at whose watermark the impression expires.
"""

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, Producer

from bench.figures import percentile
from bench.load import (
    FIRST_EVENT_MS,
    Click,
    Impression,
    Row,
    RowSet,
    Workload,
    click,
    click_alone,
    closing_events,
    closing_time,
    impression,
    row,
    row_of,
    row_set,
)
from bench.output import new_output
from bench.processes import Watch
from bench.running import Program, Running, Task, running
from bench.topics import temporary_topics
from deploy.local.kafka import EmbeddedKafka
from job.errors import StreamjoinError
from job.kafka.clients import ANY_PARTITION, produce

_CLICK_DELAY_SECONDS = 0.5
# Of a table. They are written before the first click, then again at the rate, without a change: the
# results do not depend on when a record of the table is read.
_TABLE_KEYS = 100_000
_COST = 0.5
# Of so many impressions in a row, the first ones have no click if the workload has such ones.
_CYCLE = 10
_CLOSED_TIMES = 4
_CLOSING_SECONDS = 1.0
_TICK_SECONDS = 0.001
_POLL_SECONDS = 0.05
_FIRST_OUTPUT_SECONDS = 120.0
# Time for the last results to arrive after the last click was produced.
_REST_SECONDS = 60.0
# Once all expected rows have arrived, wait this long for unexpected rows.
_SETTLED_SECONDS = 2.0
# The first batches read the records that arrived during the start, and compile.
WARM_UP_SECONDS = 20.0


@dataclass(frozen=True)
class Latency:
    correct: bool
    outputs: int
    expected_outputs: int
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    unmatched_p50_ms: float | None
    """Of the results of unmatched rows. None: the join has none."""
    unmatched_p99_ms: float | None
    unmatched_max_ms: float | None
    job_cores: float
    """CPU seconds per second of the process tree during the measurement."""
    peak_memory_bytes: int
    foreign_cores: float


class Stream(threading.Thread):
    """Produces impressions and clicks, each at `rate` a second, until it is stopped."""

    def __init__(self, task: Task, rate: int, *, click_topics: Sequence[str] = ()) -> None:
        """`click_topics`: further topics that receive each click, at the same time."""
        super().__init__(daemon=True)
        self._task = task
        self.workload = task.workload
        self._rate = rate
        self._click_topics = [task.right_topic, *click_topics]
        self._ended = threading.Event()
        self._start_ms = 0
        self.pairs = 0
        """Number of impressions whose click was due."""
        self._impressions = 0

    def end(self) -> None:
        self._ended.set()
        self.join()

    def pair(self, number: int) -> tuple[Impression, Click]:
        shown_at = self._start_ms + number * 1_000 // self._rate
        clicked_at = shown_at + round(_CLICK_DELAY_SECONDS * 1_000)
        if self.workload.is_table:
            ad_id = number % _TABLE_KEYS
            return impression(ad_id, FIRST_EVENT_MS, _COST), click(ad_id, clicked_at)
        return impression(number, shown_at, _COST), click(number, clicked_at)

    def has_click(self, number: int) -> bool:
        return number % _CYCLE >= _CYCLE * self.workload.unclicked_share

    def expected(self, program: Program) -> Iterator[Row]:
        """The results of all events."""
        has_unmatched = program.joins and self.workload.has_unmatched
        for number in range(self._impressions if has_unmatched else self.pairs):
            shown, clicked = self.pair(number)
            if number < self.pairs and self.has_click(number):
                yield row(shown, clicked) if program.joins else click_alone(clicked)
            elif has_unmatched:
                yield Row(shown.ad_id, shown.campaign, None, shown.shown_at, None)

    def run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._task.bootstrap_servers,
                "acks": "all",
                "linger.ms": 1,
                "log_level": 3,
            }
        )
        for number in range(_TABLE_KEYS if self.workload.is_table else 0):
            _send(producer, self._task.left_topic, self.pair(number)[0])
        producer.flush(_REST_SECONDS)
        self._start_ms = round(time.time() * 1_000)
        while not self._ended.wait(_TICK_SECONDS):
            elapsed = time.time() - self._start_ms / 1_000
            for number in range(self._impressions, impressions_due := self._due(elapsed)):
                _send(producer, self._task.left_topic, self.pair(number)[0])
            for number in range(self.pairs, pairs_due := self._due(elapsed - _CLICK_DELAY_SECONDS)):
                for topic in self._click_topics if self.has_click(number) else ():
                    _send(producer, topic, self.pair(number)[1])
            self._impressions, self.pairs = impressions_due, pairs_due
            producer.poll(0)
        if self.workload.has_unmatched:
            self._close(producer)
        producer.flush(_REST_SECONDS)

    def _close(self, producer: Producer) -> None:
        """Let the last unmatched rows expire: Kafka Streams emits them once a second, and only when
        a record arrives."""
        workload = self.workload
        at = closing_time([self.pair(self._impressions)[0]], workload)
        for _ in range(_CLOSED_TIMES):
            for partition, shown, clicked in closing_events(at, workload):
                _send(producer, self._task.left_topic, shown, partition)
                _send(producer, self._task.right_topic, clicked, partition)
            producer.flush(_REST_SECONDS)
            time.sleep(_CLOSING_SECONDS)

    def _due(self, elapsed: float) -> int:
        """Number of events that are due `elapsed` seconds after the start."""
        return max(0, int(elapsed * self._rate) + 1) if elapsed >= 0 else 0


class Seen(NamedTuple):
    at_ms: float
    value: bytes


@dataclass(frozen=True)
class Watched:
    """All results of a program, and the time that is measured, in seconds since 1970."""

    results: list[tuple[float, Row]]
    """When the consumer received each result, in milliseconds since 1970."""
    expected: RowSet
    use: Watch
    since: float
    until: float
    waits_ms: int
    """Event time after which an unmatched row expires."""

    def measures(self, at_ms: int) -> bool:
        """Whether a time, in milliseconds since 1970, is in the measured time."""
        return self.since <= at_ms / 1_000 < self.until


def watch_results(
    program: Program,
    workload: Workload,
    kafka: EmbeddedKafka,
    folder: Path,
    *,
    rate: int,
    seconds: float,
    warm_up_seconds: float = WARM_UP_SECONDS,
) -> Watched:
    """Start a program and its stream of records, and receive its results."""
    with ExitStack() as opened:
        output = opened.enter_context(new_output(kafka, workload.partitions))
        left, right = f"{output.topic}-left", f"{output.topic}-right"
        opened.enter_context(temporary_topics(kafka, left, right, partitions=workload.partitions))
        task = Task(workload, kafka.bootstrap_servers, left, right, output.topic)
        stream = Stream(task, rate)
        run = opened.enter_context(running(program, task, kafka, folder))
        consumer = opened.enter_context(output.consumer())
        opened.callback(stream.end)
        stream.start()
        return watch_stream(Watcher(consumer, run), stream, program, seconds, warm_up_seconds)


class Watcher:
    """Records the time at which the consumer received each output record."""

    def __init__(self, consumer: Consumer, run: Running) -> None:
        self._consumer = consumer
        self.run = run
        self.seen: list[Seen] = []

    def watch(self, count: float, *, at_most_seconds: float) -> bool:
        """Until `count` records have arrived; False if the time is up before."""
        deadline = time.monotonic() + at_most_seconds
        while len(self.seen) < count:
            if time.monotonic() > deadline:
                return False
            message = self._consumer.poll(_POLL_SECONDS)
            if message is None:
                self.run.check()
            elif message.error() is None:
                self.seen.append(Seen(time.time() * 1_000, message.value() or b""))
        return True


def watch_stream(
    watcher: Watcher, stream: Stream, program: Program, seconds: float, warm_up_seconds: float
) -> Watched:
    """Receive the results of a started stream, and end the stream."""
    if not watcher.watch(1, at_most_seconds=_FIRST_OUTPUT_SECONDS):
        raise StreamjoinError(f"no result within {_FIRST_OUTPUT_SECONDS:.0f} s")
    watcher.watch(math.inf, at_most_seconds=warm_up_seconds)
    since = time.time()
    watcher.watch(math.inf, at_most_seconds=seconds)
    until = time.time()
    # What was due before may be read, and the watermark may pass it, while the stream goes on.
    watcher.watch(math.inf, at_most_seconds=_SETTLED_SECONDS)
    stream.end()
    expected = row_set(stream.expected(program))
    watcher.watch(expected.count, at_most_seconds=_REST_SECONDS)
    watcher.watch(math.inf, at_most_seconds=_SETTLED_SECONDS)
    results = [(record.at_ms, row_of(record.value)) for record in watcher.seen]
    waits_ms = stream.workload.waits_ms
    return Watched(results, expected, watcher.run.watch, since, until, waits_ms)


class Received(NamedTuple):
    """A result. Both times are milliseconds since 1970."""

    at_ms: float
    due_ms: int

    @property
    def latency_ms(self) -> float:
        return self.at_ms - self.due_ms


def matched(watched: Watched) -> Iterator[Received]:
    """The results of clicks that were due in the measured time."""
    for at_ms, result in watched.results:
        if result.clicked_at is not None and watched.measures(result.clicked_at):
            yield Received(at_ms, result.clicked_at)


def unmatched(watched: Watched) -> Iterator[Received]:
    """The results of impressions without a click that expired in the measured time."""
    for at_ms, result in watched.results:
        if result.clicked_at is None and result.shown_at is not None:
            received = Received(at_ms, result.shown_at + watched.waits_ms)
            if watched.measures(received.due_ms):
                yield received


def figures(watched: Watched) -> Latency:
    """Of the results that were due in the measured time."""
    rows = [result for _, result in watched.results]
    latencies = sorted(result.latency_ms for result in matched(watched))
    of_unmatched = sorted(result.latency_ms for result in unmatched(watched))
    spent = watched.use.spent(watched.since, watched.until)
    return Latency(
        correct=row_set(rows) == watched.expected,
        outputs=len(rows),
        expected_outputs=watched.expected.count,
        p50_ms=percentile(latencies, 50),
        p90_ms=percentile(latencies, 90),
        p99_ms=percentile(latencies, 99),
        max_ms=percentile(latencies, 100),
        unmatched_p50_ms=percentile(of_unmatched, 50) if of_unmatched else None,
        unmatched_p99_ms=percentile(of_unmatched, 99) if of_unmatched else None,
        unmatched_max_ms=percentile(of_unmatched, 100) if of_unmatched else None,
        job_cores=spent.tree_cores,
        peak_memory_bytes=watched.use.peak_memory_bytes,
        foreign_cores=spent.foreign_cores,
    )


def _send(
    producer: Producer, topic: str, event: Impression | Click, partition: int = ANY_PARTITION
) -> None:
    produce(producer, topic, event.value(), str(event.ad_id), partition)
