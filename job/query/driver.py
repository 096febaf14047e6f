"""Decides how far a run of the query reads, its watermark, and when the run ends. Pure.

Spark calls the job at two moments, both on the query's thread:

- before it plans a batch or an interval, it requests the ends of both topics: `EndsRequested` for
  each side, and `BatchPlanned` or `IntervalPlanned` once both are known;
- when a micro-batch is delivered, before Spark commits it: `BatchEnded`.

`decide` returns the actions in their order, and control_loop.py performs them. A run has one kind:

- engine micro_batch: the watermark follows each batch, and a partition that is ahead waits;
- the replay after a change, then the same run goes on as one of the others. The run reads up to the
  cut without a watermark, then takes over the watermark of the old query (replay/replay.py). Its
  batches are as large as Spark allows, because no result waits for them;
- engine real_time, catch-up: micro-batches, until few records are unread. If the last interval was
  interrupted, the catch-up repeats it with its watermark;
- engine real_time, intervals, until they fall behind, or a topic has more partitions.

Results do not depend on the phase. A crash at any moment is safe, because each decision follows
from the checkpoint: Spark writes the watermark into its commit log and its offset log, the phase of
a replay follows from the offsets, and a repeated batch has the watermark of its first run.

The watermark also advances while an interval runs (live_watermark.py). A repetition begins with the
watermark of its begin, and the join repeats what the interval has delivered
(writer/DeliveredRows.java).

Exactly-once delivery (writer/DeliveredParts.java) depends on two duties:

- An interval and its watermark are recorded before any row of the interval can be written. The
  record is replaced only after Spark has committed the interval and all that repeats it.
- Before it is recorded how far a cut interval is repeated, the fence number in the checkpoint is
  incremented, and the producers of all slots are fenced (delivery/record_writer.py, before the run
  begins). The writers of the interval may still run: a record that they read later would be
  repeated with a later watermark, which may make it late. The fence commits its number in each
  slot. A driver that has lost its lease may open a slot only after the fence: it then reads a
  number greater than that of its run, and writes nothing. A run reads its number before the rest of
  the checkpoint. If another job replaces the run meanwhile, the number of the run is the smaller
  one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

from job.event_time.fair_reading import Reading, records_max, waiting_partitions
from job.event_time.interval import Interval
from job.event_time.loading import Loading
from job.event_time.partitions import BatchRead, Offsets, Partitions
from job.event_time.watermark import watermark_ms
from job.plan.real_time import CAUGHT_UP_RECORDS, has_caught_up, is_behind
from job.plan.tuning import MAX_OFFSETS_PER_TRIGGER
from job.protocol.status import Phase
from job.query.pacing import Pacing
from job.replay.replay import Replay, ReplayPhase
from job.spec.sides import SIDES, Side


@dataclass(frozen=True)
class EndsRequested:
    """Spark requests how far the next batch may read a side."""

    side: Side
    starts: Mapping[int, int]
    """Offsets of the first record to read, by partition."""
    latest: Mapping[int, int]
    """Ends of the partitions."""


@dataclass(frozen=True)
class BatchPlanned:
    now: float
    """Seconds of a clock that never goes back, as in all events."""
    starts: Offsets
    latest: Offsets


@dataclass(frozen=True)
class IntervalPlanned:
    now: float
    batch_id: int
    read: BatchRead
    """What the interval before has read. Without such an interval: only offsets."""
    watermark_ms: int
    """Watermark of the query. 0: it has none yet."""


@dataclass(frozen=True)
class BatchEnded:
    now: float
    read: BatchRead


@dataclass(frozen=True)
class DurationRefused:
    """Spark has not taken the duration of an interval."""

    current: timedelta
    """Duration of its intervals."""


Event = EndsRequested | BatchPlanned | IntervalPlanned | BatchEnded | DurationRefused


@dataclass(frozen=True)
class ReadUpTo:
    """The answer to `EndsRequested`. Without it, only Spark's own limit applies."""

    ends: Mapping[int, int]


