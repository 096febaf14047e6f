"""Sentences about a query that does not run, and about what holds its watermark back. Pure."""

from collections.abc import Iterator
from datetime import timedelta

from job.errors import RetentionError
from job.instants import utc_text
from job.protocol.status import JobStatus, QueryState, utc_time
from job.spec.durations import rounded_text
from job.spec.engine import Engine
from job.spec.sides import OTHER_SIDE, SIDES, Side

_PARTITIONS_MAX = 4
"""Named partitions with lost records."""


def not_running(status: JobStatus) -> Iterator[str]:
    match status.state:
        case QueryState.RUNNING:
            return
        case QueryState.PAUSED | QueryState.STOPPED:
            rests = f"The query is {status.state} and emits no rows until it is resumed."
            yield "\n".join([rests, *_lost_records(status)])
        case _:
            # A message may end with a command.
            reason = f": {status.last_failure.message}" if status.last_failure else "."
            ended = f"The query is {status.state} and emits no rows{reason}"
            yield "\n".join([ended, *_lost_records(status)])


def _lost_records(status: JobStatus) -> Iterator[str]:
    """What Kafka has deleted before the query has read it, and the ways to continue."""
    failure, brokers = status.last_failure, status.brokers
    is_named = (
        status.state is QueryState.FAILED
        and failure is not None
        and failure.code == RetentionError.code
    )
    if is_named or brokers is None or brokers.error is not None:
        return
    lost = [
        (f"{side} partition {status.partition_label(side, number)}", -headroom)
        for side in SIDES
        for number, headroom in sorted((brokers.side(side).retention_headroom or {}).items())
        if headroom < 0
    ]
    if lost:
        named = ", ".join(f"{count:,} of {place}" for place, count in lost[:_PARTITIONS_MAX])
        others = len(lost) - _PARTITIONS_MAX
        more = f" and of {others:,} other partition{'s' * (others > 1)}" if others > 0 else ""
        yield (
            f"Kafka has deleted unread records: {named}{more}. The query cannot continue at its "
            "offsets: `streamjoin stop SPEC`, then `streamjoin checkpoint skip-gap SPEC` (keeps "
            "the rows in state) or `streamjoin reset SPEC` (starts with empty state), then "
            "`streamjoin resume SPEC`."
        )


def held_back(status: JobStatus) -> Iterator[str]:
    idle = [side for side in SIDES if status.idle.get(side)]
    if idle and waits_for_first_batch(status):
        yield (
            "The query has run no batch since it started. Its first batch runs when a record of "
            "either side arrives. Until then the watermark does not advance, also with "
            "idle_after, and no unmatched rows are emitted."
        )
        return
    if idle:
        are_idle = "sides are idle: their" if idle[1:] else "side is idle: its"
        yield (
            f"The {' and '.join(idle)} {are_idle} event time follows the clock, minus "
            "idle_after and watermark_delay."
        )
        return
    without = [side for side in SIDES if status.side_watermark(side) is None]
    if without:
        yield _no_event_time(status, without)
    elif (slower := status.watermark_held_back_by) is not None:
        yield _slower_side(status, slower)


def waits_for_first_batch(status: JobStatus) -> bool:
    """Whether no batch has ended since the query started. Spark runs the first one only with
    records, also if a side follows the clock; the real-time engine needs none."""
    last = status.last_batch
    has_run = last is not None and last.run_id == status.run_id
    return not has_run and status.engine is Engine.MICRO_BATCH


def _no_event_time(status: JobStatus, sides: list[Side]) -> str:
    partitions = {side: status.slowest_partition(side) for side in sides}
    unread = [
        f"{side} partition {status.partition_label(side, number)}"
        for side, number in partitions.items()
        if number is not None
    ]
    if unread:
        return (
            f"No readable record of {' and '.join(unread)} was read yet, and there is a backlog. "
            "Until then the watermark does not advance, and no unmatched rows are emitted."
        )
    return (
        f"The {' and '.join(sides)} side received no readable record since the job started. "
        "Without an event time of both sides the watermark does not advance, and no unmatched "
        "rows are emitted."
    )


def _slower_side(status: JobStatus, slower: Side) -> str:
    other = OTHER_SIDE[slower]
    watermark, ahead = status.side_watermark(slower), status.side_watermark(other)
    assert watermark is not None
    assert ahead is not None
    if (partition := status.watermark_held_back_by_partition) is not None:
        return (
            f"Partition {partition} of the {slower} side holds the watermark back, at "
            f"{utc_text(watermark)}: it has unread records. The watermark advances as they are "
            "read."
        )
    longer_ms = status.watermark_delay_ms[slower] - status.watermark_delay_ms[other]
    by_delay = min(timedelta(milliseconds=longer_ms), ahead - watermark)
    begin = (
        f"The {slower} side holds the watermark back, at {utc_text(watermark)}: the {other} side "
        f"is {rounded_text(ahead - watermark)} ahead"
    )
    advances = f"The watermark advances when newer {slower} records arrive"
    if 2 * by_delay >= ahead - watermark:
        delay = f"{rounded_text(by_delay)} of it because {slower}.watermark_delay is longer"
        return f"{begin}, {delay}. {advances}."
    without = "" if slower in status.idle else f"; without them it needs `{slower}.idle_after`"
    return f"{begin}. {_read(status, slower)}. {advances} that can be read{without}."


def _read(status: JobStatus, side: Side) -> str:
    """What was read of a side without unread records."""
    totals, times = status.side_totals(side), status.event_times.get(side)
    newest_ms = totals.event_time_max_ms if times is None else times.event_time_ms
    newest = utc_time(newest_ms)
    assert newest is not None
    bad = sum(totals.bad_records.values())
    text = f"All of its records are read, and the newest event time is {utc_text(newest)}"
    if not bad:
        return text
    reasons = ", ".join(f"{n:,} {reason}" for reason, n in totals.bad_records.items() if n)
    return f"{text}; {bad:,} of its {totals.records:,} records are bad ({reasons})"
