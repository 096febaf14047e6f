"""The cut: the offsets and the watermark at which the old query has stopped. Pure.

Spark's logs contain the cut. Batch N reads up to the offsets in `offsets/N` and evicts rows with
the watermark in `offsets/N`. The watermark of batch N - 1 decides which rows of batch N are late;
in an interval of real-time mode, that of the interval, which advances up to the one in `commits/N`.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

from job.event_time.partitions import Offsets, RecordedEventTimes
from job.spec.sides import SIDES, Side
from job.spec.source_topics import SourceTopics


@dataclass(frozen=True)
class PlannedBatch:
    """An entry of Spark's offset log."""

    batch_id: int
    ends: Offsets
    """Next offsets to read after the batch."""
    watermark_ms: int
    """0: there is no watermark yet."""

    @classmethod
    def from_log(cls, batch_id: int, text: str, topics: Mapping[Side, SourceTopics]) -> Self:
        """`text`: a line with the version, a line with metadata, then a line for each source with
        its name: `left:{"impressions":{"0":17}}` (OffsetSeqLog of Spark 4.3.0).
        `topics`: a missing side has one topic."""
        _, metadata, *sources = text.splitlines()
        read = dict(line.split(":", 1) for line in sources if ":" in line)
        offsets = {side: json.loads(read[side]) for side in SIDES}
        ends = {
            side: topics.get(side, SourceTopics(tuple(offsets[side]))).numbered(offsets[side])
            for side in SIDES
        }
        return cls(batch_id, ends, int(json.loads(metadata)["batchWatermarkMs"]))


def with_next_offsets(text: str, side: Side, topic: str, offsets: Mapping[int, int]) -> str:
    """An entry of Spark's offset log with other next offsets of some partitions of a topic."""
    lines = text.splitlines()
    for index, line in enumerate(lines):
        source, _, content = line.partition(":")
        if source == side:
            read = json.loads(content)
            read.setdefault(topic, {}).update({str(number): at for number, at in offsets.items()})
            lines[index] = f"{side}:{json.dumps(read, separators=(',', ':'))}"
    return "\n".join(lines)


@dataclass(frozen=True)
class LateBelow:
    """Rows that an old batch has read, and the watermark up to which these rows were late."""

    ends: Offsets
    watermark_ms: int


@dataclass(frozen=True)
class Cut:
    """The last batch of the old query, and the late rows of the batches before it."""

    query_id: str
    batch: PlannedBatch
    next_watermark_ms: int
    """Watermark that the next batch would have had."""
    first_offsets: Offsets
    """Start offsets of the old query, or of the first query if the old one was a change, too."""
    late: tuple[LateBelow, ...]
    """In the order of the batches. An entry applies to the rows after the ends of the entry
    before."""
    event_times: RecordedEventTimes
    """Event times that the old query has read."""
    recorded_event_times: RecordedEventTimes = field(default_factory=RecordedEventTimes)
    """The same as the old query wrote them, perhaps some seconds before the cut."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Kafka's ids of the topics of the old query."""
    late_unknown_before: Offsets = field(default_factory=lambda: {side: {} for side in SIDES})
    """Offsets before which late rows are not detected: `late` does not contain these rows."""
    interval_ms: int | None = None
    """Watermark up to which that of the last interval has advanced. None: the last batch was no
    interval."""

    @property
    def ends(self) -> Offsets:
        return self.batch.ends

    @property
    def watermark_ms(self) -> int:
        """Rows that had expired at this watermark are evicted and emitted. 0: no watermark yet."""
        return self.batch.watermark_ms if self.interval_ms is None else self.interval_ms


def late_by_batch(
    batches: Sequence[PlannedBatch], intervals: Collection[int] = ()
) -> tuple[LateBelow, ...]:
    """`batches`: consecutive batches, oldest first. Spark's log contains only the last ones. Late
    rows before these batches are not detected: the entry without a watermark applies to them.
    `intervals`: the batches that were intervals of real-time mode, or have repeated one. The
    watermark advances in an interval: rows that became late in it count as not late."""
    late: list[LateBelow] = []
    before_ms = 0
    for batch in batches:
        is_interval = bool(late) and batch.batch_id in intervals
        watermark_ms = batch.watermark_ms if is_interval else before_ms
        if late and late[-1].watermark_ms == watermark_ms:
            late.pop()
        late.append(LateBelow(batch.ends, watermark_ms))
        before_ms = batch.watermark_ms
    return tuple(late)