@dataclass(frozen=True)
class RaiseWatermark:
    """Set the watermark of the next batch to at least this one."""

    to_ms: int


@dataclass(frozen=True)
class LimitReading:
    """Request `EndsRequested` for the next batches."""


@dataclass(frozen=True)
class ReleaseReading:
    """Let Spark read a side without a call of the job, which would delay each batch."""

    side: Side


@dataclass(frozen=True)
class RecordInterval:
    interval: Interval


@dataclass(frozen=True)
class SetIntervalDuration:
    duration: timedelta


@dataclass(frozen=True)
class EndRun:
    """End the run between two batches. Spark may still submit the tasks of a planned interval."""

    next_phase: Phase


Action = (
    ReadUpTo
    | RaiseWatermark
    | LimitReading
    | ReleaseReading
    | RecordInterval
    | SetIntervalDuration
    | EndRun
)


@dataclass(frozen=True)
class Run:
    """What stays the same in a run."""

    delay_ms: Mapping[Side, int]
    """`watermark_delay` of each side that is a stream."""
    phase: Phase | None = None
    """None: the engine is micro_batch."""
    replay: Replay | None = None
    """The replay after a change. None: the query replaces no other query."""
    partitions: Mapping[Side, int] = field(default_factory=dict)
    """Number of partitions of each topic for which an interval has a task slot."""
    waits_for: Side | None = None
    """A table for whose versions rows of the stream wait. None: there is none."""


@dataclass(frozen=True)
class State:
    run: Run
    partitions: Partitions
    """Offsets and event times read. During a replay: none."""
    planned_at: float
    """Clock time of the last plan of a batch or an interval. Initially the start of the run."""
    replay_phase: ReplayPhase = ReplayPhase.OVER
    recorded: Interval | None = None
    """The interval of the checkpoint."""
    interrupted: Interval | None = None
    """The interval that the run repeats. None: there is none."""
    pacing: Pacing = field(default_factory=Pacing)
    reading: Reading = field(default_factory=lambda: _reading(Partitions.none(), 0, 0, SIDES))
    latest: Offsets = field(default_factory=dict)
    """Ends of the planned batch's partitions, of each side for which Spark got lower ones."""
    batches: int = 0
    """Number of micro-batches after the replay."""
    has_run: bool = False
    """Whether a micro-batch of the run has ended."""
    empty_plans: int = 0
    """Number of consecutive plans without a record to read."""
    small_batches: timedelta = timedelta()
    """Time of all batches of the catch-up that have left few records unread."""
    loading: Loading | None = None
    """How far the table is read. None: the join has no table."""
    topic_records: int | None = None
    """Sum of the ends of both topics when the last interval was planned. None: none was."""

    @property
    def replay(self) -> Replay | None:
        """The replay, until it is over."""
        return None if self.replay_phase is ReplayPhase.OVER else self.run.replay

    @property
    def is_replaying(self) -> bool:
        return self.replay is not None

    @property
    def keeps_watermark(self) -> bool:
        """Whether the watermark must not advance, not even for an idle side."""
        return self.is_replaying or self.interrupted is not None

    @property
    def is_loading(self) -> bool:
        """Whether the table is read, and not yet the stream."""
        in_batches = self.run.phase is not Phase.REAL_TIME
        return in_batches and self.loading is not None and not self.loading.is_over

    @property
    def needs_calls(self) -> bool:
        """Whether Spark must call the job before each batch."""
        return self.is_replaying or self.run.phase is not None or self.loading is not None

    def is_repeating(self, next_offsets: Offsets) -> bool:
        """Whether a part of the interrupted interval is still to be read again."""
        return self.interrupted is not None and not self.interrupted.is_repeated(next_offsets)


Decision = tuple[State, list[Action]]


