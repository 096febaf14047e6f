"""Offsets at the ends of partitions that have no record: markers of transactions, and the records
of aborted ones. Pure.

Real-time mode reads on after the last record and never over such a tail, so a partition would
always have something unread. Micro-batches read up to the end.
"""

from collections.abc import Mapping

from job.event_time.partitions import Offsets
from job.spec.sides import SIDES, Side

Tails = Mapping[Side, Mapping[int, tuple[int, int]]]
"""Per side and partition the first offset of the tail, and the offset after it."""


class EmptyTails:
    """The tails that are known. One thread sets them, others ask."""

    def __init__(self) -> None:
        self._tails: Tails = {side: {} for side in SIDES}

    def set(self, tails: Tails) -> None:
        self._tails = tails

    def passed(self, side: Side, offsets: Mapping[int, int]) -> dict[int, int]:
        """`offsets`, and the end of the tail in place of an offset in it."""
        return {number: self._passed(side, number, offset) for number, offset in offsets.items()}

    def cut_off(self, starts: Offsets, ends: Offsets) -> dict[Side, dict[int, int]]:
        """`ends`, and the start in place of an end up to which a tail reaches from the start."""
        return {
            side: {
                number: start
                if (start := starts[side].get(number, end)) < end
                and self._passed(side, number, start) >= end
                else end
                for number, end in ends[side].items()
            }
            for side in SIDES
        }

    def _passed(self, side: Side, number: int, offset: int) -> int:
        first, end = self._tails[side].get(number, (0, 0))
        return end if first <= offset < end else offset
