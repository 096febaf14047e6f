"""Decides what happened to each record of a key. Pure.

A result or a dead letter proves what happened. Without one, the content of the record, the state,
the watermark and the rows of the other side decide.
"""

from collections.abc import Iterator

from job.explain import cause_types as kinds
from job.explain import table_causes
from job.explain.cause_types import Cause, NoMatch
from job.explain.facts import (
    Bad,
    Facts,
    KeyRecord,
    NoMatchPossible,
    NullKey,
    Pair,
)
from job.plan.plan import JoinPlan
from job.spec.durations import milliseconds
from job.spec.sides import OTHER_SIDE, Side

LATE = "late"
NULL_KEY = "null_key"


def causes(facts: Facts) -> Iterator[tuple[KeyRecord, Cause]]:
    for record in facts.records:
        yield record, cause(facts, record)


def cause(facts: Facts, record: KeyRecord) -> Cause:
    if facts.plan.table_side is not None:
        late = _late_or_untraced(facts, record) if _has_late_rows(facts, record) else None
        return table_causes.cause(facts, record, _not_joined(facts, record), late)
    emitted = _emitted(facts, record)
    if emitted is not None:
        return emitted
    if (out := _not_joined(facts, record)) is not None:
        return out
    is_stored, picks = record.row in facts.stored, facts.plan.pick is not None
    matching = [
        (other, pair)
        for other, pair in _pairs(facts, record)
        if pair.matches and not _are_before_change(facts, record, other)
    ]
    if record.row in facts.before_change and not is_stored and not matching:
        return kinds.ReadBeforeChange()
    joined = [
        (other, pair)
        for other, pair in matching
        if _not_joined(facts, other) is None
        and (picks or not any(_is_stored_unmatched(facts, row) for row in (record, other)))
    ]
    if joined and picks:
        return _unpicked(facts, record, joined)
    if joined:
        return _without_result(facts, record, joined)
    return _without_match(facts, record)


def _emitted(facts: Facts, record: KeyRecord) -> Cause | None:
    results = facts.results_of(record)
    if not results:
        return None
    other_side = OTHER_SIDE[record.side]
    with_other = [each for each in results if other_side in each.records]
    if with_other:
        rest = [each for each in results if each is not with_other[0]]
        return kinds.Matched(with_other[0].records[other_side], (with_other[0], *rest))
    if facts.plan.join_type.semi_side == record.side:
        other = next((other for other, pair in _pairs(facts, record) if pair.matches), None)
        return kinds.Matched(None if other is None else other.place, tuple(results))
    if isinstance(record.problem, NullKey | NoMatchPossible):
        return kinds.EmittedUnmatched(results[0], record.problem)
    return kinds.EmittedUnmatched(results[0], _no_match(facts, record))


def _not_joined(facts: Facts, record: KeyRecord) -> Cause | None:
    """Why the row is not joined. None: it is, as far as the facts prove."""
    letter = facts.letters.get(record.row)
    if letter is not None and letter.reason == LATE:
        return kinds.Late(facts.watermarks.get(record.row), letter)
    if letter is not None and letter.reason == NULL_KEY:
        return kinds.Excluded(NullKey(), letter)
    if letter is not None:
        return kinds.Excluded(Bad(letter.reason, letter.message), letter)
    if (before := facts.unread.get(record.row)) is not None:
        return kinds.Unread(before)
    if record.problem is not None:
        return kinds.Excluded(record.problem, None)
    if record.duplicate_of is not None:
        return kinds.Duplicate(record.duplicate_of)
    if not _has_late_rows(facts, record):
        return None
    return kinds.Late(facts.watermarks[record.row]) if _must_be_late(facts, record) else None


def _has_late_rows(facts: Facts, record: KeyRecord) -> bool:
    """Whether a row of the side of a record can be late."""
    table = facts.plan.table_side
    return table is None or (facts.plan.is_as_of and record.side != table)


