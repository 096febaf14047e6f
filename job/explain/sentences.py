"""The sentences of `explain`, from causes. Pure.

A running join and `streamjoin simulate --explain` use the same sentences.
"""

from collections.abc import Iterator, Sequence
from datetime import timedelta

from job.explain import cause_types as kinds
from job.explain import single_match
from job.explain.cause_types import Cause, NoMatch
from job.explain.facts import (
    Bad,
    Facts,
    Filtered,
    KeyRecord,
    Letter,
    NoMatchPossible,
    NullKey,
    Result,
)
from job.instants import from_epoch_ms, time_text
from job.plan.result_id import Place
from job.spec.durations import duration_text, rounded_text
from job.spec.sides import OTHER_SIDE, Side


def sentence(facts: Facts, record: KeyRecord, cause: Cause) -> str:
    """One sentence with what happened to the record, and why."""
    return f"{subject(facts, record)} {_what(facts, record, cause)}."


def subject(facts: Facts, record: KeyRecord) -> str:
    time = record.event_time_ms
    has_time = record.side != facts.plan.table_side or facts.plan.is_as_of
    at = f" (event time {time_text(time)})" if has_time and time is not None else ""
    return f"{_place(record.side, record.place)}{at}"


def unreadable(side: Side, bad: Sequence[tuple[Place, Bad]]) -> Iterator[str]:
    """About the records whose key cannot be read, if there are some."""
    if not bad:
        return
    (place, first), count = bad[0], len(bad)
    records = "record has a key" if count == 1 else "records have keys"
    message = f": {first.message}" if first.message else ""
    yield (
        f"{count:,} {side} {records} that cannot be read, and may be of this key: the first is "
        f"{place} ({first.reason}{message})"
    )


def _what(facts: Facts, record: KeyRecord, cause: Cause) -> str:
    plan, other = facts.plan, OTHER_SIDE[record.side]
    match cause:
        case kinds.Unread():
            if not cause.before:
                return "is not read yet: it is the next record of its partition"
            before = f"{cause.before:,} records before it in its partition are unread"
            if cause.before == 1:
                before = "the record before it in its partition is unread"
            return f"is not read yet: {before}"
        case kinds.Excluded():
            return _excluded(facts, record, cause)
        case kinds.Late():
            return _late(facts, record, cause)
        case kinds.Untraced():
            where = "the output" if facts.output is None else facts.output.topic
            history = (
                ""
                if record.row in facts.watermarks
                else (f", and {_no_history(facts)}, which would show whether it was late")
            )
            return f"is neither in state nor in what was read of {where}{history}{_reset(facts)}"
        case kinds.ReadBeforeChange():
            where = "the output" if facts.output is None else facts.output.topic
            return (
                "was read by the query before the last change, by whose spec it was emitted or "
                f"not, and has no result in what was read of {where}; the present query joins it "
                "only with later records"
            )
        case kinds.Duplicate():
            deduplication = plan.side(record.side).deduplication
            return (
                f"is a duplicate of {_place(record.side, cause.of)} and was dropped "
                f"({record.side}.deduplicate: {deduplication})"
            )
        case kinds.Matched():
            return _matched(cause, other)
        case kinds.MatchKeptBack(because):
            return f"has matched a {other} row; {_no_match(facts, record, because)}"
        case kinds.MatchNotEmitted(with_row):
            matched = "has matched" if with_row is None else f"matched {_place(other, with_row)}"
            return f"{matched}, and join type {plan.join_type} emits no result for it"
        case kinds.ResultFiltered(with_row=None):
            return f"expired without a match, and {_output_filter(facts, cause)} its result"
        case kinds.ResultFiltered(with_row=with_row):
            assert with_row is not None
            return (
                f"matched {_place(other, with_row)}, and {_output_filter(facts, cause)} the result"
            )
        case kinds.ResultNotWritten():
            return _not_written(cause, other)
        case kinds.EmittedUnmatched(because=NullKey()):
            return f"has a null in its key and was emitted as unmatched: {_result(cause.result)}"
        case kinds.EmittedUnmatched(because=NoMatchPossible(condition)):
            return (
                f"was emitted as unmatched: {_result(cause.result)}; join.condition ({condition}) "
                "is not true"
            )
        case kinds.EmittedUnmatched(because=because):
            assert not isinstance(because, NullKey | NoMatchPossible)
            return (
                f"expired without a match and was emitted as unmatched: {_result(cause.result)}; "
                f"{_no_match(facts, record, because)}"
            )
        case kinds.Waiting():
            return _waiting(facts, record, cause)
        case kinds.Expired():
            return (
                f"expired without a match once the watermark had passed {time_text(cause.at_ms)}, "
                f"and join type {plan.join_type} emits no unmatched {record.side} rows; "
                f"{_no_match(facts, record, cause.because)}"
            )
        case kinds.ExpiredWithoutTrace(at_ms):
            return (
                f"expired once the watermark had passed {time_text(at_ms)}, with or without a "
                f"match: no result of it is in what was read of {_missing(facts, record)}"
            )
        case kinds.ResultNotFound():
            return _not_found(facts, record, cause)
        case kinds.WaitsForPick(until_ms=until_ms) | kinds.WaitsForVersion(until_ms=until_ms):
            until = f"{time_text(until_ms)}{_ahead(facts, until_ms)}"
            return single_match.waits(cause, plan, until)
        case kinds.NotPicked():
            return single_match.not_picked(cause, plan)
        case kinds.UnmatchedAtOnce(result=result, because=because):
            written = None if result is None else _result(result)
            return single_match.at_once(plan, written, _no_match(facts, record, because))
        case kinds.InTable() | kinds.DeletedKey():
            read = None if facts.output is None else _missing(facts, record)
            return single_match.of_table(cause, record.side, read, is_as_of=plan.is_as_of)
        case kinds.OneOfBothLate():
            return (
                f"matches {_place(other, cause.with_row)} and has no result: one of both rows was "
                f"late, and {_no_history(facts)}, which would show which one"
            )


