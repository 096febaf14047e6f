"""The replay: the new query reads records of the old query again, to build its state. Pure.

The new query reads from `starts` to `ends`, the offsets at which the old query has stopped. It has
no watermark meanwhile: no row is late, and nothing is evicted. Then it continues with the watermark
of the old query.

1. READING: the query reads up to the ends, without the last record.
2. TAKING_OVER: the query reads the last record, with the watermark of the old query. This batch
   evicts the rows that the old query has evicted. It needs a record, because after a restart Spark
   runs no batch without one. The record must not be new, because no row is late in this batch.
3. OVER: the query reads the records after the cut.

All results of the first two phases are before the cut and are kept back: the old query has written
them, or the incomplete input causes them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from pydantic import Field

from job.document import Document
from job.event_time.partitions import Offsets, Partitions, RecordedEventTimes, RecordedOffsets
from job.replay.cut import LateBelow, PlannedBatch, late_by_batch
from job.spec.sides import SIDES, Side
from job.spec.start_positions import StartPositions
from job.sql.time_zones import UTC


class ReplayPhase(StrEnum):
    READING = "reading"
    TAKING_OVER = "taking_over"
    OVER = "over"


@dataclass(frozen=True)
class Expired:
    """Unmatched rows of a side that the old query has emitted and the new query still stores.

    Either `kept_ms` or `window_ms` is set.
    """

    side: Side
    kept_ms: int | None = None
    """With a match window: a row had expired once the watermark was more than this time after its
    event time."""
    window_ms: tuple[int, int] | None = None
    """Size and offset of the old tumbling window."""
    window_time_zone: str = UTC
    """Time zone of the old tumbling window."""
    ends: Offsets | None = None
    """The rows are before these offsets. None: before the ends of the replay."""
    watermark_ms: int | None = None
    """Watermark at which the rows had expired. None: that of the replay."""


class Replay(Document):
    file_name = "change.json"
    old_checkpoint: str
    old_query_id: str
    old_batch_id: int
    starts: RecordedOffsets
    ends: RecordedOffsets
    """The cut."""
    watermark_ms: int
    """Watermark of the old query's last batch. 0: no watermark yet."""
    next_watermark_ms: int
    state_partitions: int
    """Number of state partitions of the new query."""
    event_times: RecordedEventTimes
    """Event times that the old query has read."""
    late: tuple[LateBelow, ...] = ()
    """Rows that were late in the old query. The new query drops them."""
    expired: tuple[Expired, ...] = ()
    topic_ids: Mapping[str, str] = Field(default_factory=dict)
    late_unknown_before: RecordedOffsets = Field(
        default_factory=lambda: {side: {} for side in SIDES}
    )
    """Rows before these offsets are read again, also those that were late in the old query."""
    is_shadow: bool = False
    """Whether the old query continues."""
    query_id: str | None = None
    """Id of the new query, which the change has chosen. None: Spark chooses it."""
    first_offsets: RecordedOffsets | None = None
    """Start offsets of the first of all queries that were changed. None: not known."""

    @property
    def last_batches(self) -> dict[str, int]:
        """The last batch that the old query may have delivered under the name, by its id."""
        return {} if self.is_shadow else {self.old_query_id: self.old_batch_id}

    @property
    def possibly_late_records(self) -> int:
        """Records that are read again although they may have been late in the old query."""
        return sum(
            max(0, min(end, self.ends[side].get(number, 0)) - self.starts[side].get(number, end))
            for side in SIDES
            for number, end in self.late_unknown_before[side].items()
        )

    @property
    def start_positions(self) -> StartPositions:
        """Where the new query starts to read."""
        return StartPositions(left=dict(self.starts["left"]), right=dict(self.starts["right"]))

    @property
    def reading_ends(self) -> Offsets:
        """The ends of the first phase: the last record of one partition is left to read."""
        side, number = self._last_partition
        ends = {name: dict(self.ends[name]) for name in SIDES}
        ends[side][number] -= 1
        return ends

    @property
    def _last_partition(self) -> tuple[Side, int]:
        sizes = {
            (side, number): end - self.starts[side][number]
            for side in SIDES
            for number, end in self.ends[side].items()
        }
        return max(sizes, key=lambda place: sizes[place])

    @property
    def records(self) -> int:
        """Records that are read again."""
        return self.left_to_read(None)

    def left_to_read(self, read: Offsets | None) -> int:
        """Records of the replay that are not read yet. `read`: next offsets. None: no batch has
        ended."""
        next_offsets = self.starts if read is None else read
        return sum(
            max(0, end - next_offsets[side].get(number, 0))
            for side in SIDES
            for number, end in self.ends[side].items()
        )

    def phase(self, read: Offsets | None) -> ReplayPhase:
        """The phase after a batch. `read`: next offsets. None: no batch has ended."""
        if read is None or not _has_reached(read, self.reading_ends):
            return ReplayPhase.READING
        return ReplayPhase.OVER if _has_reached(read, self.ends) else ReplayPhase.TAKING_OVER

    def readable(
        self, phase: ReplayPhase, side: Side, latest: Mapping[int, int]
    ) -> Mapping[int, int]:
        """End offsets up to which the next batch may read a side. A partition that was added after
        the change is read after the replay, from offset 0."""
        if phase is ReplayPhase.OVER:
            return latest
        ends = self.reading_ends if phase is ReplayPhase.READING else self.ends
        return {**dict.fromkeys(latest, 0), **ends[side]}

    def keeps_back(self, batch: PlannedBatch) -> bool:
        """Whether the results of a batch are before the cut. Depends only on Spark's offset log, so
        the result is the same when a batch runs again."""
        return _has_reached(self.ends, batch.ends) and batch.watermark_ms <= self.watermark_ms

    def partitions(self, read: Offsets) -> Partitions:
        """The partitions with the event times of the old query."""
        return Partitions.restored(self.event_times, read)


