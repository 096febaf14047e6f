"""One sentence about the results of the query, and if there are few or none, why. Pure.

The first cause of a list that applies is the answer: each one hides those after it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from job.control.watermark_sentences import held_back, not_running, waits_for_first_batch
from job.instants import utc_text
from job.plan.plan import JoinPlan
from job.protocol.status import JobStatus, utc_time
from job.protocol.totals import SideTotals
from job.spec.durations import duration_text, rounded_text
from job.spec.sides import OTHER_SIDE, SIDES, Side

# Seconds that are read as milliseconds give January 1970.
_SECONDS_READ_AS_MS = datetime(1971, 1, 1, tzinfo=UTC)
# Time zones differ from UTC by multiples of this, and by at most 14 hours.
_ZONE_STEP, _ZONE_MAX = timedelta(minutes=15), timedelta(hours=14)
_ZONE_MIN = timedelta(minutes=30)
_ZONE_TOLERANCE = timedelta(seconds=30)
_MOSTLY = 0.5
_FAR_AHEAD = timedelta(minutes=1)
_NO_MATCH = "No row has matched since the job started"


def diagnosis(plan: JoinPlan, status: JobStatus, continued_in: str | None = None) -> str:
    """`continued_in`: checkpoint of the query that continues a stopped one. None: not known."""
    for causes in (
        _continued(status, continued_in),
        not_running(status),
        _no_brokers(status),
        _replay(status),
        _loading(status),
        _no_records(status),
        _unusable(plan, status),
        _filtered_results(status),
        _no_match(plan, status),
        _late(status),
        _waiting(plan, status),
        _never_matched(plan, status),
    ):
        for cause in causes:
            return cause
    return _results(status)


def _continued(status: JobStatus, continued_in: str | None) -> Iterator[str]:
    if continued_in is not None:
        yield (
            f"The query is {status.state}, and another query continues it after a change: that of "
            f"{continued_in}. End this job."
        )


def _no_brokers(status: JobStatus) -> Iterator[str]:
    if status.brokers is not None and (error := status.brokers.error):
        since = status.brokers.answered_at
        answered = "have not answered yet" if since is None else f"last answered {utc_text(since)}"
        yield f"Nothing is read: the brokers {answered}. {error}"


def _replay(status: JobStatus) -> Iterator[str]:
    change = status.change
    if change is not None and change.phase != "over":
        yield (
            f"After the change of the join, {change.records_left:,} of {change.records:,} records "
            "are still to be read again; results that were written before are kept back."
        )


def _loading(status: JobStatus) -> Iterator[str]:
    if status.table is not None and status.table_records_left is not None:
        yield (
            f"The query reads the table on the {status.table} side first: "
            f"{status.table_records_left:,} records are left. It then reads the "
            f"{OTHER_SIDE[status.table]} side."
        )


def _no_records(status: JobStatus) -> Iterator[str]:
    missing = [side for side in SIDES if not status.side_totals(side).records]
    if not missing or status.totals.output_records:
        return
    if status.brokers is None or (status.last_batch is None and _may_have_unread(status)):
        yield "The query reads its first records."
        return
    reasons = [reason for side in missing for reason in _why_no_records(status, side)]
    if reasons:
        effects = ", and ".join(_effects(status, missing))
        yield f"{'; '.join(reasons)}." + f" Until then {effects}." * bool(effects)


def _why_no_records(status: JobStatus, side: Side) -> Iterator[str]:
    assert status.brokers is not None
    offsets = status.brokers.side(side)
    if offsets.latest is None or offsets.earliest is None:
        return
    topic = f"Topic {offsets.topic} of the {side} side"
    if not any(offsets.latest.values()):
        yield f"{topic} is empty: produce records, or correct `{side}.topic`"
    elif offsets.latest == offsets.earliest:
        yield f"{topic} is empty: its records were deleted, by retention or by a command"
    elif not sum((offsets.behind_latest or {}).values()):
        yield (f"{topic} has no new record since the job started at {utc_text(status.started_at)}")


def _effects(status: JobStatus, missing: list[Side]) -> Iterator[str]:
    if not all(_may_have_rows(status, side) for side in missing):
        yield "no row can match"
    without = [side for side in missing if status.side_watermark(side) is None]
    lacks_time = bool(without) and not any(status.idle.values())
    if status.table is None and (lacks_time or waits_for_first_batch(status)):
        yield "the watermark does not advance, so no unmatched row is emitted"


def _may_have_rows(status: JobStatus, side: Side) -> bool:
    """Whether the state may have rows of the side, from before the job started."""
    if status.state_count is not None:
        return status.state_count.side(side).rows > 0
    latest = None if status.brokers is None else status.brokers.side(side).latest
    return latest is None or any(latest.values())


def _unusable(plan: JoinPlan, status: JobStatus) -> Iterator[str]:
    """Sides of which no record, or less than half, can match."""
    if sentences := list(_unusable_sides(plan, status)):
        yield " ".join(sentences)


def _unusable_sides(plan: JoinPlan, status: JobStatus) -> Iterator[str]:
    for side in SIDES:
        totals = status.side_totals(side)
        dropped = _dropped(plan, side, totals)
        share = sum(dropped.values()) / totals.records if totals.records else 0
        if share <= _MOSTLY:
            continue
        how_many = "All" if share == 1 else f"{share:.0%} of the"
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in dropped.items() if n)
        remedy = ""
        if totals.bad_records.get("absurd_event_time", 0) > _MOSTLY * totals.records:
            remedy = " `streamjoin check` shows the times, and the unit that they look like."
        yield f"{how_many} {totals.records:,} {side} records cannot match: {reasons}.{remedy}"


def _dropped(plan: JoinPlan, side: Side, totals: SideTotals) -> dict[str, int]:
    bad = {f"bad ({reason})": count for reason, count in totals.bad_records.items()}
    dropped = bad | {f"dropped by {side}.filter": totals.filtered_records}
    dropped["with a null in their key"] = totals.null_keys
    if plan.side(side).deduplication is not None:
        dropped["duplicates"] = totals.duplicates
    return dropped


def _filtered_results(status: JobStatus) -> Iterator[str]:
    dropped, written = status.totals.filtered_results, status.totals.output_records
    if dropped > _MOSTLY * (dropped + written):
        yield f"output.filter dropped {dropped:,} of {dropped + written:,} results."


def _no_match(plan: JoinPlan, status: JobStatus) -> Iterator[str]:
    """Why no rows have matched, if both sides have rows."""
    if not _has_no_match(plan, status):
        return
    yield from _no_times_of_today(status)
    if _unread(status):  # Unread records may match.
        return
    apart, keys = _apart(plan, status), _keys_in_state(status)
    if keys is not None and (apart is None or not _share_a_sample(status)):
        facts = keys if apart is None else f"{keys}; and {apart}"
        yield (
            f"{_NO_MATCH}: {facts}. `streamjoin explain` and `GET /v1/query/explain` explain why a "
            "key has no match."
        )
    elif apart is not None:
        yield f"{_NO_MATCH}: {apart}."


def _has_no_match(plan: JoinPlan, status: JobStatus) -> bool:
    """Whether both sides have rows and none has matched, by the counters."""
    totals = status.totals
    has_rows = all(status.side_totals(side).event_time_max_ms is not None for side in SIDES)
    can_tell = plan.join_type.anti_side is None and has_rows
    return can_tell and not totals.matched_results and not totals.filtered_results


def _no_times_of_today(status: JobStatus) -> Iterator[str]:
    for side in SIDES:
        newest = utc_time(status.side_totals(side).event_time_max_ms)
        assert newest is not None
        if newest < _SECONDS_READ_AS_MS:
            yield (
                f"{_NO_MATCH}: the newest event time of the {side} side is "
                f"{utc_text(newest)}, which seconds give that are read as milliseconds. Use "
                f"timestamp_seconds(…) as `{side}.event_time`."
            )
    for side in SIDES:
        if (offset := _zone_offset(status, side)) is not None:
            ahead = "ahead of" if offset > timedelta(0) else "behind"
            yield (
                f"{_NO_MATCH}: the event times of the {side} side are "
                f"{duration_text(abs(offset))} {ahead} the timestamps of its records. They look "
                f"like local times: set `{side}.time_zone`."
            )


def _zone_offset(status: JobStatus, side: Side) -> timedelta | None:
    """By how much event times differ from the timestamps of records, if zones can differ so."""
    last = status.last_batch
    if last is None:
        return None
    of = last.left if side == "left" else last.right
    if of.event_time_max_ms is None or of.record_time_max_ms is None:
        return None
    difference = timedelta(milliseconds=of.event_time_max_ms - of.record_time_max_ms)
    offset = round(difference / _ZONE_STEP) * _ZONE_STEP
    is_zone = _ZONE_MIN <= abs(offset) <= _ZONE_MAX
    return offset if is_zone and abs(difference - offset) <= _ZONE_TOLERANCE else None


def _apart(plan: JoinPlan, status: JobStatus) -> str | None:
    """That all rows of one side are later than the join allows. None: it is not known, because
    the rows in state are not counted, or some have left it."""
    count = status.state_count
    newest = {side: utc_time(status.side_totals(side).event_time_max_ms) for side in SIDES}
    left, right = newest["left"], newest["right"]
    assert left is not None
    assert right is not None
    later: Side = "right" if right > left else "left"
    allowed, oldest = _allowed(plan, later), None if count is None else count.side(later).oldest
    if count is None or allowed is None or oldest is None:
        return None
    totals = status.side_totals(later)
    joined = totals.records - sum(_dropped(plan, later, totals).values())
    distance = oldest - min(left, right)
    if count.side(later).rows < joined or distance <= allowed:
        return None
    return (
        f"the oldest row in state of the {later} side is {rounded_text(distance)} after the newest "
        f"event time of the {OTHER_SIDE[later]} side ({utc_text(oldest)} and "
        f"{utc_text(min(left, right))}), and the join allows {duration_text(allowed)}"
    )


def _allowed(plan: JoinPlan, later: Side) -> timedelta | None:
    """How far a row of the side `later` may be after its match. None: any time, or not known."""
    if plan.window is not None:
        return plan.window.size
    if plan.match_window is None:
        return None
    return plan.match_window.after if later == "right" else plan.match_window.before


def _keys_in_state(status: JobStatus) -> str | None:
    """None: no key of a side is known."""
    count = status.state_count
    if count is None or not all(count.side(side).sample_keys for side in SIDES):
        return None
    left, right = (_sample(count.side(side).sample_keys) for side in SIDES)
    if _share_a_sample(status):
        return f"keys in state are {left} on the left and {right} on the right"
    return (
        f"the samples of the keys in state have none in common, {left} on the left and {right} on "
        "the right"
    )


def _share_a_sample(status: JobStatus) -> bool:
    count = status.state_count
    return count is not None and any(
        key in count.right.sample_keys for key in count.left.sample_keys
    )


def _sample(keys: list[list[str | None]]) -> str:
    return ", ".join("/".join(str(part) for part in key) for key in keys)


def _late(status: JobStatus) -> Iterator[str]:
    late = status.totals.late_rows
    read = sum(status.side_totals(side).records for side in SIDES)
    if late > _MOSTLY * read:
        yield (
            f"{late:,} of {read:,} rows were late and dropped: they were behind the watermark. A "
            "longer `watermark_delay` accepts them."
        )


def _waiting(plan: JoinPlan, status: JobStatus) -> Iterator[str]:
    """Unmatched rows wait for a watermark that a side without new records holds back."""
    waits = plan.join_type.outer_sides and plan.table_side is None
    if not (waits or plan.stream_waits) or status.totals.output_records:
        return
    yield from held_back(status)


def _never_matched(plan: JoinPlan, status: JobStatus) -> Iterator[str]:
    """No row has matched, and no rows in state show why."""
    is_too_early = status.watermark is None or _unread(status) or status.brokers is None
    if is_too_early or not _has_no_match(plan, status):
        return
    unmatched = status.totals.unmatched_results
    if plan.join_type.outer_sides and not unmatched:
        return
    if plan.table_side is not None:
        yield (
            f"{_NO_MATCH}: the keys of the {plan.streams[0]} side have no row in the table, or the "
            "condition is not met. `streamjoin check` compares the keys of both topics."
        )
        return
    results = f": all {unmatched:,} results are of unmatched rows" if unmatched > 1 else ""
    if unmatched == 1:
        results = ": the only result is of an unmatched row"
    differ = "keys" if _bounds_no_time(plan) else "keys or the event times"
    yield (
        f"{_NO_MATCH}{results}. All records are read, so the {differ} of both sides may differ: "
        "`streamjoin check` compares the keys of both topics, and `streamjoin explain` explains "
        "why a key has no match."
    )


def _bounds_no_time(plan: JoinPlan) -> bool:
    window = plan.match_window
    return plan.window is None and (
        window is None or (window.before is None and window.after is None)
    )


def _unread(status: JobStatus) -> int:
    brokers = status.brokers
    if brokers is None:
        return 0
    return sum(sum((brokers.side(side).behind_latest or {}).values()) for side in SIDES)


def _may_have_unread(status: JobStatus) -> bool:
    """Whether records are unread, or may be: the offsets of a side are not known yet."""
    assert status.brokers is not None
    sides = [status.brokers.side(side) for side in SIDES]
    return bool(_unread(status)) or any(
        side.behind_latest is None and side.latest is not None and side.latest != side.earliest
        for side in sides
    )


def _results(status: JobStatus) -> str:
    totals = status.totals
    unmatched = f", {totals.unmatched_results:,} of them unmatched" * (totals.unmatched_results > 0)
    results = "result was" if totals.output_records == 1 else "results were"
    text = f"{totals.output_records:,} {results} written since the job started{unmatched}"
    if unread := _unread(status):
        return f"{text}; {unread:,} unread record{'s' * (unread != 1)}."
    text = f"{text}." if status.brokers is None else f"{text}; all records are read."
    return " ".join([text, *_standing(status)])


def _standing(status: JobStatus) -> Iterator[str]:
    """What holds the watermark back, if one side is far ahead of the other."""
    slower = status.watermark_held_back_by
    if slower is None:
        return
    watermark = status.side_watermark(slower)
    ahead = status.side_watermark(OTHER_SIDE[slower])
    if watermark is None or ahead is None or ahead - watermark >= _FAR_AHEAD:
        yield from held_back(status)
