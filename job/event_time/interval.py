"""An interval of real-time mode, and how it is repeated after an interruption. Pure.

Results of an interval are visible before Spark commits the interval, and Spark does not record how
far an interval reads. If an interval is interrupted, the next start reads its records again, with
the watermark of the interval. Every record that the interval can have read is in the topics when
the query starts again, so the watermark stays until all of these records are read. With a later
watermark, a row whose pair is visible could be late in the repetition, and its partner would be
emitted as unmatched.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

from job.event_time.partitions import Offsets
from job.join_spec.sides import SIDES

# More than the batches that Spark's offset log contains.
_EARLIER_MAX = 100


@dataclass(frozen=True)
class Interval:
    batch_id: int
    watermark_ms: int
    """Watermark of the interval, milliseconds since 1970."""
    repeat_until: Offsets | None = None
    """The ends of the topics at the start that repeats the interval. None: it is not repeated."""
    earlier: tuple[int, ...] = ()
    """Batch ids of the last intervals before this one, oldest first."""

    @classmethod
    def after(cls, previous: Self | None, batch_id: int, watermark_ms: int) -> Self:
        """The interval that follows `previous`. None: it is the first one."""
        earlier = () if previous is None else tuple(sorted(previous.batch_ids - {batch_id}))
        return cls(batch_id, watermark_ms, earlier=earlier[-_EARLIER_MAX:])

    @property
    def batch_ids(self) -> frozenset[int]:
        """This interval and the last ones before it."""
        return frozenset({*self.earlier, self.batch_id})

    def repeated_until(self, ends: Offsets | None) -> Self:
        return replace(self, repeat_until=ends)

    def is_repeated(self, next_offsets: Offsets) -> bool:
        """Whether everything that the interval can have read is read again."""
        return self.repeat_until is not None and all(
            next_offsets[side].get(number, 0) >= end
            for side in SIDES
            for number, end in self.repeat_until[side].items()
        )

    def records_left(self, next_offsets: Offsets | None) -> int | None:
        """Records that the query has not read again yet. None: not known before the first batch of
        the query, or of the repetition, is planned."""
        if self.repeat_until is None or next_offsets is None:
            return None
        return sum(
            max(0, end - next_offsets[side].get(number, 0))
            for side in SIDES
            for number, end in self.repeat_until[side].items()
        )

    def document(self) -> dict[str, Any]:
        """The JSON document that `from_document` reads."""
        ends = self.repeat_until
        return {
            "batch_id": self.batch_id,
            "watermark_ms": self.watermark_ms,
            "repeat_until": None
            if ends is None
            else {side: {str(n): end for n, end in ends[side].items()} for side in SIDES},
            "earlier": list(self.earlier),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Self:
        ends = document["repeat_until"]
        return cls(
            document["batch_id"],
            document["watermark_ms"],
            None
            if ends is None
            else {side: {int(n): end for n, end in ends[side].items()} for side in SIDES},
            tuple(document["earlier"]),
        )