def _is_stored_unmatched(facts: Facts, record: KeyRecord) -> bool:
    stored = facts.stored.get(record.row)
    return stored is not None and stored.matched is False


def _unpicked(facts: Facts, record: KeyRecord, joined: list[tuple[KeyRecord, Pair]]) -> Cause:
    """`joined`: rows that match it, in a join that picks one of them."""
    other, _ = joined[0]
    if record.side == "right":
        is_decided = any(facts.results_of(left) for left, _ in joined)
        return kinds.NotPicked(other.place, is_decided)
    until_ms = leaves_after_ms(facts.plan, record.side, record.late_time_ms)
    assert until_ms is not None, "the state is bounded"
    if facts.watermark_ms is None or facts.watermark_ms <= until_ms:
        return kinds.WaitsForPick(other.place, until_ms)
    return _without_result(facts, record, joined)


def _without_result(facts: Facts, record: KeyRecord, joined: list[tuple[KeyRecord, Pair]]) -> Cause:
    """`joined`: rows that match it. None of their results is in the output."""
    join_type = facts.plan.join_type
    for other, pair in joined:
        letter = facts.result_letters.get(frozenset((record.row, other.row)))
        if letter is not None:
            return kinds.ResultNotWritten(other.place, letter.reason, letter)
        if pair.failed_field is not None:
            return kinds.ResultNotWritten(
                other.place, f"{pair.failed_field} cannot be evaluated", None
            )
        if join_type.anti_side is not None:
            return kinds.MatchNotEmitted(other.place)
        if join_type.semi_side == other.side and facts.results_of(other):
            return kinds.MatchNotEmitted(other.place)
        if not pair.passes_filter:
            return kinds.ResultFiltered(other.place, pair.filter_is_null, pair.earlier_filter)
    other, _ = joined[0]
    stored = facts.stored.get(record.row)
    is_matched = stored is not None and stored.matched is True
    rows = [record, other]
    # The result is written after both rows.
    if is_matched or not any(facts.output_is_known(row) for row in rows):
        return kinds.ResultNotFound(other.place)
    for row in rows:
        if _may_be_late(facts, row) and not _may_be_late(facts, other if row is record else record):
            if row is record:
                return _late_or_untraced(facts, record)
            return _without_match(facts, record, kinds.OtherNotJoined(other.place, None))
    if facts.output is not None and not any(_may_be_late(facts, row) for row in rows):
        return kinds.ResultNotFound(other.place)
    return kinds.OneOfBothLate(other.place)


def _without_match(facts: Facts, record: KeyRecord, because: NoMatch | None = None) -> Cause:
    because = because or _no_match(facts, record)
    is_outer = record.side in facts.plan.join_type.outer_sides
    stored = facts.stored.get(record.row)
    until_ms = leaves_after_ms(facts.plan, record.side, record.late_time_ms)
    if stored is not None and stored.matched:
        if isinstance(because, kinds.KeptBack):
            return kinds.MatchKeptBack(because)
        join_type = facts.plan.join_type
        if record.side == join_type.anti_side or record.side not in join_type.shown_sides:
            return kinds.MatchNotEmitted(None)
        return kinds.ResultNotFound(None, has_matched=True)
    if stored is not None:
        return kinds.Waiting(stored.leaves_after_ms, is_outer, because)
    has_expired = (
        until_ms is not None and facts.watermark_ms is not None and facts.watermark_ms > until_ms
    )
    if not has_expired and not facts.stored_is_known.get(record.side, True):
        return kinds.Waiting(until_ms, is_outer, because)
    if not has_expired:
        return _late_or_untraced(facts, record)
    assert until_ms is not None
    is_known = facts.output_is_known(record)
    if not is_outer:
        is_shown = record.side in facts.plan.join_type.shown_sides
        return (
            kinds.Expired(until_ms, because)
            if is_known or not is_shown
            else kinds.ExpiredWithoutTrace(until_ms)
        )
    letter = facts.result_letters.get(frozenset((record.row,)))
    if letter is not None:
        return kinds.ResultNotWritten(None, letter.reason, letter)
    if not record.passes_alone:
        filtered = kinds.ResultFiltered(
            None, record.alone_filter_is_null, record.alone_earlier_filter
        )
        return filtered if is_known else kinds.ExpiredWithoutTrace(until_ms)
    if not is_known or not _may_be_late(facts, record):
        return kinds.ResultNotFound(None)
    return _late_or_untraced(facts, record)


