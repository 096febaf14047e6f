"""Offsets from which the new query reads each partition again. Pure.

The new query needs the rows that have not expired at the watermark of the cut. It also needs the
possible partners of these rows, because a row that had a partner is not unmatched. The event time
of a record is at most `max_event_time_ahead` after its Kafka timestamp, so Kafka finds the records
by timestamp.

The state of a join with a table has all of the table, and of the stream only rows that wait.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta

from job.errors import RetentionError
from job.event_time.partitions import OBSERVED_PARTITIONS_MAX, Offsets
from job.instants import from_epoch_ms
from job.plan.plan import JoinPlan
from job.replay.cut import Cut
from job.spec.durations import milliseconds
from job.spec.sides import OTHER_SIDE, SIDES, Side

# The last batch of the replay reads one record, and at least one batch runs before it.
_RECORDS_MIN = 2


@dataclass(frozen=True)
class KnownOffsets:
    """Offsets of the partitions of a side in Kafka."""

    earliest: Mapping[int, int]
    at_time: Mapping[int, int]
    """First offset with a timestamp at or after the time. A partition without one is missing."""


def reach(plan: JoinPlan, side: Side) -> timedelta:
    """Longest time before the watermark of a row of `side` that the state depends on."""
    own, other = plan.side(side).retention, plan.side(OTHER_SIDE[side]).retention
    assert own is not None, "comparison.py refuses unbounded state"
    if other is None:  # a table
        return own
    if plan.match_window is None or not plan.marks_matched(OTHER_SIDE[side]):
        return max(own, timedelta(0))
    # A bound of the match window may be negative: partners then expire before the row itself.
    return max(own, own + other, timedelta(0))


def needed_from_ms(old: JoinPlan, new: JoinPlan, watermark_ms: int) -> dict[Side, int]:
    """Kafka timestamp of each side from which records are needed. Without a table, and without a
    stream that is joined with it at once."""
    return {
        side: watermark_ms - milliseconds(reach(new, side) + _ahead(old, new, side))
        for side in SIDES
        if new.side(side).retention is not None
    }


def _ahead(old: JoinPlan, new: JoinPlan, side: Side) -> timedelta:
    return max(old.side(side).max_event_time_ahead, new.side(side).max_event_time_ahead)


def start_offsets(
    new: JoinPlan, cut: Cut, needed_ms: Mapping[Side, int], known: Mapping[Side, KnownOffsets]
) -> Offsets:
    """The start offset of every partition of the cut.

    Raises RetentionError if Kafka has deleted records that may be needed.
    """
    starts: dict[Side, dict[int, int]] = {side: dict(cut.ends[side]) for side in SIDES}
    if (table := new.table_side) is not None:
        for number, end in cut.ends[table].items():
            starts[table][number] = min(known[table].earliest[number], end)
    lost = []
    for side in needed_ms:
        needed_event_time_ms = cut.watermark_ms - milliseconds(reach(new, side))
        for number, end in cut.ends[side].items():
            first = cut.first_offsets[side].get(number, 0)
            # Without a watermark no row has expired.
            at_time = known[side].at_time.get(number, end) if cut.watermark_ms else first
            start = max(first, min(at_time, end))
            earliest = known[side].earliest[number]
            newest_ms = _newest_ms(cut, side, number)
            is_past = newest_ms is not None and newest_ms < needed_event_time_ms
            if start <= earliest and earliest > first and not is_past:
                topic, partition = new.side(side).topics.place(number)
                lost.append(
                    f"{topic} partition {partition}: begins at offset {earliest}, and records "
                    f"since {from_epoch_ms(max(0, needed_ms[side])):%Y-%m-%dT%H:%M:%SZ} are needed"
                )
            starts[side][number] = max(start, min(earliest, end))
    if lost:
        raise RetentionError(
            "Kafka may have deleted records that the new query needs:\n  "
            + "\n  ".join(lost)
            + "\nResults would be missing or repeated silently. Increase retention.ms of the topic "
            "beyond the windows of the join, and repeat the change once Kafka has the records; or "
            "start with empty state: `streamjoin run SPEC --new-query`"
        )
    return _with_a_minimum(starts, cut, known)


def _newest_ms(cut: Cut, side: Side, number: int) -> int | None:
    """Newest event time of a partition up to the cut. None: the document of the event times is
    older than the cut, or contains samples."""
    entry = cut.recorded_event_times.side(side).get(number)
    if entry is None or entry.offset != cut.ends[side][number]:
        return None
    if len(cut.ends[side]) > OBSERVED_PARTITIONS_MAX:
        return None
    return entry.event_time_ms


def _with_a_minimum(
    starts: dict[Side, dict[int, int]], cut: Cut, known: Mapping[Side, KnownOffsets]
) -> Offsets:
    """`starts`, moved back until at least two records are read again."""
    missing = _RECORDS_MIN - sum(
        end - starts[side][number] for side in SIDES for number, end in cut.ends[side].items()
    )
    for side in SIDES:
        for number in starts[side]:
            first = cut.first_offsets[side].get(number, 0)
            room = starts[side][number] - max(known[side].earliest[number], first)
            moved = max(0, min(missing, room))
            starts[side][number] -= moved
            missing -= moved
    if missing > 0:
        raise RetentionError(
            f"Kafka has fewer than {_RECORDS_MIN} of the records that the old query has read, so "
            "its state cannot be built again. Start with empty state: `streamjoin run SPEC "
            "--new-query`"
        )
    return starts
