"""The watermark that the partitions of both topics allow. Pure.

    event time of a side = the smallest newest event time of its partitions with a backlog;
                           with no backlog in any of them, the newest of all its partitions
    watermark            = the smaller of  event time - watermark_delay  of the two sides, or that
                           of the stream if the other side is a table, which is read to its end
                           if rows of the stream wait for its versions

A partition with a backlog holds the watermark back because its unread records may be as old as the
newest one already read. A partition that is read to its end does not hold the watermark back. While
a partition has a backlog and no known event time, the watermark does not advance. The watermark
never goes back.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from job.event_time.partitions import Partition, Partitions
from job.spec.sides import Side


@dataclass(frozen=True)
class SideEventTime:
    ms: int | None
    """None: the side does not let the watermark advance."""
    held_back_by: int | None = None
    """The partition that decides. None: the side has no backlog."""


def side_event_time(
    partitions: Mapping[int, Partition], newest_ms: int | None = None
) -> SideEventTime:
    """`newest_ms`: newest event time of the side, which can be newer than those of partitions."""
    behind = {
        number: partition for number, partition in partitions.items() if partition.has_backlog
    }
    for number, partition in behind.items():
        if partition.event_time_ms is None:
            return SideEventTime(None, number)
    times = {
        number: partition.event_time_ms
        for number, partition in (behind or partitions).items()
        if partition.event_time_ms is not None
    }
    if not behind:
        known = [*times.values(), *([] if newest_ms is None else [newest_ms])]
        return SideEventTime(max(known, default=None))
    slowest = min(times, key=lambda number: times[number])
    return SideEventTime(times[slowest], slowest)


def event_time_of(partitions: Partitions, side: Side) -> SideEventTime:
    return side_event_time(partitions.side(side), partitions.newest_ms.get(side))


def watermark_ms(
    partitions: Partitions, delay_ms: Mapping[Side, int], read_first: Side | None = None
) -> int | None:
    """The watermark of the next batch. None: a side does not let the watermark advance.

    `delay_ms`: `watermark_delay` of the sides that the watermark follows. `read_first`: a table
    that must be read to its end before the watermark may pass the rows that wait for it.
    """
    watermarks = []
    if read_first is not None and any(
        partition.has_backlog for partition in partitions.side(read_first).values()
    ):
        return None
    for side, delay in delay_ms.items():
        event_time = event_time_of(partitions, side).ms
        if event_time is None:
            return None
        watermarks.append(event_time - delay)
    return min(watermarks)