def _late_or_untraced(facts: Facts, record: KeyRecord) -> kinds.Late | kinds.Untraced:
    """Of a row that is neither in state nor in the output."""
    bounds = facts.watermarks.get(record.row)
    return (
        kinds.Late(bounds)
        if bounds is not None and _may_be_late(facts, record)
        else kinds.Untraced()
    )


def leaves_after_ms(plan: JoinPlan, side: Side, late_time_ms: int | None) -> int | None:
    """As StateRow.leaves_after, for a row that may have left the state. None: never."""
    retention = plan.side(side).retention
    if late_time_ms is None or retention is None:
        return None
    return late_time_ms if plan.window is not None else late_time_ms + milliseconds(retention)


def _no_match(facts: Facts, record: KeyRecord) -> NoMatch:
    """Why the row has no match. A row that would match decides, then the nearest one."""
    pairs = list(_pairs(facts, record))
    for other, pair in pairs:
        if pair.matches:
            return _would_match(facts, record, other)
    for other, pair in pairs:
        if pair.is_in_window:
            return kinds.ConditionFalse(other.place)
    compared = {other.row for other, _ in pairs}
    others = [other for other in facts.others(record) if other.row not in compared]
    for other in others:
        if other.problem is None and isinstance(_not_joined(facts, other), kinds.Unread):
            return kinds.OtherUnread(other.place)
    if pairs:
        other, pair = min(pairs, key=lambda each: abs(each[1].distance_ms))
        return kinds.OutsideWindow(other.place, pair.distance_ms)
    for other in others:
        out = _not_joined(facts, other)
        if isinstance(out, kinds.Excluded | kinds.Late | kinds.Duplicate):
            return kinds.OtherNotJoined(other.place, out)
    return kinds.NotCompared(others[0].place) if others else kinds.NoRow(OTHER_SIDE[record.side])


def _would_match(facts: Facts, record: KeyRecord, other: KeyRecord) -> NoMatch:
    """Why a row that matches by its content is no match."""
    if _are_before_change(facts, record, other):
        return kinds.KeptBack(other.place)
    out = _not_joined(facts, other)
    if isinstance(out, kinds.Unread):
        return kinds.OtherUnread(other.place)
    if isinstance(out, kinds.Excluded | kinds.Late | kinds.Duplicate):
        return kinds.OtherNotJoined(other.place, out)
    if _may_be_late(facts, other):
        return kinds.OtherNotJoined(other.place, None)
    return kinds.NotCompared(other.place)


def _pairs(facts: Facts, record: KeyRecord) -> Iterator[tuple[KeyRecord, Pair]]:
    for other in facts.others(record):
        if (pair := facts.pair(record, other)) is not None:
            yield other, pair


def _are_before_change(facts: Facts, record: KeyRecord, other: KeyRecord) -> bool:
    return {record.row, other.row} <= facts.before_change


def _may_be_late(facts: Facts, record: KeyRecord) -> bool:
    bounds, time_ms = facts.watermarks.get(record.row), record.late_time_ms
    if _was_joined(facts, record):
        return False
    return bounds is None or time_ms is None or time_ms <= bounds.most_ms


def _must_be_late(facts: Facts, record: KeyRecord) -> bool:
    bounds, time_ms = facts.watermarks.get(record.row), record.late_time_ms
    if _was_joined(facts, record) or bounds is None or time_ms is None:
        return False
    return time_ms <= bounds.least_ms


def _was_joined(facts: Facts, record: KeyRecord) -> bool:
    """Whether the state or a result proves it."""
    return record.row in facts.stored or bool(facts.results_of(record))
