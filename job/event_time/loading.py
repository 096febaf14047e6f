"""A table is read to its end before its stream. Pure.

Each run takes the ends of the table's partitions when it first requests them, and reads no record
of the stream before it has read the table up to these ends. So a row of the stream joins what the
table had before the run, also after a restart, and in a table that never stops receiving records.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from job.event_time.partitions import Offsets
from job.spec.sides import Side


@dataclass(frozen=True)
class Loading:
    table: Side
    ends: Mapping[int, int] | None = None
    """Up to which the run reads the table first, by partition. None: not requested yet."""
    next_offsets: Mapping[int, int] = field(default_factory=dict)
    """Next offsets to read of the table."""

    def requested(self, side: Side, starts: Mapping[int, int], latest: Mapping[int, int]) -> Self:
        """Spark requests the ends of a side: `latest`."""
        if side != self.table:
            return self
        ends = latest if self.ends is None else self.ends
        return replace(self, ends=ends, next_offsets={**self.next_offsets, **starts})

    def read(self, next_offsets: Offsets) -> Self:
        return replace(self, next_offsets={**self.next_offsets, **next_offsets[self.table]})

    def limit(
        self, side: Side, starts: Mapping[int, int], latest: Mapping[int, int]
    ) -> Mapping[int, int] | None:
        """Up to which the next batch reads a side. None: another rule decides.

        A batch with records of the stream reads the table to its end: they may follow the newest
        record of the table.
        """
        if side == self.table:
            return latest if self.is_over else None
        return None if self.is_over else starts

    @property
    def records_left(self) -> int | None:
        """Number of offsets up to the ends. None: the ends are not known yet."""
        if self.ends is None:
            return None
        return sum(max(0, end - self.next_offsets.get(n, 0)) for n, end in self.ends.items())

    @property
    def is_over(self) -> bool:
        return self.records_left == 0
