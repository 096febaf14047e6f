"""Follows one run of the query: the calls of Spark become events, and the decisions of the driver
(driver.py) become calls to Spark and records in the checkpoint.

It also writes the event times that the query has read to the checkpoint.
"""

import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from datetime import timedelta

import structlog

from job.checkpoint.checkpoint import Checkpoint
from job.checkpoint.watermark_history import WatermarkHistory
from job.delivery.record_writer import RecordWriter
from job.delivery.sink import RunningQuery
from job.errors import QueryError
from job.event_time.history import LINE_AFTER_START, LINE_EVERY, START
from job.event_time.loading import Loading
from job.event_time.partitions import Offsets, Partitions, labelled
from job.join.live_watermark import LiveWatermark
from job.plan.plan import JoinPlan
from job.protocol.reports import ChangeReport
from job.protocol.status import Phase
from job.query.driver import (
    BatchEnded,
    BatchPlanned,
    DurationRefused,
    EndRun,
    EndsRequested,
    Event,
    IntervalPlanned,
    LimitReading,
    RaiseWatermark,
    ReadUpTo,
    RecordInterval,
    ReleaseReading,
    Run,
    SetIntervalDuration,
    State,
    decide,
)
from job.query.pacing import Lag, Pacing
from job.query.query_hooks import QueryHooks
from job.query.runtime import QueryRun
from job.replay.replay import Replay, ReplayPhase
from job.spec.durations import milliseconds
from job.spec.sides import SIDES, Side

# Event times that a crash loses only delay the watermark after the restart.
WRITE_SECONDS = 5.0
# Spark requests the ends at the end of an interval and again before the next one.
_ENDS_VALID_SECONDS = 0.5
# Longer than an executor takes to receive a watermark.
_SETTLED_SECONDS = 1.0

_log = structlog.get_logger()


def first_state(
    plan: JoinPlan,
    checkpoint: Checkpoint,
    phase: Phase | None,
    replay: Replay | None,
    pacing: Pacing,
) -> State:
    """State of the driver at the start of a run."""
    run = Run(
        {side: milliseconds(plan.side(side).watermark_delay) for side in plan.streams},
        phase,
        replay,
        {side: plan.side(side).partitions for side in SIDES},
        plan.table_side if plan.stream_waits else None,
    )
    loading = None if plan.table_side is None else Loading(plan.table_side)
    state = State(run, checkpoint.partitions, time.monotonic(), pacing=pacing, loading=loading)
    if phase is not None:
        recorded, interrupted = checkpoint.recorded_interval, checkpoint.interrupted_interval
        state = replace(state, recorded=recorded, interrupted=interrupted)
    if replay is None:
        return state
    read = checkpoint.offsets
    replay_phase = replay.phase(read)
    if read is None or replay_phase is not ReplayPhase.OVER:
        return replace(state, partitions=Partitions.none(), replay_phase=replay_phase)
    if any(state.partitions.event_times.values()):
        return state
    # A crash after the replay has lost the file with the event times.
    return replace(state, partitions=replay.partitions(read))


