"""Divides a backlog into batches as Spark's Kafka source with `maxOffsetsPerTrigger`.

All records of a side exist from the start. A batch reads up to `limit` of them, from each partition
in proportion to its unread records (KafkaMicroBatchStream.rateLimit).
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from job.semantics.input_records import InputRecord
from job.semantics.rows import Side


@dataclass(frozen=True)
class PlannedBatch:
    """Records that the batch reads, each side in the order of its file."""

    left: Sequence[InputRecord] = ()
    right: Sequence[InputRecord] = ()
    left_backlog: Collection[int] = ()
    """Partitions with unread records after the batch."""
    right_backlog: Collection[int] = ()

    def records(self, side: Side) -> Sequence[InputRecord]:
        return self.left if side == "left" else self.right

    def backlog(self, side: Side) -> Collection[int]:
        return self.left_backlog if side == "left" else self.right_backlog

    @property
    def is_empty(self) -> bool:
        return not self.left and not self.right


def backlog_batches(
    left: Sequence[InputRecord], right: Sequence[InputRecord], limit: int
) -> Iterator[PlannedBatch]:
    """Batches of up to `limit` records per side, until both sides are read."""
    sides = (_slices(left, limit), _slices(right, limit))
    for (lefts, left_rest), (rights, right_rest) in zip_longest(*sides, fillvalue=((), ())):
        yield PlannedBatch(lefts, rights, left_rest, right_rest)


def _slices(
    records: Sequence[InputRecord], limit: int
) -> Iterator[tuple[Sequence[InputRecord], Collection[int]]]:
    """Records of each batch, and the partitions with unread records after it."""
    rest: dict[int, list[int]] = {}
    for index, record in enumerate(records):
        rest.setdefault(record.partition_of_side, []).append(index)
    while rest:
        shares = _shares({partition: len(left) for partition, left in rest.items()}, limit)
        chosen = [index for partition, left in rest.items() for index in left[: shares[partition]]]
        rest = {
            partition: left[shares[partition] :]
            for partition, left in rest.items()
            if len(left) > shares[partition]
        }
        yield [records[index] for index in sorted(chosen)], frozenset(rest)


def _shares(sizes: Mapping[int, int], limit: int) -> dict[int, int]:
    """Number of records to read from each partition: rounded down, but at least one.

    Computed in floating point as in Spark, so that the same records are read.
    """
    total = sum(sizes.values())
    shares = {partition: limit * (size / total) for partition, size in sizes.items()}
    return {
        partition: min(sizes[partition], math.ceil(share) if share < 1 else math.floor(share))
        for partition, share in shares.items()
    }
