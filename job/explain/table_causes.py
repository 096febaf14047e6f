"""Decides what happened to a record in a join with a table. Pure.

Which row of the table a row of the stream got depends on when it was read: only its result shows
it.
"""

from job.explain import cause_types as kinds
from job.explain.cause_types import Cause, NoMatch
from job.explain.facts import Facts, KeyRecord, NoMatchPossible, NullKey
from job.spec.durations import milliseconds
from job.spec.sides import OTHER_SIDE


def cause(
    facts: Facts,
    record: KeyRecord,
    not_joined: Cause | None,
    late: kinds.Late | kinds.Untraced | None,
) -> Cause:
    """`not_joined`: why the record does not enter the join. None: it does. `late`: what may be the
    reason if a row has no result. None: no row is late."""
    if record.side == facts.plan.table_side:
        return not_joined or _in_table(facts, record)
    results = facts.results_of(record)
    if not results:
        return not_joined or _waits(facts, record) or _without_result(facts, record, late)
    table = OTHER_SIDE[record.side]
    if table in results[0].records:
        return kinds.Matched(results[0].records[table], tuple(results))
    if facts.plan.join_type.semi_side == record.side:
        return kinds.Matched(None, tuple(results))
    if isinstance(record.problem, NullKey | NoMatchPossible):
        return kinds.EmittedUnmatched(results[0], record.problem)
    return kinds.UnmatchedAtOnce(results[0], _no_match(facts, record))


def _waits(facts: Facts, record: KeyRecord) -> Cause | None:
    """None: the row does not wait for its version, or has found one."""
    retention, time_ms = facts.plan.side(record.side).retention, record.late_time_ms
    if retention is None or time_ms is None or (not facts.plan.is_final and _finds(facts, record)):
        return None
    until_ms = time_ms + milliseconds(retention)
    has_passed = facts.watermark_ms is not None and facts.watermark_ms > until_ms
    return None if has_passed else kinds.WaitsForVersion(until_ms)


def _finds(facts: Facts, record: KeyRecord) -> bool:
    """Whether a record that was read gives the row of a stream a row of the table."""
    versions = _versions(facts)
    if not facts.plan.is_as_of:
        return bool(versions) and not versions[-1].deletes_key
    found = _no_version(facts, record, sorted(versions, key=_by_time)) if versions else None
    return isinstance(found, kinds.ConditionFalse) or (
        isinstance(found, kinds.NoVersion) and found.reason == "unread"
    )


def _in_table(facts: Facts, record: KeyRecord) -> Cause:
    if record.deletes_key:
        return kinds.DeletedKey()
    order = _by_time if facts.plan.is_as_of else _order
    following = sorted(_versions(facts), key=order)
    next_one = next((each for each in following if order(each) > order(record)), None)
    results = len(facts.results_of(record))
    if next_one is not None:
        return kinds.InTable(next_one.place, is_deleted=next_one.deletes_key, results=results)
    # The next record may not be in what was read of the topic.
    is_gone = facts.stored_is_known.get(record.side, False) and record.row not in facts.stored
    return kinds.InTable(None, is_deleted=False, results=results, is_gone=is_gone)


def _versions(facts: Facts) -> list[KeyRecord]:
    """The records of the table with the key that were read, in their order."""
    table = facts.plan.table_side
    found = [each for each in facts.records if each.side == table and each.problem is None]
    return sorted((each for each in found if each.row not in facts.unread), key=_order)


def _by_time(record: KeyRecord) -> tuple[int, int, int]:
    return record.event_time_ms or 0, record.partition, record.place.offset


def _order(record: KeyRecord) -> tuple[int, int, int]:
    return record.written_ms or 0, record.partition, record.place.offset


def _without_result(
    facts: Facts, record: KeyRecord, late: kinds.Late | kinds.Untraced | None
) -> Cause:
    """No result of the row was found."""
    plan = facts.plan
    letter = facts.result_letters.get(frozenset((record.row,)))
    if letter is not None:
        return kinds.ResultNotWritten(None, letter.reason, letter)
    for other in reversed(facts.others(record)):
        letter = facts.result_letters.get(frozenset((record.row, other.row)))
        if letter is not None:
            return kinds.ResultNotWritten(other.place, letter.reason, letter)
        pair = facts.pair(record, other)
        if pair is not None and pair.matches:
            if plan.join_type.anti_side is not None:
                return kinds.MatchNotEmitted(other.place)
            if not pair.passes_filter:
                return kinds.ResultFiltered(other.place, pair.filter_is_null, pair.earlier_filter)
    if record.side in plan.join_type.outer_sides:
        if not record.passes_alone:
            return kinds.ResultFiltered(
                None, record.alone_filter_is_null, record.alone_earlier_filter
            )
        return late or kinds.ResultNotFound(None)
    if not facts.output_is_known(record):
        return kinds.ResultNotFound(None)
    return kinds.UnmatchedAtOnce(None, _no_match(facts, record))


def _no_match(facts: Facts, record: KeyRecord) -> NoMatch:
    table = OTHER_SIDE[record.side]
    versions = _versions(facts)
    if not versions:
        return kinds.NoRow(table)
    if facts.plan.is_as_of:
        return _no_version(facts, record, sorted(versions, key=_by_time))
    newest = versions[-1]
    pair = facts.pair(record, newest)
    if pair is not None and not pair.meets_condition and not newest.deletes_key:
        return kinds.ConditionFalse(newest.place)
    times = (newest.written_ms, record.written_ms)
    was_before = None not in times and (newest.written_ms or 0) < (record.written_ms or 0)
    return kinds.NotInTable(newest.place, has_deleted=newest.deletes_key and was_before)


def _no_version(facts: Facts, record: KeyRecord, versions: list[KeyRecord]) -> NoMatch:
    """`versions`: by event time."""
    time_ms, table = record.event_time_ms or 0, facts.plan.table
    assert table is not None, "the join is as-of"
    before = [each for each in versions if (each.event_time_ms or 0) <= time_ms]
    if not before and not table.takes_first:
        return kinds.NoVersion(versions[0].place, "later")
    version = before[-1] if before else versions[0]
    if version.deletes_key:
        return kinds.NoVersion(version.place, "deleted")
    retention = table.retention
    age_ms = time_ms - (version.event_time_ms or 0)
    if retention is not None and age_ms > milliseconds(retention):
        return kinds.NoVersion(version.place, "ended")
    pair = facts.pair(record, version)
    if pair is not None and not pair.meets_condition:
        return kinds.ConditionFalse(version.place)
    return kinds.NoVersion(version.place, "unread")