class ControlLoop:
    """Follows one run of the query. Spark makes its calls on the query's thread."""

    def __init__(
        self,
        run: QueryRun,
        hooks: QueryHooks,
        writer: RecordWriter,
        state: State,
        live: LiveWatermark | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`live`: the watermark within intervals. None: the run has no intervals."""
        self.state = state
        self._live = live
        self._stats, self._checkpoint = run.stats, run.checkpoint
        self._resources = run.resources
        self._hooks = hooks
        self._writer = writer
        self._clock = clock
        self.next_phase = Phase.CATCH_UP
        """Phase of the next run, if this one ends by a decision of the driver."""
        self.must_end = False
        """Whether the run must end within its interval: the interval has no slot for a partition
        that was added, or does not keep up."""
        self._lag = Lag()
        self._fell_behind_at: float | None = None
        self._requested: dict[Side, EndsRequested] = {}
        self._stats.partitions = state.partitions
        self._written: Partitions | None = state.partitions
        self._history = WatermarkHistory(run.checkpoint.folder)
        self._began_at = clock()
        self._history_at = -math.inf
        self._closed = threading.Event()
        self._writing = threading.Lock()
        replay = state.run.replay
        if replay is not None:
            if not state.is_replaying:
                self._written = None  # a crash may have lost the file
            self._report_replay(replay, run.checkpoint.offsets)
            if state.is_replaying and replay.possibly_late_records:
                _log.warning("late_rows_unknown", records=replay.possibly_late_records)

    @property
    def next_pacing(self) -> Pacing:
        """Pacing of the next run."""
        pacing = self.state.pacing
        return pacing if self._fell_behind_at is None else pacing.fell_behind(self._fell_behind_at)

    def raise_watermark(self, to_ms: int) -> None:
        """Raise the watermark between two batches, and within an interval.

        Does nothing while the watermark must not advance, and near the end of an interval: all of
        its tasks end with one watermark, that of Spark's commit log.
        """
        if self.state.keeps_watermark or self._is_near_end():
            return
        self._hooks.raise_watermark(to_ms)
        if self._live is not None:
            self._live.offer(to_ms)
            self._stats.live_watermark_ms = max(to_ms, self._stats.live_watermark_ms)

    def looked(self, live: Partitions) -> None:
        """Called with all partitions and what the running interval has read of them."""
        partitions, slots = {s: len(live.side(s)) for s in SIDES}, self.state.run.partitions
        if not self.must_end and any(partitions[side] > slots[side] for side in SIDES):
            _log.info("partitions_added", **partitions)
            self.must_end = True
        now, unread = self._clock(), live.unread
        ends = live.records + unread
        self._lag = self._lag.looked(now, unread, ends)
        repeats_nothing = self._writer.can_be_interrupted
        if not self.must_end and repeats_nothing and self._lag.is_too_long(now, unread, ends):
            _log.info("interval_is_behind", unread_records=unread)
            self._fell_behind_at = now
            self.must_end = True

    def _is_near_end(self) -> bool:
        if self._live is None:
            return False
        ends_at = self.state.planned_at + self.state.pacing.current.total_seconds()
        return self._clock() > ends_at - _SETTLED_SECONDS

    def starting(self) -> AbstractContextManager[None]:
        """Context in which the query is started."""
        if not self.state.needs_calls:
            return nullcontext()
        is_interval = self.state.run.phase is Phase.REAL_TIME
        return self._hooks.before_first_batch(
            self._ends, _ENDS_VALID_SECONDS if is_interval else 0.0
        )

    def follow(self, running: RunningQuery) -> None:
        """Limit the reading of the started query, and write the event times periodically."""
        self._hooks.started(running)
        try:
            self._hooks.limit_reading(self._ends)
        except Exception as error:
            # Without limits Spark reads all partitions at once; the results are the same.
            _log.exception("reading_not_limited", reason=str(error).partition("\n")[0])
            if self.state.needs_calls:
                running.query.stop()
                raise _no_calls(self.state) from None
        threading.Thread(target=self._write_periodically, name="event-times", daemon=True).start()

    def batch_ended(self, batch_id: int) -> None:
        """Called before Spark commits the batch."""
        before, now = self.state, self._clock()
        read = self._hooks.batch_read(before.latest)
        if before.latest:
            self._stats.planned(batch_id, before.latest)
        if before.is_replaying:
            self._stats.replayed(batch_id)
        self._apply(BatchEnded(now, read))
        if before.replay is not None:
            self._report_replay(before.replay, read.next_offsets)
            if not self.state.is_replaying:
                _log.info("replay_ended", batch_id=batch_id, records=before.replay.records)

    def close(self) -> None:
        self._closed.set()
        self._stats.live_partitions = self._stats.settled_partitions = None
        self._stats.live_watermark_ms = 0
        self._write()
        if self.state.run.phase is not None:
            with suppress(Exception):  # the JVM may be gone
                self._count_transactions()

    def _ends(
        self, side: Side, starts: Mapping[int, int], latest: Mapping[int, int]
    ) -> Mapping[int, int] | None:
        """The end offsets of the next batch. None: Spark's own limit applies."""
        request = EndsRequested(side, starts, latest)
        self._requested[side] = request
        if len(self._requested) == len(SIDES):
            requested, self._requested = self._requested, {}
            starts_of = {name: each.starts for name, each in requested.items()}
            self._plan(starts_of, {name: each.latest for name, each in requested.items()})
        return self._apply(request)

    def _plan(self, starts: Offsets, latest: Offsets) -> None:
        now = self._clock()
        if self.state.run.phase is not Phase.REAL_TIME:
            self._apply(BatchPlanned(now, starts, latest))
            return
        # Of an interval that reads nothing more in this partition.
        latest = self._stats.empty_tails.cut_off(starts, latest)
        if (ended := self._hooks.ended_interval(starts, latest)) is not None:
            watermark_ms = self._hooks.watermark_ms()
            self._apply(IntervalPlanned(now, ended.next_batch_id, ended.read, watermark_ms))
            # After the event times: with new offsets and old ones, a side could look idle.
            self._stats.interval_begins(starts)
            self._count_transactions()

    def _apply(self, event: Event) -> Mapping[int, int] | None:
        """Returns the answer to `EndsRequested`."""
        before = self.state
        self.state, actions = decide(before, event)
        self._stats.partitions = self.state.partitions
        hooks, ends = self._hooks, None
        for action in actions:
            match action:
                case ReadUpTo():
                    ends = action.ends
                case RaiseWatermark():
                    hooks.raise_watermark(action.to_ms)
                case LimitReading():
                    for side in SIDES:
                        hooks.limit_side(side)
                case ReleaseReading():
                    hooks.release_side(action.side)
                case RecordInterval():
                    self._checkpoint.record_interval(action.interval)
                case SetIntervalDuration():
                    self._set_interval_duration(action, before.pacing.current)
                case EndRun():
                    self.next_phase = action.next_phase
                    hooks.end_run()
        return ends

    def _set_interval_duration(self, action: SetIntervalDuration, current: timedelta) -> None:
        try:
            self._hooks.set_interval_duration(action.duration)
        except Exception as error:
            _log.exception("warm_up_not_possible", reason=str(error).partition("\n")[0])
            self._apply(DurationRefused(current))

    def _count_transactions(self) -> None:
        """Count the transactions of the tasks that have ended, and those that have failed."""
        _, results = self._writer.delivered(0)
        self._stats.transactions(results)

    def _report_replay(self, replay: Replay, read: Offsets | None) -> None:
        """`read`: as for `Replay.phase`."""
        self._stats.change = ChangeReport(
            old_checkpoint=replay.old_checkpoint,
            phase=replay.phase(read).value,
            records=replay.records,
            records_left=replay.left_to_read(read),
            possibly_late_records=replay.possibly_late_records,
            offsets=labelled(replay.ends, self._stats.topics),
        )

    def _write_periodically(self) -> None:
        self._write_history()
        while not self._closed.wait(WRITE_SECONDS):
            self._write()
            self._write_history()

    def _write(self) -> None:
        with self._writing:
            partitions = self.state.partitions
            if partitions is self._written or self._resources.lease_is_lost:
                return
            try:
                self._checkpoint.partitions = partitions
                self._written = partitions
            except Exception as error:
                _log.warning("event_times_not_written", reason=str(error).partition("\n")[0])

    def _write_history(self) -> None:
        """Add a line to the watermark history, once a minute, and more often after the start.

        In a replay there is none: rows are not late there, whatever the watermark.
        """
        now = self._clock()
        if self.state.is_replaying or self._resources.lease_is_lost:
            return
        is_start = now < self._began_at + START.total_seconds()
        every = LINE_AFTER_START if is_start else LINE_EVERY
        if now < self._history_at + every.total_seconds():
            return
        self._history_at = now
        try:
            line = self._stats.watermark_line(self.state.run.delay_ms, live=True)
            self._history.add(line)
        except Exception as error:
            _log.warning("watermark_history_not_written", reason=str(error).partition("\n")[0])


def _no_calls(state: State) -> QueryError:
    needs = "engine real_time needs to set the watermark"
    if state.is_replaying:
        needs = "a changed query needs to read up to the cut"
    elif state.run.phase is None:
        needs = "a join with a table needs to read the table first"
    return QueryError(
        "Spark's Kafka source accepts no call into Python while it plans (the log has the reason), "
        f"which {needs}. Restart the process of the job",
        retryable=False,
    )
