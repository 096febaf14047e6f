"""What a query has delivered, and whether another query may continue after it.

A change of the join (change/hand_over.py) continues after the last batch of the query with another
query, which does not know the parts of intervals (writer/DeliveredParts.java). So the change
fences the producers, then reads what they have delivered: until an interval is repeated completely,
no other query may continue. A change also checks this before it stops the query (`must_repeat`).
Open transactions of the query and of other joins hide records. All parts of an interrupted interval
are before the fence of the start that repeats it, so the check waits until it reads this fence.
Then it waits until Spark has committed the planned batch, or the interval that has ended: after a
start they can be delivered in part, and not begun again.

Pure: no Kafka, no clock. Tests explore it on a modelled broker and a modelled Spark.
"""

from dataclasses import dataclass

from job.delivery.commit_protocol import NO_BATCH


@dataclass(frozen=True)
class Fence:
    """Record of the commit topic: runs of the query with a smaller number may not write."""

    query_id: str
    number: int
    """Counts the fences of the query from 1."""


@dataclass(frozen=True)
class Delivered:
    """What a query has delivered in all slots."""

    batch_id: int
    """The newest batch or interval of which the query has delivered anything. NO_BATCH: none."""
    interval_id: int
    """The newest interval of which the query has delivered a part. NO_BATCH: none."""
    fence: int = 0
    """The newest fence of the query that is visible in every slot. 0: none."""
    fenced_id: int = NO_BATCH
    """The newest batch or interval with a marker or a part before the newest fence of a slot.
    NO_BATCH: none."""

    def has_part_of(self, interval: int) -> bool:
        return self.interval_id >= interval

    def must_repeat(self, interval: int, fence: int, *, in_intervals: bool) -> bool | None:
        """Whether the running query repeats an interval that was interrupted after it had delivered
        some rows. None: an open transaction may hide these rows.

        `interval`: the recorded one. `fence`: the number in the checkpoint. `in_intervals`: whether
        the run is one of intervals. The recorded interval then only runs, or it repeats the one
        with its number: parts and marker of that one are before the fence of the start.
        """
        newest = max(self.interval_id, self.batch_id)  # an interval may have only its marker
        known = self.fenced_id if in_intervals else newest
        if known >= interval:
            return True
        return False if self.fence >= fence else None

    def unfinished(self, last_batch: int, repeats: int | None) -> int | None:
        """The batch or interval with delivered rows that are not all in the input of `last_batch`
        and of the batches before it. None: another query may continue after `last_batch`.

        `last_batch`: the last one that Spark has committed. `repeats`: the interval whose
        repetition Spark has not committed completely.
        """
        if self.batch_id > last_batch:
            return self.batch_id
        return repeats if repeats is not None and self.has_part_of(repeats) else None