def _excluded(facts: Facts, record: KeyRecord, cause: kinds.Excluded) -> str:
    letters = facts.plan.dead_letter
    match cause.problem:
        case Bad(reason, message):
            detail = f": {message}" if message else ""
            if facts.plan.fails_on_bad_records:
                outcome = "the query fails at it (on_bad_record: fail)"
            else:
                outcome = _dropped(facts, cause.letter, takes_letter=letters is not None)
            return f"is a bad record ({reason}){detail}; {outcome}"
        case Filtered():
            return _filtered(cause.problem)
        case NullKey():
            takes = letters is not None and letters.takes_null_keys
            if cause.letter is None and not takes and _is_emitted_at_once(facts, record):
                return "has a null in its key, matches no row, and is emitted as unmatched at once"
            return f"has a null in its key; {_dropped(facts, cause.letter, takes_letter=takes)}"
        case NoMatchPossible(condition):
            is_outer = record.side in facts.plan.join_type.outer_sides
            outcome = "is emitted as unmatched at once" if is_outer else "was dropped"
            return (
                f"matches no row, because join.condition ({condition}) is not true, and {outcome}"
            )


def _is_emitted_at_once(facts: Facts, record: KeyRecord) -> bool:
    return facts.plan.null_keys_pass and record.side in facts.plan.join_type.outer_sides


def _dropped(facts: Facts, letter: Letter | None, *, takes_letter: bool) -> str:
    """`takes_letter`: whether the spec makes such a record a dead letter."""
    if letter is not None:
        return f"its dead letter is {letter.at}"
    if facts.plan.dead_letter is None or not takes_letter:
        return "it was dropped"
    if facts.output is None:
        return f"it becomes a dead letter in {facts.plan.dead_letter.topic}"
    return f"its dead letter is not in what was read of {facts.plan.dead_letter.topic}"


