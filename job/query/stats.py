"""Statistics of the query: counters since the job started, the last batches, the last failures.

Spark's listener and the query runner write them on their threads; the control socket reads them.
"""

import threading
from collections import Counter, deque
from collections.abc import Mapping
from datetime import UTC, datetime

import structlog

from job.errors import StreamjoinError
from job.event_time.empty_tails import EmptyTails
from job.event_time.history import WatermarkLine
from job.event_time.partitions import Offsets, Partitions
from job.event_time.watermark import event_time_of
from job.instants import to_epoch_ms
from job.protocol.latency import LATENCY_WINDOW, latency_report
from job.protocol.progress import (
    BatchProgress,
    batch_progress,
    dead_letters_written,
    kept_back_results,
)
from job.protocol.reports import ChangeReport, LatencyReport, SideEventTimes, StateCount
from job.protocol.status import Failure
from job.protocol.totals import LiveFigures, Totals
from job.query.counted import Counted, RowCounter, counted_by
from job.query.state_rows import StateRowCounter
from job.spec.sides import SIDES, Side
from job.spec.source_topics import ONE_TOPIC_EACH, SourceTopics

# As many as an operator scrolls through; a batch is about 4 kB of JSON.
BATCHES_KEPT = 100
FAILURES_KEPT = 20

_log = structlog.get_logger()


