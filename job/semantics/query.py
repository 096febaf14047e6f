"""The micro-batches of one query around the operator: what MicroBatchExecution does for a join.

Keeps the watermark from batch to batch, and says when a batch without data is due.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from job.semantics.event_time import BatchWatermarks, HeldBack, SideRead, WatermarkTracker
from job.semantics.events import Observer, nobody_listens
from job.semantics.operator import JoinOperatorPlan, OperatorOutput, StreamingSymmetricHashJoin
from job.semantics.rows import SIDES, Row, Side


@dataclass(frozen=True)
class Batch:
    batch_id: int
    watermarks: BatchWatermarks
    output: OperatorOutput
    held_back_by: HeldBack | None = None
    """The partition whose backlog holds the batch's own watermark back."""


class JoinQuery:
    def __init__(
        self,
        plan: JoinOperatorPlan,
        tracker: WatermarkTracker,
        observer: Observer = nobody_listens,
    ) -> None:
        self.operator = StreamingSymmetricHashJoin(plan, observer)
        self._plan = plan
        self._tracker = tracker
        self._watermarks = BatchWatermarks()
        self._just_restarted = False
        self.batch_id = -1
        """Of the last batch."""

    def run_batch(
        self,
        left_rows: Sequence[Row],
        right_rows: Sequence[Row],
        read: Mapping[Side, SideRead] | None = None,
    ) -> Batch:
        """One micro-batch. `read` says what moves the watermark; left out, the rows that reach the
        join do, all of one partition that has no backlog."""
        held_back_by = self._tracker.held_back_by
        if self.batch_id >= 0:
            # What a batch has seen takes effect with the next one.
            self._watermarks = self._watermarks.next(self._tracker.advance())
        self.batch_id += 1
        self._just_restarted = False
        output = self.operator.process(left_rows, right_rows, self._watermarks)
        for side, rows in zip(SIDES, (left_rows, right_rows), strict=True):
            self._tracker.observe(side, read[side] if read else self._read(side, rows))
        return Batch(self.batch_id, self._watermarks, output, held_back_by)

    def needs_batch_without_data(self) -> bool:
        """Whether Spark runs one more batch though no row has come.

        Not right after a restart: it asks the last execution, and there is none yet.
        """
        if self.batch_id < 0 or self._just_restarted:
            return False
        return self.operator.should_run_another_batch(self._watermarks, self._tracker.advance())

    def restart(self, *, times_lost: bool = False) -> None:
        """Stopped after a committed batch and started again on the same checkpoint.

        `times_lost`: a crash has lost the event times of the partitions, which the job writes into
        the checkpoint beside Spark's files. It may also lose a part of them.
        """
        self._tracker.advance()
        if times_lost:
            self._tracker.forget_sides()
        self._just_restarted = True

    def _read(self, side: Side, rows: Sequence[Row]) -> SideRead:
        event_time = self._plan.of(side).event_time
        return SideRead([(0, event_time(row)) for row in rows] if event_time else [])
