"""Sets the watermark of the running query after each batch, and limits how far the next one reads.

The rules are in event_time/. Spark writes the watermark into the commit log of the batch and into
the offset log of the next one. After a crash the query has the same watermark, and a repeated batch
has the watermark of its first run.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext

import structlog
from py4j.protocol import Py4JJavaError
from pyspark.sql.streaming.query import StreamingQuery

from job.delivery.sink import START_SECONDS, RunningQuery
from job.event_time.fair_reading import Reading, records_max, waiting_partitions
from job.event_time.partitions import Partitions
from job.event_time.watermark import watermark_ms
from job.join_spec.durations import milliseconds
from job.join_spec.sides import SIDES, Side
from job.plan.tuning import MAX_OFFSETS_PER_TRIGGER
from job.query.runtime import QueryRun
from job.spark.batch_read import batch_read
from job.spark.before_first_batch import BeforeFirstBatch
from job.spark.kafka_reader import LimitedReading
from job.spark.watermark import raise_watermark

# Event times that a crash loses only delay the watermark after the restart.
WRITE_SECONDS = 5.0


_log = structlog.get_logger()


class EventTimes:
    """Event times of one run of the query."""

    _ends_valid_seconds = 0.0

    def __init__(self, run: QueryRun) -> None:
        self._run = run
        self._stats = run.stats
        self._checkpoint = run.checkpoint
        self._delay_ms: dict[Side, int] = {
            side: milliseconds(run.plan.side(side).watermark_delay) for side in SIDES
        }
        self._reading = Reading({side: frozenset() for side in SIDES}, _records_max(0))
        self._limited: LimitedReading | None = None
        self._first: BeforeFirstBatch | None = None
        self._running: Future[RunningQuery] = Future()
        self._planned_ends: dict[Side, Mapping[int, int]] = {}
        self._batches = 0
        run.stats.partitions = self._written = run.checkpoint.partitions
        self._closed = threading.Event()
        self._writing = threading.Lock()

    def keeps_watermark(self) -> bool:
        """Whether the watermark must not advance, not even for an idle side."""
        return False

    def starting(self) -> AbstractContextManager[None]:
        """Context in which the query is started."""
        return nullcontext()

    def _limit_first_batch(self) -> AbstractContextManager[None]:
        """As `starting`. Spark calls `_limit` even if it plans the first batch before `follow`."""
        self._limited = LimitedReading(
            *(self._run.spark, self._run.plan.topics, self._limit, self._record_failure),
            self._ends_valid_seconds,
        )
        self._first = BeforeFirstBatch(self._run.spark, self._limited.begin)
        return self._first.active()

    def _record_failure(self, error: Py4JJavaError) -> None:
        self._running.result(START_SECONDS).record_failure(error)

    @property
    def _query(self) -> StreamingQuery:
        return self._running.result(START_SECONDS).query

    def follow(self, running: RunningQuery) -> None:
        """Limit the reading of the started query, and write the event times periodically."""
        self._running.set_result(running)
        try:
            self._begin_limits(running)
        except Exception as error:
            # Without limits Spark reads all partitions at once; the results are the same.
            self._limited = None
            _log.exception("reading_not_limited", reason=str(error).partition("\n")[0])
        threading.Thread(target=self._write_periodically, name="event-times", daemon=True).start()

    def _begin_limits(self, running: RunningQuery) -> None:
        if self._first is not None:
            self._first.wait()
            return
        self._limited = LimitedReading(
            self._run.spark, self._run.plan.topics, self._limit, running.record_failure
        )
        self._limited.begin(running.query)

    def close(self) -> None:
        self._closed.set()
        self._write()

    def batch_ended(self, query: StreamingQuery, batch_id: int) -> None:
        """Set the watermark of the next batch. Called before Spark commits this batch."""
        ends, self._planned_ends = self._planned_ends, {}
        read = batch_read(query, self._run.spark, self._run.plan.topics, ends)
        before = self._stats.partitions
        after = before.after_batch(read)
        self._stats.partitions = after
        if ends:
            self._stats.planned(batch_id, ends)
        if (to_ms := self._watermark_ms(after)) is not None:
            raise_watermark(query, to_ms)
        self._batches += 1
        self._limit_next_batch(before, after)

    def _watermark_ms(self, partitions: Partitions) -> int | None:
        return watermark_ms(partitions, self._delay_ms)

    def _limit_next_batch(self, before: Partitions, after: Partitions) -> None:
        # In an even backlog no partition waits: partitions differ by less than one batch advances
        # each. The smallest advance counts, so that a sparse partition does not run ahead of a
        # dense one.
        slack = max(*self._delay_ms.values(), after.advance_ms(before))
        self._reading = Reading(waiting_partitions(after, slack), _records_max(self._batches))
        if self._limited is None:
            return
        # Without limits Spark reads by itself, because each call into Python delays the next batch.
        change = (
            self._limited.put if after.has_backlog and self._reading.is_limited else self._release
        )
        for side in SIDES:
            change(side)

    def _limit(
        self, side: Side, starts: Mapping[int, int], latest: Mapping[int, int]
    ) -> Mapping[int, int] | None:
        """The end offsets of the batch, called by Spark while it plans it. None: no limit."""
        ends = self._reading.ends(side, starts, latest)
        if ends is None:
            self._planned_ends.pop(side, None)
            if not self._stats.partitions.has_backlog:
                self._release(side)
        else:
            self._planned_ends[side] = latest
        return ends

    def _release(self, side: Side) -> None:
        """Let Spark read the side without a call into Python."""
        if self._limited is not None:
            self._limited.remove(side)

    def _write_periodically(self) -> None:
        while not self._closed.wait(WRITE_SECONDS):
            self._write()

    def _write(self) -> None:
        with self._writing:
            partitions = self._stats.partitions
            if partitions is self._written or self._run.resources.lease_is_lost:
                return
            try:
                self._checkpoint.partitions = partitions
                self._written = partitions
            except Exception as error:
                _log.warning("event_times_not_written", reason=str(error).partition("\n")[0])


def _records_max(batches: int) -> int | None:
    return records_max(batches, MAX_OFFSETS_PER_TRIGGER)
