"""The cut: where the old query has stopped. Pure.

Spark's logs contain it. Batch N reads up to the offsets in `offsets/N` and evicts rows with the
watermark in `offsets/N`; a row of batch N is late by the watermark of batch N - 1.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from job.event_time.partitions import Offsets
from job.join_spec.sides import SIDES, Side
from job.join_spec.source_topics import SourceTopics


@dataclass(frozen=True)
class PlannedBatch:
    """An entry of Spark's offset log."""

    batch_id: int
    ends: Offsets
    """The first offsets that the batch does not read."""
    watermark_ms: int
    """0: there is no watermark yet."""

    @classmethod
    def from_log(cls, batch_id: int, text: str, topics: Mapping[Side, SourceTopics]) -> Self:
        """`text`: a line with the version, one with metadata, then one per source with its name:
        `left:{"impressions":{"0":17}}` (OffsetSeqLog of Spark 4.3.0).
        `topics`: a side that is missing has one topic."""
        _, metadata, *sources = text.splitlines()
        read = dict(line.split(":", 1) for line in sources if ":" in line)
        offsets = {side: json.loads(read[side]) for side in SIDES}
        ends = {
            side: topics.get(side, SourceTopics(tuple(offsets[side]))).numbered(offsets[side])
            for side in SIDES
        }
        return cls(batch_id, ends, int(json.loads(metadata)["batchWatermarkMs"]))


@dataclass(frozen=True)
class LateBelow:
    """Rows that an old batch has read: those up to a watermark were late."""

    ends: Offsets
    watermark_ms: int


@dataclass(frozen=True)
class Cut:
    """The last batch of the old query, and what is known of the batches before it."""

    query_id: str
    batch: PlannedBatch
    next_watermark_ms: int
    """Watermark that the next batch would have had."""
    first_offsets: Offsets
    """Where the old query began to read."""
    late: tuple[LateBelow, ...]
    """In the order of the batches. An entry applies to the rows from the ends of the one before."""
    event_times: Mapping[str, Any]
    """Document of the event times that the old query has read (event_time/partitions.py)."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's ids of the topics of the old query."""
    late_unknown_before: Offsets = field(default_factory=lambda: {side: {} for side in SIDES})
    """Whether a row before these offsets was late is unknown: `late` does not contain it."""

    @property
    def ends(self) -> Offsets:
        return self.batch.ends

    @property
    def watermark_ms(self) -> int:
        """Rows that had expired at this watermark are evicted and emitted. 0: there is none."""
        return self.batch.watermark_ms


def late_by_batch(batches: Sequence[PlannedBatch]) -> tuple[LateBelow, ...]:
    """From consecutive batches, oldest first. Spark keeps only the last ones: of rows before them
    it is not known whether they were late, and the entry without a watermark applies to them."""
    late: list[LateBelow] = []
    watermark_ms = 0
    for batch in batches:
        if late and late[-1].watermark_ms == watermark_ms:
            late.pop()
        late.append(LateBelow(batch.ends, watermark_ms))
        watermark_ms = batch.watermark_ms
    return tuple(late)