def decide(state: State, event: Event) -> Decision:
    match event:
        case EndsRequested():
            return _ends_requested(state, event)
        case BatchPlanned():
            if state.is_replaying or state.run.phase is None:
                return state, []
            return _catch_up_planned(state, event)
        case IntervalPlanned():
            return _interval_planned(state, event)
        case DurationRefused():
            return replace(state, pacing=state.pacing.refused(event.current)), []
        case BatchEnded():
            loading = None if state.loading is None else state.loading.read(event.read.next_offsets)
            ended = replace(state, latest={}, has_run=True, loading=loading)
            if state.replay is not None:
                return _replay_batch_ended(ended, state.replay, event.read)
            return _batch_ended(ended, event)


def _ends_requested(state: State, event: EndsRequested) -> Decision:
    latest = {side: ends for side, ends in state.latest.items() if side != event.side}
    if state.loading is not None:
        loading = state.loading.requested(event.side, event.starts, event.latest)
        state = replace(state, loading=loading)
    ends = _ends(state, event)
    if ends is not None:
        return replace(state, latest={**latest, event.side: event.latest}), [ReadUpTo(ends)]
    is_released = not (state.needs_calls or state.partitions.has_backlog)
    return replace(state, latest=latest), [ReleaseReading(event.side)] if is_released else []


def _ends(state: State, event: EndsRequested) -> Mapping[int, int] | None:
    if state.replay is not None:
        return state.replay.readable(state.replay_phase, event.side, event.latest)
    if state.run.phase is Phase.REAL_TIME:
        return None  # an interval has no planned end
    reading = state.reading
    if state.loading is not None:
        limit = state.loading.limit(event.side, event.starts, event.latest)
        if limit is not None:
            return limit
        if event.side == state.loading.table:  # for which Spark has no limit
            reading = reading.limited(MAX_OFFSETS_PER_TRIGGER)
    return reading.ends(event.side, event.starts, event.latest)


def _replay_batch_ended(state: State, replay: Replay, read: BatchRead) -> Decision:
    phase = replay.phase(read.next_offsets)
    state = replace(state, replay_phase=phase)
    if phase is ReplayPhase.READING:
        return state, []
    if phase is ReplayPhase.TAKING_OVER:
        return state, [RaiseWatermark(replay.watermark_ms)]
    # The event times are those of the old query, which may have read newer ones before the cut.
    only_offsets = replace(read, event_times={side: {} for side in SIDES}, newest_ms={})
    after = replay.partitions(read.next_offsets).after_batch(only_offsets)
    state, limits = _with_next_reading(replace(state, partitions=after), Partitions.none())
    return state, [RaiseWatermark(replay.next_watermark_ms), *limits]


def _batch_ended(state: State, event: BatchEnded) -> Decision:
    before, after = state.partitions, state.partitions.after_batch(event.read)
    state = replace(state, partitions=after, batches=state.batches + 1)
    state, limits = _with_next_reading(state, before)
    if state.is_repeating(event.read.next_offsets):
        return state, limits  # the watermark of the interrupted interval stays
    watermark = _watermark(state)
    if state.run.phase is None:
        return state, [*watermark, *limits]
    state, end = _catch_up_batch_ended(state, event.now)
    return state, [*watermark, *limits, *end]


def _catch_up_batch_ended(state: State, now: float) -> Decision:
    took, unread = timedelta(seconds=now - state.planned_at), state.partitions.unread
    if unread <= CAUGHT_UP_RECORDS:
        state = replace(state, small_batches=state.small_batches + took)
    if (
        state.pacing.allows_intervals(now)
        and not state.is_loading
        and has_caught_up(unread, batch=took, batches=state.small_batches)
    ):
        return state, [EndRun(Phase.REAL_TIME)]
    # The run that follows the repetition repeats nothing.
    return state, [] if state.interrupted is None else [EndRun(Phase.CATCH_UP)]


