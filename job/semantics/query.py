"""The micro-batches of one query: the part of MicroBatchExecution that a join needs.

It carries the watermark from batch to batch, and decides when a batch without data runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from job.semantics.deduplication import DeduplicationPlan, Deduplicator
from job.semantics.event_time import BatchWatermarks, HeldBack, SideRead, WatermarkTracker
from job.semantics.events import Observer, ignore_event
from job.semantics.final_join import FinalTableJoin
from job.semantics.operator import JoinOperatorPlan, OperatorOutput, StreamingSymmetricHashJoin
from job.semantics.pick import PickJoin, PickPlan
from job.semantics.rows import SIDES, Row, Side
from job.semantics.table_join import AsOf, TableJoin, TableJoinPlan
from job.semantics.waiting_join import WaitingTableJoin


@dataclass(frozen=True)
class Batch:
    batch_id: int
    watermarks: BatchWatermarks
    output: OperatorOutput
    held_back_by: HeldBack | None = None
    """The partition whose backlog holds back the watermark of the batch."""


class JoinQuery:
    def __init__(
        self,
        plan: JoinOperatorPlan | TableJoinPlan | PickPlan,
        tracker: WatermarkTracker,
        observer: Observer = ignore_event,
        deduplication: Mapping[Side, DeduplicationPlan] | None = None,
    ) -> None:
        """`deduplication`: plans of the deduplicated sides."""
        self.operator = _operator(plan, observer)
        self.deduplicators = {
            side: Deduplicator(side, of_side, observer)
            for side, of_side in (deduplication or {}).items()
        }
        self._plan = plan
        self._tracker = tracker
        self._watermarks = BatchWatermarks()
        self._just_restarted = False
        self.batch_id = -1
        """Metrics of the last batch."""

    def run_batch(
        self,
        left_rows: Sequence[Row],
        right_rows: Sequence[Row],
        read: Mapping[Side, SideRead] | None = None,
    ) -> Batch:
        """Run one micro-batch. `read`: event times and backlogs of both sides. None: those of
        the rows, in one partition without a backlog."""
        held_back_by = self._tracker.held_back_by
        if self.batch_id >= 0:
            # The event times of a batch take effect with the next one.
            self._watermarks = self._watermarks.next(self._tracker.advance())
        self.batch_id += 1
        self._just_restarted = False
        entering: dict[Side, Sequence[Row]] = {"left": left_rows, "right": right_rows}
        for side, deduplicator in self.deduplicators.items():
            late_ms = self._watermarks.late
            if self._plan.processor == "interval":
                late_ms = self._watermarks.eviction
            entering[side] = deduplicator.process(entering[side], late_ms, self._watermarks)
        output = self.operator.process(entering["left"], entering["right"], self._watermarks)
        for side, rows in zip(SIDES, (left_rows, right_rows), strict=True):
            self._tracker.observe(side, read[side] if read else self._read(side, rows))
        return Batch(self.batch_id, self._watermarks, output, held_back_by)

    def needs_batch_without_data(self) -> bool:
        """Whether Spark runs one more batch without data.

        Never directly after a restart, because Spark decides by the last execution.
        """
        if self.batch_id < 0 or self._just_restarted:
            return False
        watermark_ms = self._tracker.advance()
        return self.operator.should_run_another_batch(self._watermarks, watermark_ms)

    def restart(self, *, times_lost: bool = False) -> None:
        """Stop after a committed batch and start again on the same checkpoint.

        `times_lost`: a crash has lost the event times of the partitions, or some of them, which the
        job writes next to Spark's files in the checkpoint.
        """
        self._tracker.advance()
        if times_lost:
            self._tracker.forget_sides()
        self._just_restarted = True

    def _read(self, side: Side, rows: Sequence[Row]) -> SideRead:
        event_time = self._plan.of(side).event_time
        return SideRead([(0, event_time(row)) for row in rows] if event_time else [])


def _operator(
    plan: JoinOperatorPlan | TableJoinPlan | PickPlan, observer: Observer
) -> StreamingSymmetricHashJoin | TableJoin | PickJoin:
    match plan:
        case TableJoinPlan(waits_ms=int(waits_ms)):
            return WaitingTableJoin(plan, waits_ms, observer)
        case TableJoinPlan(as_of=AsOf(final_after_ms=int(final_after_ms)) as as_of):
            return FinalTableJoin(plan, as_of, final_after_ms, observer)
        case TableJoinPlan():
            return TableJoin(plan, observer)
        case PickPlan():
            return PickJoin(plan, observer)
        case _:
            return StreamingSymmetricHashJoin(plan, observer)
