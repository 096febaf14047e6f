"""What the processor has counted in a run, as part of the progress of its batches."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from job.protocol.progress import BatchProgress, HeapUse, TableCounts
from job.spec.sides import SIDES, Side


class RowCounter(Protocol):
    """Counts since the start of a run."""

    def late_rows(self, side: Side) -> int: ...

    def duplicate_rows(self, side: Side) -> int: ...

    def stored_rows(self, side: Side) -> int: ...

    def removed_rows(self, side: Side) -> int: ...

    def heap(self, side: Side) -> HeapUse: ...

    def table(self) -> TableCounts: ...


@dataclass(frozen=True)
class Counted:
    late_rows: int = 0
    duplicates: Mapping[Side, int] = field(default_factory=lambda: dict.fromkeys(SIDES, 0))
    stored_rows: int = 0
    removed_rows: int = 0
    heap: Mapping[Side, HeapUse] = field(default_factory=lambda: dict.fromkeys(SIDES, HeapUse()))
    table: TableCounts = field(default_factory=TableCounts)

    def with_rows_since(self, before: "Counted", batch: BatchProgress) -> BatchProgress:
        """The batch with what was counted in it. `before`: at its begin."""
        duplicates = {side: self.duplicates[side] - before.duplicates[side] for side in SIDES}
        return batch.model_copy(
            update={
                "left": batch.left.model_copy(update={"duplicates": duplicates["left"]}),
                "right": batch.right.model_copy(update={"duplicates": duplicates["right"]}),
                "late_rows": batch.late_rows + self.late_rows - before.late_rows,
                # Spark counts entries of its stores.
                "state_rows_updated": self.stored_rows - before.stored_rows,
                "state_rows_removed": self.removed_rows - before.removed_rows,
                "heap": {s: self.heap[s].plus(before.heap[s], sign=-1) for s in SIDES},
                "table": self.table.plus(before.table, sign=-1),
            }
        )


def counted_by(counter: RowCounter) -> Counted:
    return Counted(
        sum(counter.late_rows(side) for side in SIDES),
        {side: counter.duplicate_rows(side) for side in SIDES},
        sum(counter.stored_rows(side) for side in SIDES),
        sum(counter.removed_rows(side) for side in SIDES),
        {side: counter.heap(side) for side in SIDES},
        counter.table(),
    )
