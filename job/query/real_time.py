"""The phases of the real-time engine: catch-up in micro-batches, and intervals in real time.

A run of the query has one phase. The run ends when the other phase is better, and the next run
begins on the same checkpoint. Before each batch and each interval, Spark requests the ends of the
topics from its sources on the query's thread. During this call the job chooses the phase and sets
the watermark of an interval. Results do not depend on the phase.

After a change of the join, the first run begins with the replay (replaying.py), before the
catch-up.

Exactly-once delivery (real_time/DeliveredParts.java) depends on three duties of the driver:

- The driver records an interval and its watermark before any row of the interval can be written. It
  replaces the record only after Spark has committed the interval and all that repeats the interval.
- Before the driver records how far a cut interval is repeated, it increments the fence number in
  the checkpoint, and fences the producers of all slots. The writers of the interval may still run:
  a record that they read later would be repeated with a later watermark, which may make it late.
  The fence commits its number in each slot. A driver that has lost its lease may open a slot only
  after the fence: it then reads a number greater than that of its run, and writes nothing.
  A run reads its number before the rest of the checkpoint. If another job replaces the run
  meanwhile, the number of the run is the smaller one.
- No batch or interval after a recorded interval has an earlier watermark than the recorded one,
  even if there was nothing to repeat.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta

import structlog
from pyspark.sql.streaming.query import StreamingQuery

from job.change.replay import Replay, ReplayPhase
from job.delivery.record_writer import RecordWriter
from job.delivery.sink import RunningQuery
from job.errors import QueryError
from job.event_time.interval import Interval
from job.event_time.partitions import Offsets, Partitions
from job.join_spec.sides import SIDES, Side
from job.plan.real_time import (
    CATCH_UP_CONF,
    CAUGHT_UP_RECORDS,
    has_caught_up,
    is_behind,
)
from job.protocol.status import Phase
from job.query.event_times import EventTimes
from job.query.live_reports import LiveReports
from job.query.replaying import ReplayingTimes, report, restore_event_times
from job.query.runtime import QueryRun
from job.query.warm_up import WarmUp
from job.real_time.join import RowCounts
from job.spark.between_batches import prevent_next_batch
from job.spark.interval_read import ended_interval
from job.spark.watermark import current_watermark, raise_watermark

_log = structlog.get_logger()


class Phases:
    """The phase of each run of the query. After a stop or a failure, a run begins with catch-up."""

    def __init__(self) -> None:
        self._next = Phase.CATCH_UP
        self._warm_up = WarmUp()
        self.current: Phase | None = None
        """Phase of the running query. None: no query runs."""

    def begin(self, run: QueryRun) -> Phase:
        """Prepare the Spark session and the checkpoint for the phase that is next."""
        phase, self._next = self._next, Phase.CATCH_UP
        if not run.checkpoint.is_committed:
            phase = Phase.CATCH_UP  # The previous run failed while Spark committed its last batch.
        _log.info("phase", phase=phase.value)
        _configure(run, phase)
        run.checkpoint.move_uncommitted_state()
        return phase

    @contextmanager
    def running(self, phase: Phase | None) -> Iterator[None]:
        """Context in which the query runs."""
        self.current = phase
        try:
            yield
        finally:
            self.current = None

    def event_times(
        self,
        run: QueryRun,
        replay: Replay | None,
        phase: Phase,
        counts: RowCounts,
        writer: RecordWriter,
    ) -> EventTimes:
        """`replay`: the replay after a change. None: the query replaces no other query."""
        if replay is not None and _is_replaying(run, replay):
            return _ReplayAndCatchUp(*(run, replay, counts, writer, self._change_to, self._warm_up))
        if phase is Phase.REAL_TIME:
            self._warm_up.begin_run(run)
        kind = _CatchUp if phase is Phase.CATCH_UP else _Intervals
        times: EventTimes = kind(run, counts, writer, self._change_to, self._warm_up)
        if replay is not None:
            restore_event_times(run, replay)
            report(run.stats, replay, run.checkpoint.offsets)
        return times

    def forget(self) -> None:
        """Begin the next run with catch-up."""
        self._next = Phase.CATCH_UP

    def _change_to(self, phase: Phase) -> None:
        self._next = phase


def _is_replaying(run: QueryRun, replay: Replay) -> bool:
    return replay.phase(run.checkpoint.offsets) is not ReplayPhase.OVER


def _configure(run: QueryRun, phase: Phase) -> None:
    """Set the Spark conf that differs between the phases."""
    for name, value in CATCH_UP_CONF.items():
        in_phase = value if phase is Phase.CATCH_UP else run.plan.spark_conf[name]
        run.spark.conf.set(name, in_phase)


class _PlannedTimes(EventTimes, ABC):
    """Event times of a query that calls into Python whenever Spark plans a batch or an interval."""

    def __init__(
        self,
        run: QueryRun,
        counts: RowCounts,
        writer: RecordWriter,
        change_to: Callable[[Phase], None],
        warm_up: WarmUp,
    ) -> None:
        super().__init__(run)
        self._counts = counts
        self._writer = writer
        self._change_to = change_to
        self._warm_up = warm_up
        self._planned_at = time.monotonic()
        self._recorded = run.checkpoint.recorded_interval
        self._interrupted = run.checkpoint.interrupted_interval
        """The interval that the run repeats. None: no interval, or its repetition is complete."""
        self._starts: dict[Side, Mapping[int, int]] = {}
        self._latest: dict[Side, Mapping[int, int]] = {}

    def keeps_watermark(self) -> bool:
        return self._interrupted is not None

    def starting(self) -> AbstractContextManager[None]:
        """`_planned` records the first interval, too, and begins to repeat an interrupted one."""
        return self._limit_first_batch()

    def follow(self, running: RunningQuery) -> None:
        super().follow(running)
        if self._limited is None:
            running.query.stop()
            raise QueryError(
                "Spark's Kafka source accepts no call into Python while it plans (the log has the "
                "reason), which engine real_time needs to set the watermark. "
                "Restart the process of the job",
                retryable=False,
            )

    def _limit(
        self, side: Side, starts: Mapping[int, int], latest: Mapping[int, int]
    ) -> Mapping[int, int] | None:
        self._starts[side], self._latest[side] = starts, latest
        if len(self._latest) == len(SIDES):
            known = dict(self._starts), dict(self._latest)
            self._starts.clear()
            self._latest.clear()
            self._planned(*known)
        return super()._limit(side, starts, latest)

    @abstractmethod
    def _planned(self, starts: Offsets, latest: Offsets) -> None:
        """Called with the start of the next batch and the ends of the topics."""

    def _release(self, side: Side) -> None:
        """Releases no side: the job needs the next call into Python."""

    def close(self) -> None:
        super().close()
        with suppress(Exception):  # the JVM may be gone
            self._count_transactions()

    def _count_transactions(self) -> None:
        """Count the transactions of the tasks that have ended, and those that have failed."""
        _, results = self._writer.delivered(0)
        self._stats.transactions(results)

    def _end_run(self, phase: Phase) -> None:
        self._change_to(phase)
        prevent_next_batch(self._query)


class _CatchUp(_PlannedTimes):
    _has_run = False
    _empty_plans = 0
    _small_batches = timedelta()

    def batch_ended(self, query: StreamingQuery, batch_id: int) -> None:
        self._has_run = True
        took = timedelta(seconds=time.monotonic() - self._planned_at)
        super().batch_ended(query, batch_id)
        after = self._stats.partitions
        is_repeating = self._is_repeating(_next_offsets(after))
        is_repeated = self._interrupted is not None and not is_repeating
        if is_repeating:
            return
        unread = _records_behind(after)
        if unread <= CAUGHT_UP_RECORDS:
            self._small_batches += took
        if self._warm_up.allows_intervals() and has_caught_up(
            unread, batch=took, batches=self._small_batches
        ):
            self._end_run(Phase.REAL_TIME)
        elif is_repeated:
            self._end_run(Phase.CATCH_UP)

    def _planned(self, starts: Offsets, latest: Offsets) -> None:
        if self._interrupted is not None and self._interrupted.repeat_until is None:
            self._interrupted = self._interrupted.repeated_until(latest)
            self._checkpoint.record_interval(self._interrupted)
        if self._interrupted is not None:
            raise_watermark(self._query, self._interrupted.watermark_ms)
        self._planned_at = time.monotonic()
        self._empty_plans = self._empty_plans + 1 if starts == latest else 0
        # No records are unread. If the watermark has advanced, Spark plans one more batch, without
        # records. If it requests the ends a second time, it has planned no such batch.
        calls = 2 if self._has_run else 1
        if self._empty_plans >= calls and not self._is_repeating(starts):
            self._end_run(Phase.REAL_TIME)

    def _watermark_ms(self, partitions: Partitions) -> int | None:
        """None while an interrupted interval is repeated, because its watermark stays."""
        is_repeating = self._is_repeating(_next_offsets(partitions))
        return None if is_repeating else super()._watermark_ms(partitions)

    def _is_repeating(self, next_offsets: Offsets) -> bool:
        return self._interrupted is not None and not self._interrupted.is_repeated(next_offsets)


class _ReplayAndCatchUp(ReplayingTimes, _CatchUp):
    """The replay after a change, then the catch-up, in one run of the query."""

    def _end_replay(self, query: StreamingQuery, batch_id: int, after: Partitions) -> None:
        super()._end_replay(query, batch_id, after)
        self._has_run = True


class _Intervals(_PlannedTimes):
    # Spark requests the ends at the end of an interval and again before the next one.
    _ends_valid_seconds = 0.5

    _ends: int | None = None
    """Sum of the ends of both topics when the interval was planned. None: no interval was."""

    def follow(self, running: RunningQuery) -> None:
        super().follow(running)
        LiveReports(self._run, running.query, self._counts).start(self._closed)

    def _planned(self, starts: Offsets, latest: Offsets) -> None:
        """Called a second time at the end of an interval, before Spark plans the next one."""
        interval = ended_interval(self._query, starts, latest)
        if interval is None:
            return
        after = self._stats.partitions.after_batch(interval.read)
        self._stats.partitions = after
        self._stats.interval_begins(starts)
        self._count_transactions()
        if (to_ms := self._watermark_ms(after)) is not None:
            raise_watermark(self._query, to_ms)
        if self._interrupted is not None:
            # The interrupted interval had read no records, but may have written expired rows.
            raise_watermark(self._query, self._interrupted.watermark_ms)
            self._interrupted = None
        # Also if the run ends here, because Spark may submit the tasks before it stops.
        self._recorded = Interval.after(
            self._recorded, interval.next_batch_id, current_watermark(self._query)
        )
        self._checkpoint.record_interval(self._recorded)
        if self._fell_behind(after, latest) or self._partitions_are_added(latest):
            self._end_run(Phase.CATCH_UP)
        self._warm_up.plan_interval(self._query)

    def _fell_behind(self, after: Partitions, latest: Offsets) -> bool:
        at, ends = time.monotonic(), sum(sum(each.values()) for each in latest.values())
        took, self._planned_at = timedelta(seconds=at - self._planned_at), at
        before, self._ends = self._ends, ends
        if before is None:
            # The first interval runs in any case: a batch of the catch-up has just found few
            # records.
            return False
        if is_behind(_records_behind(after), received=ends - before, duration=took):
            self._warm_up.fell_behind()
            return True
        self._warm_up.kept_up()
        return False

    def _partitions_are_added(self, latest: Offsets) -> bool:
        """Whether a topic has more partitions than at the start of the run. The next run has a task
        slot for each."""
        plan = self._run.plan
        return any(len(latest[side]) > plan.side(side).partitions for side in SIDES)


def _next_offsets(partitions: Partitions) -> Offsets:
    return {
        side: {number: each.next_offset for number, each in partitions.side(side).items()}
        for side in SIDES
    }


def _records_behind(partitions: Partitions) -> int:
    return sum(
        max(0, each.latest_offset - each.next_offset)
        for side in SIDES
        for each in partitions.side(side).values()
    )