def has_complete_state(read: Offsets | None, replay: Replay | None) -> bool:
    """Whether a query has all rows in state that it needs to continue. `read`: next offsets. None:
    no batch has ended. `replay`: of the query. None: it replaces no other one."""
    return read is not None and (replay is None or replay.phase(read) is ReplayPhase.OVER)


def late_rows(
    batches: Sequence[PlannedBatch],
    first_offsets: Offsets,
    earlier: Replay | None,
    intervals: Collection[int] = (),
    advanced: Collection[int] = (),
) -> tuple[tuple[LateBelow, ...], Offsets]:
    """Which rows were late in a query, and the offsets before which that is unknown.

    `batches`: those that Spark's log still contains. `earlier`: the replay of the query itself,
    whose own batches have dropped no row as late. None: it replaced no other one. `intervals`: as
    for `late_by_batch`. `advanced`: the intervals in which the watermark has advanced: which of
    their rows became late is not known.
    """
    late, oldest = late_by_batch(batches, intervals), batches[0]
    unknown = [batch.ends for batch in batches if batch.batch_id in advanced]
    is_known = oldest.watermark_ms == 0  # also of all batches before it, so no row was late
    known_from = first_offsets
    if earlier is not None:
        is_known = is_known or _has_reached(earlier.ends, oldest.ends)
        known_from = earlier.late_unknown_before
        after = [rows for rows in late if not _has_reached(earlier.ends, rows.ends)]
        late = (*earlier.late, *after)
    return late, unknown[-1] if unknown else known_from if is_known else oldest.ends


def expired_before(earlier: Replay | None, outer_sides: Collection[Side]) -> tuple[Expired, ...]:
    """Rows that an earlier query had emitted as unmatched, and that the old query keeps back.

    `earlier`: the replay of the old query. None: it replaced no other one. `outer_sides`: those of
    the new query.
    """
    if earlier is None:
        return ()
    return tuple(
        rows
        if rows.ends is not None
        else replace(rows, ends=earlier.ends, watermark_ms=earlier.watermark_ms)
        for rows in earlier.expired
        if rows.side in outer_sides
    )


def _has_reached(read: Offsets, ends: Offsets) -> bool:
    return all(
        read[side].get(number, 0) >= end for side in SIDES for number, end in ends[side].items()
    )