class QueryStats:
    def __init__(self, topics: Mapping[Side, SourceTopics] = ONE_TOPIC_EACH) -> None:
        self.topics = topics
        """Topics of each side, in the order in which the query reads the sides. `on_start` sets
        them with the topics that the start has found for a topic_pattern."""
        self._lock = threading.Lock()
        self._totals = self._shown = Totals()
        self._batches: deque[BatchProgress] = deque(maxlen=BATCHES_KEPT)
        self._latency: tuple[list[BatchProgress], LatencyReport | None] = [], None
        self._failures: deque[Failure] = deque(maxlen=FAILURES_KEPT)
        self._next_batch_id: int | None = None
        self._last_pause: tuple[datetime, datetime] | None = None
        self._last_progress_at: datetime | None = None
        self._offsets: Offsets | None = None
        self._delivered: Counter[int] = Counter()
        self._kept_back: set[int] = set()
        """Batches whose results and dead letters are kept back."""
        self._replays: set[int] = set()
        """Batches of a replay that Spark has not reported yet."""
        self._retries = 0
        self._state_rows = StateRowCounter()
        self._latest_offsets: dict[int, Offsets] = {}
        self._row_counter: RowCounter | None = None
        self._counted = Counted()
        self._live: LiveFigures | None = None
        self.partitions = Partitions.none()
        """Offsets and event times read of each partition, up to the last delivered batch."""
        self.live_partitions: Partitions | None = None
        """The same with what the running interval has read. None: no interval runs."""
        self.settled_partitions: Partitions | None = None
        """The same, with the event times of rows that have arrived at the join. None: not known."""
        self.live_watermark_ms = 0
        """Watermark of the running interval, if it has advanced."""
        self.empty_tails = EmptyTails()
        self.change: ChangeReport | None = None
        """Progress of the replay. None: the query replaces no other query."""

    def batch(self, progress: str) -> None:
        """A batch ended; `progress` is the JSON of its StreamingQueryProgress."""
        try:
            batch = batch_progress(progress, self.topics)
            dead_letters = dead_letters_written(progress)
            kept_back = kept_back_results(progress)
        except Exception:
            # An unreadable report must not end Spark's listener thread.
            _log.exception("unreadable_progress")
            return
        with self._lock:
            if batch.batch_id in self._delivered:
                rows = self._delivered.pop(batch.batch_id)
                batch = batch.model_copy(update={"output_records": rows})
            batch = batch.with_latest_offsets(self._latest_offsets.pop(batch.batch_id, {}))
            if self._last_pause is not None:
                batch = batch.without_pause(*self._last_pause)
            batch = self._with_counted_rows(batch)
            batch = batch.model_copy(update={"is_replay": batch.batch_id in self._replays})
            self._replays.discard(batch.batch_id)
            self._batches.append(self._with_state_rows(batch))
            self._next_batch_id = batch.batch_id + 1
            if batch.batch_id in self._kept_back:
                self._kept_back.remove(batch.batch_id)
                dead_letters = {}
                batch = batch.model_copy(update={"unmatched_results": 0, "filtered_results": 0})
            totals = self._totals.plus(batch).with_dead_letters(dead_letters)
            self._totals = totals.with_kept_back(kept_back)
            self._live = None
            self._offsets = {"left": batch.left.end_offsets, "right": batch.right.end_offsets}
            self._progressed()

    def delivered(self, batch_id: int, rows: int, results: Mapping[str, int]) -> None:
        """The job wrote `rows` of a batch itself, which Spark's report does not contain.

        `results`: transactions by result. A retried batch adds to the rows of its first attempt.
        """
        with self._lock:
            self._delivered[batch_id] += rows
            self._totals = self._totals.with_transactions(results)

    def transactions(self, results: Mapping[str, int]) -> None:
        """Transactions of an interval ended, by result."""
        with self._lock:
            self._totals = self._totals.with_transactions(results)

    def planned(self, batch_id: int, latest: Offsets) -> None:
        """`latest`: the latest offsets of a planned batch, where Spark received lower ones."""
        with self._lock:
            self._latest_offsets = {batch_id: latest}

    def dead_letters(self, counts: Mapping[tuple[str, str], int]) -> None:
        """Dead letters were written; `counts` by side and reason."""
        with self._lock:
            self._totals = self._totals.with_dead_letters(counts)

    def kept_back(self, batch_id: int, results: int) -> None:
        """All results and dead letters of a batch are kept back, because the old query has written
        them."""
        with self._lock:
            self._kept_back.add(batch_id)
            self._totals = self._totals.with_kept_back(results)

    def replayed(self, batch_id: int) -> None:
        """The batch has read records again after a change of the join."""
        with self._lock:
            self._replays.add(batch_id)

    def idle(self) -> None:
        """Spark reports that there was no new data."""
        with self._lock:
            self._progressed()

    def on_resume(self, paused_at: datetime) -> None:
        """Called before Spark can plan the next batch."""
        self._last_pause = paused_at, datetime.now(UTC)

    def on_reset(self) -> None:
        """Forget offsets, event times and batches of the old checkpoint."""
        with self._lock:
            self._offsets = self.change = None
            self.partitions = Partitions.none()
            self._batches.clear()
            self._replays.clear()
            self._totals = self._totals.without_event_times()

    def on_start(
        self,
        last_batch_id: int | None,
        offsets: Offsets | None,
        topics: Mapping[Side, SourceTopics],
    ) -> None:
        """The query starts from this state of the checkpoint. None: no batch has ended yet."""
        with self._lock:
            self.topics = topics
            self._offsets = offsets
            self._next_batch_id = 0 if last_batch_id is None else last_batch_id + 1
            self._state_rows.on_start(last_batch_id)

    def on_skipped(self, records: Mapping[Side, int]) -> None:
        """Deleted records that the query has skipped, by the checkpoint."""
        with self._lock:
            self._totals = self._totals.with_skipped(records)

    def on_state_count(self, state_count: StateCount) -> None:
        """Take over the number of state rows that was counted in the checkpoint."""
        with self._lock:
            self._state_rows.set_count(state_count.batch_id, state_count.rows)
            batches = [self._with_state_rows(batch) for batch in self._batches]
            self._batches = deque(batches, maxlen=BATCHES_KEPT)

    def on_failure(self, error: StreamjoinError) -> None:
        failure = Failure(
            code=error.code, message=str(error), retryable=error.retryable, at=datetime.now(UTC)
        )
        with self._lock:
            self._failures.append(failure)
            self._totals = self._totals.with_failure(error.code)

    def on_restart(self) -> None:
        with self._lock:
            self._totals = self._totals.with_restart()

    def count_retry(self) -> int:
        """Add a retry. Returns the number of earlier retries since the last progress."""
        with self._lock:
            self._retries += 1
            return self._retries - 1

    def interval_begins(self, offsets: Offsets) -> None:
        """An interval of real-time mode is planned that begins with these offsets."""
        with self._lock:
            self._offsets = offsets

    def interval_runs(self, batch_id: int, figures: LiveFigures, *, is_alive: bool) -> None:
        """Figures of a running interval so far. The report of the interval replaces them.

        `is_alive`: whether the tasks of the interval send heartbeats. Without them the figures are
        no progress. Without records, the interval is no progress that resets the retries: a query
        that fails in each interval would be retried without a growing delay.
        """
        with self._lock:
            if self._batches and batch_id <= self._batches[-1].batch_id:
                return
            self._live = figures
            if is_alive:
                self._last_progress_at = datetime.now(UTC)
                if any(figures.read.values()):
                    self._retries = 0

    @property
    def read_offsets(self) -> Offsets | None:
        """Next offset to read of each partition, with what the running interval has read. None:
        unknown."""
        live = self.live_partitions
        return self.offsets if live is None else live.next_offsets

    def count_rows_with(self, counter: RowCounter | None) -> None:
        """Take late rows and the growth of state from a counter. None: from Spark's progress."""
        with self._lock:
            self._row_counter, self._counted = counter, Counted()

    def _with_counted_rows(self, batch: BatchProgress) -> BatchProgress:
        if self._row_counter is not None:
            before, self._counted = self._counted, counted_by(self._row_counter)
            batch = self._counted.with_rows_since(before, batch)
        self._state_rows.add_batch(
            batch.batch_id, batch.state_rows_updated, batch.state_rows_removed
        )
        return batch

    def _with_state_rows(self, batch: BatchProgress) -> BatchProgress:
        rows = self._state_rows.after(batch.batch_id)
        return batch if rows is None else batch.model_copy(update={"state_rows": rows})

    def _progressed(self) -> None:
        self._last_progress_at = datetime.now(UTC)
        self._retries = 0

    @property
    def event_times(self) -> dict[str, SideEventTimes]:
        """Per side, after the last delivered batch and with the records of the running interval. A
        side without a known partition is absent."""
        partitions = self.live_partitions or self.partitions
        event_times = {side: event_time_of(partitions, side) for side in SIDES}
        return {
            side: SideEventTimes(
                event_time_ms=event_times[side].ms,
                held_back_by=event_times[side].held_back_by,
                partitions=dict(partitions.event_times[side]),
            )
            for side in SIDES
            if partitions.side(side)
        }

    def watermark_line(self, delays_ms: Mapping[Side, int], *, live: bool) -> WatermarkLine:
        """The present line of the watermark history. `live`: with the offsets of the running
        interval; otherwise with those of the last one that has ended, as the state."""
        at_ms = to_epoch_ms(datetime.now(UTC))
        with self._lock:
            last = self._batches[-1] if self._batches else None
            offsets = (self.read_offsets if live else self._offsets) or {}
        partitions = self.live_partitions or self.partitions
        times = {side: event_time_of(partitions, side).ms for side in SIDES}
        watermarks = {
            side: None if ms is None or side not in delays_ms else ms - delays_ms[side]
            for side, ms in times.items()
        }
        return WatermarkLine(
            at_ms=at_ms,
            watermark_ms=None if last is None else self._newest_watermark_ms(last),
            left_ms=watermarks["left"],
            right_ms=watermarks["right"],
            left_offsets=dict(offsets.get("left", {})),
            right_offsets=dict(offsets.get("right", {})),
        )

    def _newest_watermark_ms(self, last: BatchProgress) -> int | None:
        if last.watermark_ms is None:
            return None
        return max(last.watermark_ms, self.live_watermark_ms)

    @property
    def totals(self) -> Totals:
        with self._lock:
            live = self._totals if self._live is None else self._totals.with_live(self._live)
            self._shown = live.at_least(self._shown)
            return self._shown

    @property
    def offsets(self) -> Offsets | None:
        """Next offset to read per side and partition. None: no batch has ended yet."""
        return self._offsets

    @property
    def batches(self) -> list[BatchProgress]:
        """The last BATCHES_KEPT, oldest first."""
        with self._lock:
            return list(self._batches)

    def latency(self, now: datetime) -> LatencyReport | None:
        """Latency of the records in the last BATCHES_KEPT batches, if they ended in LATENCY_WINDOW.
        Computed again only if these batches change, because each status has it."""
        begin = now - LATENCY_WINDOW
        batches = [batch for batch in self.batches if batch.ended_at >= begin]
        if [id(batch) for batch in batches] != [id(batch) for batch in self._latency[0]]:
            self._latency = batches, latency_report(batches)
        return self._latency[1]

    @property
    def failures(self) -> list[Failure]:
        """The last FAILURES_KEPT, oldest first."""
        with self._lock:
            return list(self._failures)

    @property
    def last_batch(self) -> BatchProgress | None:
        with self._lock:
            return self._batches[-1] if self._batches else None

    @property
    def several_topics(self) -> dict[Side, list[str]]:
        """Names of the topics of each side that has several."""
        topics = self.topics.items()
        return {side: list(of_side.names) for side, of_side in topics if of_side.are_several}

    @property
    def next_batch_id(self) -> int | None:
        """The batch after the last one that has ended. None: no run has begun yet."""
        with self._lock:
            return self._next_batch_id

    @property
    def last_failure(self) -> Failure | None:
        with self._lock:
            return self._failures[-1] if self._failures else None

    @property
    def last_progress_at(self) -> datetime | None:
        """Time of the last report: a batch, a running interval, or that there was no new data."""
        return self._last_progress_at