def _catch_up_planned(state: State, event: BatchPlanned) -> Decision:
    actions: list[Action] = []
    if (interrupted := state.interrupted) is not None:
        if interrupted.repeat_until is None:
            interrupted = interrupted.repeated_until(event.latest)
            actions.append(RecordInterval(interrupted))
        actions.append(RaiseWatermark(interrupted.watermark_ms))
    empty_plans = state.empty_plans + 1 if event.starts == event.latest else 0
    state = replace(state, interrupted=interrupted, planned_at=event.now, empty_plans=empty_plans)
    # No records are unread. If the watermark has advanced, Spark plans one more batch, without
    # records. If it requests the ends a second time, it has planned no such batch.
    requests = 2 if state.has_run else 1
    if empty_plans >= requests:
        actions.append(EndRun(Phase.REAL_TIME))
    return state, actions


def _interval_planned(state: State, event: IntervalPlanned) -> Decision:
    run, latest = state.run, event.read.latest_offsets
    state = replace(state, partitions=state.partitions.after_batch(event.read))
    watermarks = _watermark(state)
    if state.interrupted is not None:
        # The interrupted interval had read no records, but may have written expired rows.
        watermarks.append(RaiseWatermark(state.interrupted.watermark_ms))
    newest = max([event.watermark_ms, *(watermark.to_ms for watermark in watermarks)])
    recorded = Interval.after(state.recorded, event.batch_id, newest)
    state = replace(state, interrupted=None, recorded=recorded)
    has_new_partitions = any(len(latest[side]) > run.partitions[side] for side in SIDES)
    state, fell_behind = _measured(state, event)
    before = state.pacing.current
    state = replace(state, pacing=state.pacing.next_interval())
    actions: list[Action] = [*watermarks, RecordInterval(recorded)]
    if fell_behind or has_new_partitions:
        actions.append(EndRun(Phase.CATCH_UP))
    if state.pacing.current != before:
        actions.append(SetIntervalDuration(state.pacing.current))
    return state, actions


def _measured(state: State, event: IntervalPlanned) -> tuple[State, bool]:
    """Whether the interval that has ended has left too many records unread."""
    took = timedelta(seconds=event.now - state.planned_at)
    ends = sum(sum(ends.values()) for ends in event.read.latest_offsets.values())
    before = state.topic_records
    state = replace(state, planned_at=event.now, topic_records=ends)
    if before is None:
        # The first interval runs in any case: a batch of the catch-up has just left few records.
        return state, False
    unread = state.partitions.unread
    if is_behind(unread, received=ends - before, duration=took):
        return replace(state, pacing=state.pacing.fell_behind(event.now)), True
    return replace(state, pacing=state.pacing.kept_up()), False


def _watermark(state: State) -> list[RaiseWatermark]:
    to_ms = watermark_ms(state.partitions, state.run.delay_ms, state.run.waits_for)
    return [] if to_ms is None else [RaiseWatermark(to_ms)]


def _with_next_reading(state: State, before: Partitions) -> Decision:
    """`before`: the partitions before the batch that has ended."""
    after = state.partitions
    # In an even backlog no partition waits: partitions differ by less than one batch advances each.
    # The smallest advance counts, so that a sparse partition does not run ahead of a dense one.
    slack_ms = max(*state.run.delay_ms.values(), after.advance_ms(before))
    reading = _reading(after, slack_ms, state.batches, tuple(state.run.delay_ms))
    state = replace(state, reading=reading)
    if state.needs_calls:
        return state, []
    if after.has_backlog and reading.is_limited:
        return state, [LimitReading()]
    return state, [ReleaseReading(side) for side in SIDES]


def _reading(read: Partitions, slack_ms: int, batches: int, sides: Sequence[Side]) -> Reading:
    waiting = waiting_partitions(read, slack_ms, sides)
    return Reading(waiting, records_max(batches, MAX_OFFSETS_PER_TRIGGER))
