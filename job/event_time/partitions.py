"""Offsets and event times that a query has read of each partition of both topics. Pure.

Times are milliseconds since 1970. Offsets are the next ones to read, as Kafka counts them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from job.document import Document
from job.spec.sides import SIDES, Side
from job.spec.source_topics import SourceTopics

Offsets = Mapping[Side, Mapping[int, int]]
RecordedOffsets = Annotated[Offsets, AfterValidator(lambda offsets: _of_both_sides(offsets))]
"""As a field of a document."""
EventTimes = Mapping[Side, Mapping[int, int]]
"""Per side and partition the newest event time; partitions without one are missing."""

EVENT_TIMES = "event_times"
"""Name of the metric that each batch observes per side: entries of `partition` and `ms`."""

# Observing the newest event time of each partition costs some 30 ns per record and partition.
OBSERVED_PARTITIONS_MAX = 16
"""A side with more partitions observes only samples."""


@dataclass(frozen=True)
class Partition:
    """One partition after a batch."""

    next_offset: int
    """The first offset that the batch did not read."""
    latest_offset: int
    """End of the partition when the batch was planned."""
    event_time_ms: int | None = None
    """Newest event time of a readable record read so far. None: no such record is known."""

    @property
    def has_backlog(self) -> bool:
        return self.next_offset < self.latest_offset


@dataclass(frozen=True)
class PartitionRead:
    """What the tasks of an interval have read of a partition."""

    next_offset: int
    newest_ms: int | None
    """Newest event time. None: no record with an event time was read."""


Reads = Mapping[Side, Mapping[int, PartitionRead]]
"""By side and partition. A partition of which nothing was read is missing."""


@dataclass(frozen=True)
class BatchRead:
    """Offsets and event times that one batch has read of both sides."""

    next_offsets: Offsets
    """Next offset to read of every partition."""
    latest_offsets: Offsets
    """The ends of the partitions when the batch was planned."""
    event_times: EventTimes
    """Newest event time of the records of the batch."""
    newest_ms: Mapping[Side, int]
    """The same of each side; a side without a readable record is missing."""


@dataclass(frozen=True)
class RecordedEventTime:
    offset: int
    """Next offset to read when the document was written."""
    event_time_ms: int
    """Newest event time read before this offset."""


class RecordedEventTimes(Document):
    """By partition; partitions without a known event time are missing."""

    file_name = "event_times.json"
    left: Mapping[int, RecordedEventTime] = Field(default_factory=dict)
    right: Mapping[int, RecordedEventTime] = Field(default_factory=dict)

    def side(self, side: Side) -> Mapping[int, RecordedEventTime]:
        return self.left if side == "left" else self.right

    def up_to(self, side: Side, number: int, offset: int) -> int | None:
        """Event time of a partition. None: it is unknown, or its entry is after `offset`."""
        entry = self.side(side).get(number)
        return None if entry is None or entry.offset > offset else entry.event_time_ms


@dataclass(frozen=True)
class Partitions:
    """The partitions of both sides after a batch."""

    left: Mapping[int, Partition]
    right: Mapping[int, Partition]
    newest_ms: Mapping[Side, int] = field(default_factory=dict)
    """Newest event time read of each side. It can be newer than that of each of its partitions:
    of topics with many partitions the batches observe only a sample of the records."""

    @classmethod
    def none(cls) -> Self:
        return cls({}, {})

    def side(self, side: Side) -> Mapping[int, Partition]:
        return self.left if side == "left" else self.right

    @property
    def event_times(self) -> EventTimes:
        return {
            side: {
                number: partition.event_time_ms
                for number, partition in self.side(side).items()
                if partition.event_time_ms is not None
            }
            for side in SIDES
        }

    def with_read(self, read: Reads, ends: Offsets) -> "Partitions":
        """The partitions with what a running interval has read. `ends`: of the partitions."""
        left, right = (
            {
                number: _with_read(
                    self.side(side).get(number, Partition(0, 0)), read[side].get(number), end
                )
                for number, end in ends[side].items()
            }
            for side in SIDES
        )
        newest = dict(self.newest_ms)
        for side in SIDES:
            for each in read[side].values():
                if (ms := _newer(newest.get(side), each.newest_ms)) is not None:
                    newest[side] = ms
        return Partitions(left, right, newest)

    def after_batch(self, batch: "BatchRead") -> "Partitions":
        """The partitions after one more batch."""
        left, right = (
            {
                number: Partition(
                    next_offset,
                    batch.latest_offsets[side].get(number, next_offset),
                    _newer(self._event_time(side, number), batch.event_times[side].get(number)),
                )
                for number, next_offset in batch.next_offsets[side].items()
            }
            for side in SIDES
        )
        newest = {
            side: time
            for side in SIDES
            if (time := _newer(self.newest_ms.get(side), batch.newest_ms.get(side))) is not None
        }
        return Partitions(left, right, newest)

    @property
    def next_offsets(self) -> Offsets:
        return {
            side: {number: each.next_offset for number, each in self.side(side).items()}
            for side in SIDES
        }

    @property
    def records(self) -> int:
        """Sum of the next offsets."""
        return sum(each.next_offset for side in SIDES for each in self.side(side).values())

    @property
    def unread(self) -> int:
        """Number of records in the backlogs."""
        return sum(
            max(0, each.latest_offset - each.next_offset)
            for side in SIDES
            for each in self.side(side).values()
        )

    @property
    def has_backlog(self) -> bool:
        return any(each.has_backlog for side in SIDES for each in self.side(side).values())

    def _event_time(self, side: Side, number: int) -> int | None:
        partition = self.side(side).get(number)
        return None if partition is None else partition.event_time_ms

    def advance_ms(self, before: "Partitions") -> int:
        """Advance of the event times since `before`, in milliseconds.

        It is the smallest advance of the partitions that have advanced. 0: no partition has.
        """
        times, old = self.event_times, before.event_times
        advances = [
            newest - old[side][number]
            for side in SIDES
            for number, newest in times[side].items()
            if number in old[side] and newest > old[side][number]
        ]
        return min(advances, default=0)

    def recorded(self) -> RecordedEventTimes:
        left, right = (
            {
                number: RecordedEventTime(partition.next_offset, partition.event_time_ms)
                for number, partition in self.side(side).items()
                if partition.event_time_ms is not None
            }
            for side in SIDES
        )
        return RecordedEventTimes(left=left, right=right)

    @classmethod
    def restored(cls, recorded: RecordedEventTimes, read: Offsets | None) -> Self:
        """The partitions of a query that starts again from the offsets `read`.

        An entry of `recorded` counts only if the checkpoint has read as far as the entry: the
        document may be older than the checkpoint, which makes its times lower bounds, but its times
        must not come from a batch that the checkpoint does not contain. A partition of `read`
        without an entry has no known event time.
        """
        left, right = (
            {
                number: Partition(offset, offset, recorded.up_to(side, number, offset))
                for number, offset in (read or {}).get(side, {}).items()
            }
            for side in SIDES
        )
        partitions = cls(left, right)
        newest = {
            side: max(times.values()) for side, times in partitions.event_times.items() if times
        }
        return cls(left, right, newest)


def _with_read(partition: Partition, read: PartitionRead | None, end: int) -> Partition:
    if read is None:
        return replace(partition, latest_offset=end)
    return Partition(
        max(partition.next_offset, read.next_offset),
        end,
        _newer(partition.event_time_ms, read.newest_ms),
    )


def _newer(one: int | None, other: int | None) -> int | None:
    return max((time for time in (one, other) if time is not None), default=None)


def _of_both_sides(offsets: Offsets) -> Offsets:
    if missing := [side for side in SIDES if side not in offsets]:
        raise ValueError(f"no offsets of the {missing[0]} side")
    return offsets


def labelled(offsets: Offsets, topics: Mapping[Side, SourceTopics]) -> dict[Side, dict[str, int]]:
    """By the labels of the partitions that users see."""
    return {
        side: {of_side.label(number): offset for number, offset in offsets[side].items()}
        for side, of_side in topics.items()
    }
