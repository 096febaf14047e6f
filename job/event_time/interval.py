"""An interval of real-time mode, and how it is repeated after an interruption. Pure.

Results of an interval are visible before Spark commits the interval, and Spark does not record how
far an interval reads. If an interval is interrupted, the next start reads its records again, with
the watermark of its begin. Every record that the interval can have read is in the topics when
the query starts again, so the watermark stays until all of these records are read. With a later
watermark, a row whose pair is visible could be late in the repetition, and its partner would be
emitted as unmatched. The rows that were late, or emitted as unmatched, by a later watermark of the
interval are known from what it has delivered (writer/DeliveredRows.java).
"""

from typing import Self

from job.document import Document
from job.event_time.partitions import Offsets, RecordedOffsets
from job.spec.sides import SIDES

# More than the batches that Spark's offset log contains.
_EARLIER_MAX = 100


class Interval(Document):
    file_name = "interval.json"
    batch_id: int
    watermark_ms: int
    """Watermark with which the interval begins, milliseconds since 1970. It advances meanwhile."""
    repeat_until: RecordedOffsets | None = None
    """The ends of the topics at the start that repeats the interval. None: it is not repeated."""
    earlier: tuple[int, ...] = ()
    """Batch ids of the last intervals before this one, oldest first."""

    @classmethod
    def after(cls, previous: Self | None, batch_id: int, watermark_ms: int) -> Self:
        """The interval that follows `previous`. None: it is the first one."""
        earlier = () if previous is None else tuple(sorted(previous.batch_ids - {batch_id}))
        return cls(batch_id=batch_id, watermark_ms=watermark_ms, earlier=earlier[-_EARLIER_MAX:])

    @property
    def batch_ids(self) -> frozenset[int]:
        """This interval and the last ones before it."""
        return frozenset({*self.earlier, self.batch_id})

    def repeated_until(self, ends: Offsets | None) -> Self:
        return self.model_copy(update={"repeat_until": ends})

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
