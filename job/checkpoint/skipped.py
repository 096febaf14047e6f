"""Lets a query continue behind records that Kafka deleted before the query read them.

Spark continues after the last batch that it has committed, at the next offsets of this batch in its
offset log. `skip` moves these offsets behind the deleted records. Batch ids, watermark and state
stay as they are, so the markers in the commit topic still fit: the next batch has the next number,
and its fingerprint is computed from its own entry of the offset log.

A batch that Spark has planned after that one has the deleted records in its input, so its entry is
moved to `aside-…`, and Spark plans it again. The caller has checked that nothing of it was
delivered. A marker that is written later has another fingerprint, or an older fence, than the next
run, which then refuses to deliver.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from job.checkpoint.checkpoint import Checkpoint, aside_folder, move_log_entry
from job.checkpoint.documents import (
    SkippedRange,
    SkippedRecords,
    read_document,
    write_document,
)
from job.kafka.retention import Gap
from job.replay.cut import with_next_offsets
from job.spec.sides import SIDES, Side


def read_skipped(checkpoint: Checkpoint) -> Mapping[Side, int]:
    """Number of skipped offsets of each side, since the checkpoint began."""
    ranges = skipped_ranges(checkpoint)
    return {
        side: sum(each.next_offset - each.first_offset for each in ranges if each.side == side)
        for side in SIDES
    }


def skip(checkpoint: Checkpoint, gaps: Sequence[Gap], now: datetime) -> None:
    """Let the next batch begin behind the gaps. A crash leaves the old offsets or the new ones, and
    the call can be repeated."""
    last, planned = checkpoint.last_batch_id, checkpoint.last_planned_batch_id
    assert last is not None, "the caller has checked that there is state"
    _record(checkpoint, gaps, last, now)
    if planned is not None and planned > last:
        move_log_entry(checkpoint.folder, "offsets", planned, aside_folder(now))
    text = checkpoint.planned_batch(last)
    for gap in gaps:
        text = with_next_offsets(text, gap.side, gap.topic, {gap.partition: gap.resume_offset})
    checkpoint.folder.write(f"query/offsets/{last}", text)


def _record(checkpoint: Checkpoint, gaps: Sequence[Gap], last: int, now: datetime) -> None:
    """Before the offsets are moved. A repetition after a crash replaces what it has recorded."""
    added = [
        SkippedRange(
            *(gap.side, gap.topic, gap.partition, gap.read, gap.resume_offset),
            batch_id=last,
            skipped_at=now,
        )
        for gap in gaps
    ]
    again = {(each.side, each.topic, each.partition, each.first_offset) for each in added}
    kept = [
        each
        for each in skipped_ranges(checkpoint)
        if (each.side, each.topic, each.partition, each.first_offset) not in again
    ]
    write_document(checkpoint.folder, SkippedRecords(ranges=[*kept, *added]))


def skipped_ranges(checkpoint: Checkpoint) -> list[SkippedRange]:
    """In the order in which they were skipped, since the checkpoint began."""
    document = read_document(checkpoint.folder, SkippedRecords)
    return [] if document is None else document.ranges
