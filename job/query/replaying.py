"""Runs the replay after a change: limits each batch, and sets the watermark of the old query.

The rules are in job/change/replay.py. Spark writes the watermark into its commit log with each
batch, and the phase follows from the offsets, so that a restart continues the replay.

A batch of the replay reads as many records as Spark's limit allows (maxOffsetsPerTrigger). It needs
no small first batches, because no result waits for them, and no order of event times, because no
row is evicted. The first batches after the replay are small, because consumers wait for results.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

import structlog
from pyspark.sql.streaming.query import StreamingQuery

from job.change.replay import Replay, ReplayPhase
from job.delivery.sink import RunningQuery
from job.errors import QueryError
from job.event_time.partitions import BatchRead, Offsets, Partitions
from job.join_spec.sides import SIDES, Side
from job.protocol.reports import ChangeReport
from job.query.event_times import EventTimes
from job.query.runtime import QueryRun
from job.query.stats import QueryStats
from job.spark.batch_read import batch_read
from job.spark.watermark import raise_watermark

_log = structlog.get_logger()


class ReplayingTimes(EventTimes):
    """Event times of a query that replaces another one. After the replay as in any other query."""

    def __init__(self, run: QueryRun, replay: Replay, *of_engine: Any) -> None:
        """`of_engine`: further arguments of the class that the engine uses after the replay."""
        super().__init__(run, *of_engine)
        self._replay = replay
        self._latest: dict[Side, Mapping[int, int]] = {}
        read = run.checkpoint.offsets
        self._phase = replay.phase(read)
        if read is None or self._phase is not ReplayPhase.OVER:
            self._stats.partitions = self._written = Partitions.none()
        else:
            restore_event_times(run, replay)
        report(run.stats, replay, read)
        possibly_late = replay.possibly_late_records
        if possibly_late and self._phase is not ReplayPhase.OVER:
            _log.warning("late_rows_unknown", records=possibly_late)

    def keeps_watermark(self) -> bool:
        return self._phase is not ReplayPhase.OVER or super().keeps_watermark()

    def starting(self) -> AbstractContextManager[None]:
        """Limits the first batch even if Spark plans it before `follow`."""
        if self._phase is ReplayPhase.OVER:
            return super().starting()
        return self._limit_first_batch()

    def follow(self, running: RunningQuery) -> None:
        super().follow(running)
        if self._limited is None and self._phase is not ReplayPhase.OVER:
            running.query.stop()
            raise QueryError(
                "Spark's Kafka source accepts no call into Python while it plans (the log has the "
                "reason), which a changed query needs to read up to the cut. "
                "Restart the process of the job",
                retryable=False,
            )

    def batch_ended(self, query: StreamingQuery, batch_id: int) -> None:
        if self._phase is ReplayPhase.OVER:
            super().batch_ended(query, batch_id)
            return
        ends, self._planned_ends = self._planned_ends, {}
        latest, self._latest = self._latest, {}
        read = batch_read(query, self._run.spark, self._run.plan.topics, ends)
        self._phase = self._replay.phase(read.next_offsets)
        if latest:
            self._stats.planned(batch_id, latest)
        report(self._stats, self._replay, read.next_offsets)
        if self._phase is ReplayPhase.OVER:
            self._end_replay(query, batch_id, self._taken_over(read.next_offsets, latest))
            return
        if self._phase is ReplayPhase.TAKING_OVER:
            raise_watermark(query, self._replay.watermark_ms)

    def _end_replay(self, query: StreamingQuery, batch_id: int, after: Partitions) -> None:
        """Called in the last batch of the replay. `after`: the partitions after the batch."""
        before, self._stats.partitions = self._stats.partitions, after
        _log.info("replay_ended", batch_id=batch_id, records=self._replay.records)
        raise_watermark(query, self._replay.next_watermark_ms)
        self._limit_next_batch(before, after)

    def _taken_over(self, read: Offsets, latest: Mapping[Side, Mapping[int, int]]) -> Partitions:
        ends = {side: latest.get(side, read[side]) for side in SIDES}
        nothing: dict[Side, dict[int, int]] = {side: {} for side in SIDES}
        return self._replay.partitions(read).after_batch(BatchRead(read, ends, nothing, {}))

    def _limit(
        self, side: Side, starts: Mapping[int, int], latest: Mapping[int, int]
    ) -> Mapping[int, int] | None:
        if self._phase is ReplayPhase.OVER:
            return super()._limit(side, starts, latest)
        self._latest[side] = latest
        self._planned_ends[side] = self._replay.readable(self._phase, side, latest)
        return self._planned_ends[side]

    def _release(self, side: Side) -> None:
        if self._phase is ReplayPhase.OVER:
            super()._release(side)


def report(stats: QueryStats, replay: Replay, read: Offsets | None) -> None:
    """Report the progress of the replay. `read`: as for `Replay.phase`."""
    stats.change = ChangeReport(
        old_checkpoint=replay.old_checkpoint,
        phase=replay.phase(read).value,
        records=replay.records,
        records_left=replay.left_to_read(read),
        possibly_late_records=replay.possibly_late_records,
    )


def restore_event_times(run: QueryRun, replay: Replay) -> None:
    """Take over the event times of the old query if a crash after the replay has lost the file."""
    read = run.checkpoint.offsets
    if read is not None and not any(run.stats.partitions.event_times.values()):
        run.stats.partitions = replay.partitions(read)