def _late(facts: Facts, record: KeyRecord, cause: kinds.Late) -> str:
    letters = facts.plan.dead_letter
    takes = letters is not None and letters.takes_late_rows
    outcome = _dropped(facts, cause.letter, takes_letter=takes)
    time = record.late_time_ms
    if cause.watermark is None or time is None:
        message = "" if cause.letter is None else f": {cause.letter.message}"
        return f"was late{message}; {outcome}"
    least, most = cause.watermark.least_ms, cause.watermark.most_ms
    if least == most:
        where = f"{_span(least - time)} behind" if least > time else "at"
        return (
            f"was late: it is {where} the watermark, which had reached {time_text(least)}; "
            f"{outcome}"
        )
    by = f"at least {_span(least - time)}" if least >= time else f"at most {_span(most - time)}"
    return (
        f"was late by {by}: the watermark was between {time_text(least)} and {time_text(most)} "
        f"when it was read; {outcome}"
    )


def _matched(cause: kinds.Matched, other: Side) -> str:
    with_row = "a row" if cause.with_row is None else _place(other, cause.with_row)
    more = len(cause.results) - 1
    rest = f", and {more:,} more result{'s' if more > 1 else ''}" if more else ""
    return f"matched {with_row}: {_result(cause.results[0])}{rest}"


def _result(result: Result) -> str:
    written = "" if result.written_ms is None else f", written {time_text(result.written_ms)}"
    return f"the result is {result.at}{written}"


def _not_written(cause: kinds.ResultNotWritten, other: Side) -> str:
    with_row = cause.with_row
    begin = "expired without a match" if with_row is None else f"matched {_place(other, with_row)}"
    letter = cause.letter
    message = f": {letter.message}" if letter is not None and letter.message else ""
    where = "" if letter is None or letter.at is None else f"; its dead letter is {letter.at}"
    return f"{begin}, and the result was not written ({cause.reason}){message}{where}"


def _waiting(facts: Facts, record: KeyRecord, cause: kinds.Waiting) -> str:
    side, other = record.side, OTHER_SIDE[record.side]
    why = _no_match(facts, record, cause.because)
    if cause.until_ms is None:
        return f"waits for a {other} row indefinitely, because nothing limits the state; {why}"
    then = (
        "it is then emitted as unmatched"
        if cause.is_emitted
        else f"it is then dropped, because join type {facts.plan.join_type} emits no unmatched "
        f"{side} rows"
    )
    until = time_text(cause.until_ms)
    return (
        f"waits for a {other} row until the watermark passes {until}{_ahead(facts, cause.until_ms)}"
        f", and {then}; {why}"
    )


def _ahead(facts: Facts, until_ms: int) -> str:
    if facts.watermark_ms is None:
        return " (there is no watermark yet)"
    if until_ms < facts.watermark_ms:
        return " (which it has just done)"
    ahead = f" ({_span(until_ms - facts.watermark_ms)} ahead of it"
    if facts.output is None:
        return f"{ahead}, at the end of the files)"
    if facts.pace is None:
        return f"{ahead}; the watermark history is too short for a time on the clock)"
    clock_ms = facts.pace.clock_ms(until_ms)
    if clock_ms is None:
        return f"{ahead}; the watermark does not advance at present)"
    clock = _clock(clock_ms, facts.pace.now_ms)
    return f"{ahead}: at its present pace at about {clock})"


def _no_match(facts: Facts, record: KeyRecord, because: NoMatch) -> str:
    other = OTHER_SIDE[record.side]
    match because:
        case kinds.NoRow():
            where = "the files" if facts.output is None else "what was read"
            return f"no {other} row with this key is in {where}"
        case kinds.NotCompared():
            return f"it is not known whether {_place(other, because.other)} matches it"
        case kinds.OutsideWindow():
            return _outside(facts, record, because)
        case kinds.ConditionFalse():
            condition = facts.plan.condition
            text = "" if condition is None else f" ({condition.text})"
            return f"join.condition{text} is not true with {_place(other, because.other)}"
        case kinds.KeptBack():
            return (
                f"{_place(other, because.other)} matches it by the spec after the last change, and "
                "both were read before it: their pair is not emitted"
            )
        case kinds.OtherUnread():
            return f"{_place(other, because.other)} is not read yet"
        case kinds.NotInTable() | kinds.NoVersion():
            return single_match.not_in_table(because, _place(other, because.other))
        case kinds.OtherNotJoined():
            return f"{_place(other, because.other)} {_not_joined(because)}"


