"""How far the next batch may read each partition. Pure.

Spark limits a batch by its number of records: each partition advances by its share of records, and
the event times of the partitions drift apart. Rows of the partition that is ahead then wait in
state. So a partition that is ahead in event time is not read until the others have caught up, and
the first batches of a query are small: a JVM that has just started reads slowly, and the first
results would wait for a whole batch.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Self

from job.event_time.partitions import Partitions
from job.spec.sides import SIDES, Side

FIRST_BATCH_RECORDS = 2_000
"""Records of each side. A batch of this size takes about a second on a JVM that has just
started."""
# 2,000, 24,000, then Spark's limit. Each additional batch costs a JVM that has just started about a
# second. A larger step lets uneven partitions drift further apart before the first of them waits:
# 276,000 rows in state with this one, 250,000 with 4 and 400,000 with 50 (two partitions of 150,000
# records in the benchmark's workload `uneven`).
_GROWTH = 12


def waiting_partitions(
    partitions: Partitions, slack_ms: int, sides: Sequence[Side] = SIDES
) -> Mapping[Side, Set[int]]:
    """Partitions of `sides` that the next batch does not read.

    A partition waits if it has a backlog and its event time is ahead of the slowest partition with
    a backlog, of these sides, by more than `slack_ms`. The slowest partition itself never waits.
    """
    behind = [
        (side, number, partition.event_time_ms)
        for side in sides
        for number, partition in partitions.side(side).items()
        if partition.has_backlog and partition.event_time_ms is not None
    ]
    slowest = min((time for _, _, time in behind), default=0)
    return {
        side: {n for of_side, n, time in behind if of_side == side and time - slowest > slack_ms}
        for side in SIDES
    }


@dataclass(frozen=True)
class Reading:
    """Limits of the next batch."""

    waiting: Mapping[Side, Set[int]]
    records_max: int | None
    """Records of each side. None: only Spark's own limit applies."""

    @property
    def is_limited(self) -> bool:
        return self.records_max is not None or any(self.waiting.values())

    def limited(self, most: int) -> Self:
        """With at most this many records of each side."""
        return replace(self, records_max=self.records_max or most)

    def ends(
        self, side: Side, starts: Mapping[int, int], latest: Mapping[int, int]
    ) -> dict[int, int] | None:
        """Per partition the offset that the batch may read up to. None: nothing is limited.

        `starts`: the next offsets to read. A partition that is missing there is new: it is read
        from its beginning, which is not known here, and is not limited.
        """
        ends = {
            number: starts[number] if number in self.waiting[side] and number in starts else end
            for number, end in latest.items()
        }
        sizes = {n: end - starts[n] for n, end in ends.items() if n in starts and end > starts[n]}
        total = sum(sizes.values())
        if self.records_max is not None and total > self.records_max:
            for number, size in sizes.items():
                share = max(1, size * self.records_max // total)
                ends[number] = starts[number] + share
        return ends if ends != dict(latest) else None


def records_max(batches: int, spark_limit: int) -> int | None:
    """Records of a side in the batch after `batches` batches of this run; None: Spark's limit."""
    limit: int = FIRST_BATCH_RECORDS * _GROWTH**batches
    return None if limit >= spark_limit else limit