def _not_joined(because: kinds.OtherNotJoined) -> str:
    match because.cause:
        case kinds.Excluded(problem=Bad()):
            return "with this key is a bad record"
        case kinds.Excluded(problem=Filtered() as problem):
            return f"with this key {_filtered(problem)}"
        case kinds.Excluded(problem=NullKey()):
            return "has a null in its key"
        case kinds.Excluded(problem=NoMatchPossible(condition)):
            return f"matches no row, because join.condition ({condition}) is not true"
        case kinds.Duplicate():
            return "with this key is a duplicate"
        case _:
            return "with this key was late"


def _outside(facts: Facts, record: KeyRecord, because: kinds.OutsideWindow) -> str:
    other = _place(OTHER_SIDE[record.side], because.other)
    if facts.plan.window is not None:
        return f"{other} is in another tumbling window"
    ms = because.distance_ms if record.side == "left" else -because.distance_ms
    exact = duration_text(timedelta(milliseconds=abs(ms)))
    distance = f"{exact} {'after' if ms >= 0 else 'before'} it"
    window = facts.plan.match_window
    if window is None:
        return f"{other} is {distance}, and the event times must be equal"
    before, after = (
        "any time" if bound is None else duration_text(bound)
        for bound in (window.before, window.after)
    )
    return (
        f"{other} is {distance}, outside of the window: a right row matches from {before} before "
        f"to {after} after the left row"
    )


def _not_found(facts: Facts, record: KeyRecord, cause: kinds.ResultNotFound) -> str:
    other = OTHER_SIDE[record.side]
    if facts.plan.table_side is not None:
        read = _missing(facts, record)
        return f"was joined when it was read; no result of it is in what was read of {read}"
    if cause.has_matched:
        what = f"has matched a {other} row"
    elif cause.with_row is None:
        what = "expired without a match"
    else:
        what = f"matched {_place(other, cause.with_row)}"
    return f"{what}; its result is not in what was read of {_missing(facts, record)}"


def _missing(facts: Facts, record: KeyRecord) -> str:
    """The output topic, and why a result may be missing in what was read of it."""
    output = facts.output
    assert output is not None, "a simulation has every result"
    if output.is_compacted:
        why = ": the topic is compacted, and a later result with the same key may have replaced it"
    elif not output.is_complete:
        why = ": the topic was not read to its end"
    elif record.written_ms is None or record.written_ms < output.from_ms:
        why = f": only results since {time_text(output.from_ms)} were read, or still exist"
    else:
        why = ""
    return f"{output.topic}{why}"


def _no_history(facts: Facts) -> str:
    if facts.history_from_ms is None:
        return "the watermark history is empty"
    begin = time_text(facts.history_from_ms)
    return f"the watermark history, from {begin}, does not contain the time at which it was read"


def _reset(facts: Facts) -> str:
    if facts.reset_ms is None:
        return ""
    return (
        f". The query was reset at {time_text(facts.reset_ms)}, which removed all rows in state: a "
        "row that it had read before, and does not read again, is lost"
    )


def _filtered(problem: Filtered) -> str:
    if problem.is_null:
        return f"was dropped, because {problem.field} is null"
    return f"was dropped by {problem.field}"


def _output_filter(facts: Facts, cause: kinds.ResultFiltered) -> str:
    expression = facts.plan.output.filter
    text = "output.filter" if expression is None else f"output.filter ({expression.text})"
    text = text if cause.earlier is None else f"{cause.earlier},"
    return f"{text} is null, so it dropped" if cause.is_null else f"{text} dropped"


def _place(side: Side, place: Place) -> str:
    return f"{side} {place}"


def _clock(at_ms: int, now_ms: int) -> str:
    """To the second; with the date if it is another day."""
    at, now = from_epoch_ms(at_ms), from_epoch_ms(now_ms)
    return f"{at:%H:%M:%S} UTC" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S} UTC"


def _span(milliseconds: int) -> str:
    return rounded_text(timedelta(milliseconds=milliseconds))
