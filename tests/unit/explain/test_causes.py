"""Causes and sentences from facts of a running join, which no simulation has."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from job.event_time.history import Bounds, Pace
from job.explain.causes import cause
from job.explain.facts import (
    Bad,
    Facts,
    Filtered,
    KeyRecord,
    Letter,
    OutputRead,
    Pair,
    Result,
    RowId,
    StoredRow,
)
from job.explain.sentences import sentence
from job.instants import to_epoch_ms
from job.plan.plan import DeadLetterPlan, JoinPlan
from job.plan.result_id import Place
from job.spec.join_conditions import JoinType
from job.spec.sides import Side
from tests.unit.service.builders import NOW
from tests.unit.specs import plan

NOW_MS = to_epoch_ms(NOW)
MINUTE_MS, HOUR_MS = 60_000, 3_600_000
LEFT, RIGHT = Place("impressions", 1, 17), Place("clicks", 0, 4)
OUTPUT = OutputRead("attributed", NOW_MS - 10 * HOUR_MS, is_complete=True)
L = "left impressions/1/17 (event time 2026-11-20T12:00:00.000Z)"
R = "right clicks/0/4 (event time 2026-11-20T12:00:00.000Z)"
NO_RIGHT = "no right row with this key is in what was read"
MATCHING = Pair(0, is_in_window=True, meets_condition=True, passes_filter=True)
BEFORE, AFTER = NOW_MS - MINUTE_MS, NOW_MS + MINUTE_MS


@cache
def outer() -> JoinPlan:
    return plan(join__type="left_outer")


def of_type(join_type: JoinType) -> JoinPlan:
    return replace(outer(), join_type=join_type)


def record(side: Side = "left", **fields: Any) -> KeyRecord:
    place = LEFT if side == "left" else RIGHT
    made = KeyRecord(side, place, place.partition, NOW_MS, NOW_MS, NOW_MS)
    return replace(made, **fields)


def explained(
    *records: KeyRecord,
    pair: Pair | None = None,
    plan: JoinPlan | None = None,
    watermark_ms: int = NOW_MS,
    watermarks: Mapping[RowId, Bounds] | None = None,
    **facts: Any,
) -> str:
    """The sentence of the first record; a watermark history shows that no row was late."""
    records = records or (record(),)
    not_late = {each.row: Bounds(NOW_MS - HOUR_MS, BEFORE) for each in records}
    made = Facts(
        plan=plan or outer(),
        records=records,
        watermark_ms=watermark_ms,
        **{
            "pairs": {} if pair is None else {(LEFT, RIGHT): pair},
            "output": OUTPUT,
            "watermarks": not_late if watermarks is None else watermarks,
            **facts,
        },
    )
    return sentence(made, records[0], cause(made, records[0]))


def result(*sides: Side) -> Result:
    of = {side: LEFT if side == "left" else RIGHT for side in sides}
    return Result(of, "attributed/2/30", NOW_MS)


WRITTEN = "the result is attributed/2/30, written 2026-11-20T12:00:00.000Z"


def test_match_has_the_result_its_time_and_the_number_of_the_others() -> None:
    assert f"{L} matched right clicks/0/4: {WRITTEN}." == explained(
        results=(result("left", "right"),)
    )
    more = (result("left", "right"), result("left", "right"))
    assert explained(results=more).endswith(f": {WRITTEN}, and 1 more result.")


def test_unmatched_row_has_its_result() -> None:
    assert (
        f"{L} expired without a match and was emitted as unmatched: {WRITTEN}; {NO_RIGHT}."
    ) == explained(results=(result("left"),))


def test_result_of_a_semi_join_names_its_match() -> None:
    semi = of_type(JoinType.LEFT_SEMI)
    rows = (record(), record("right"))

    assert f"{L} matched right clicks/0/4: {WRITTEN}." == explained(
        *rows, pair=MATCHING, plan=semi, results=(result("left"),)
    )
    assert (
        f"{R} matched left impressions/1/17, and join type left_semi emits no result for it."
    ) == explained(*reversed(rows), pair=MATCHING, plan=semi, results=(result("left"),))


@pytest.mark.parametrize(
    ("before", "text"),
    [
        (0, "it is the next record of its partition"),
        (1, "the record before it in its partition is unread"),
        (1_200, "1,200 records before it in its partition are unread"),
    ],
)
def test_unread_record_has_the_records_before_it(before: int, text: str) -> None:
    assert f"{L} is not read yet: {text}." == explained(unread={("left", LEFT): before})


def test_row_whose_match_is_unread_names_it() -> None:
    rows = (record(), record("right"))

    assert explained(*rows, pair=MATCHING, unread={("right", RIGHT): 3}, **waiting()).endswith(
        "; right clicks/0/4 is not read yet."
    )


def waiting(**fields: Any) -> dict[str, Any]:
    return {"stored": {("left", LEFT): StoredRow(NOW_MS + HOUR_MS, matched=False)}, **fields}


@pytest.mark.parametrize(
    ("rate", "clock"),
    [
        (1.0, "1 h ahead of it: at its present pace at about 13:00:00 UTC"),
        (0.05, "1 h ahead of it: at its present pace at about 2026-11-21 08:00:00 UTC"),
        (2.0, "1 h ahead of it: at its present pace at about 12:30:00 UTC"),
        (0.0, "1 h ahead of it; the watermark does not advance at present"),
        (None, "1 h ahead of it; the watermark history is too short for a time on the clock"),
    ],
)
def test_waiting_row_has_the_time_on_the_clock(rate: float | None, clock: str) -> None:
    at_pace = None if rate is None else Pace(NOW_MS, NOW_MS, rate)

    assert (
        f"{L} waits for a right row until the watermark passes 2026-11-20T13:00:00.000Z ({clock}), "
        f"and it is then emitted as unmatched; {NO_RIGHT}."
    ) == explained(**waiting(pace=at_pace))


def test_waiting_row_of_an_inner_join_is_then_dropped() -> None:
    assert (
        "and it is then dropped, because join type inner emits no unmatched left rows"
    ) in explained(plan=of_type(JoinType.INNER), **waiting())


def test_row_of_unbounded_state_waits_indefinitely() -> None:
    indefinitely = {("left", LEFT): StoredRow(None, matched=None)}

    assert (
        f"{L} waits for a right row indefinitely, because nothing limits the state; {NO_RIGHT}."
        == explained(stored=indefinitely)
    )


def test_row_that_the_state_lookup_does_not_contain_waits_if_it_has_not_expired() -> None:
    assert "waits for a right row until" in explained(stored_is_known={"left": False})


def test_bad_record_names_its_dead_letter() -> None:
    bad = Letter("missing_event_time", "field t is missing or null", "dead/0/3")

    assert (
        f"{L} is a bad record (missing_event_time): field t is missing or null; its dead letter is "
        "dead/0/3."
    ) == explained(letters={("left", LEFT): bad})


def test_dead_letter_outside_of_what_was_read_is_named() -> None:
    letters = replace(outer(), dead_letter=DeadLetterPlan("dead", True, True))
    bad = record(problem=Bad("tombstone", "the record has no value"))

    assert explained(bad, plan=letters).endswith(
        "the record has no value; its dead letter is not in what was read of dead."
    )


def test_late_row_has_the_bounds_of_the_watermark() -> None:
    def late(least_ms: int, most_ms: int) -> str:
        return explained(watermarks={("left", LEFT): Bounds(least_ms, most_ms)})

    assert (
        f"{L} was late by at least 1 min: the watermark was between 2026-11-20T12:01:00.000Z and "
        "2026-11-20T12:02:00.000Z when it was read; it was dropped."
    ) == late(AFTER, NOW_MS + 2 * MINUTE_MS)
    assert f"{L} was late by at most 1 min: the watermark was between " in late(BEFORE, AFTER)


def test_row_outside_of_the_history_names_the_missing_fact() -> None:
    missing = "is neither in state nor in what was read of attributed"
    assert (
        f"{L} {missing}, and the watermark history, from 2026-11-20T12:01:00.000Z, does not "
        "contain the time at which it was read, which would show whether it was late."
    ) == explained(watermarks={}, history_from_ms=AFTER)
    assert "the watermark history is empty" in explained(watermarks={})
    assert f"{L} {missing}." == explained()


def test_late_row_with_a_dead_letter_has_its_message() -> None:
    letter = Letter("late", "field t is 12:00, not past the watermark 12:01", "dead/0/3")

    assert (
        f"{L} was late: field t is 12:00, not past the watermark 12:01; its dead letter is "
        "dead/0/3."
    ) == explained(watermarks={}, letters={("left", LEFT): letter})


def test_match_without_a_result_names_the_row_that_was_late() -> None:
    rows = (record(), record("right"))
    only_right = {rows[0].row: Bounds(BEFORE, BEFORE), rows[1].row: Bounds(BEFORE, AFTER)}

    assert explained(*rows, pair=MATCHING, watermarks=only_right, **waiting()).endswith(
        "; right clicks/0/4 with this key was late."
    )
    assert "was late by at most 1 min" in explained(
        *rows[::-1], pair=MATCHING, watermarks=only_right
    )
    assert (
        f"{L} matches right clicks/0/4 and has no result: one of both rows was late, and the "
        "watermark history is empty, which would show which one."
    ) == explained(*rows, pair=MATCHING, watermarks={})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"is_complete": False}, "the topic was not read to its end"),
        (
            {"is_compacted": True},
            "the topic is compacted, and a later result with the same key may have replaced it",
        ),
        (
            {"from_ms": AFTER},
            "only results since 2026-11-20T12:01:00.000Z were read, or still exist",
        ),
    ],
)
def test_result_outside_of_what_was_read_names_the_missing_fact(
    changes: dict[str, Any], why: str
) -> None:
    output = replace(OUTPUT, **changes)

    assert (
        f"{L} matched right clicks/0/4; its result is not in what was read of attributed: {why}."
    ) == explained(record(), record("right"), pair=MATCHING, output=output)
    assert (
        f"{L} expired without a match; its result is not in what was read of attributed: {why}."
    ) == explained(watermark_ms=NOW_MS + 2 * HOUR_MS, output=output)


def test_result_that_is_not_written_names_its_dead_letter() -> None:
    rows = (record(), record("right"))
    letter = Letter("value_too_large", "the result has 2,000,000 bytes", "dead/0/9")

    assert (
        f"{L} matched right clicks/0/4, and the result was not written (value_too_large): the "
        "result has 2,000,000 bytes; its dead letter is dead/0/9."
    ) == explained(
        *rows, pair=MATCHING, result_letters={frozenset(each.row for each in rows): letter}
    )
    assert "expired without a match, and the result was not written (value_too_large)" in explained(
        watermark_ms=NOW_MS + 2 * HOUR_MS, result_letters={frozenset({("left", LEFT)}): letter}
    )
    failed = replace(MATCHING, failed_field="output.columns.cost")
    assert "not written (output.columns.cost cannot be evaluated)" in explained(*rows, pair=failed)


def test_duplicate_names_the_first_record() -> None:
    assert (
        f"{L} is a duplicate of left impressions/1/3 and was dropped (left.deduplicate: None)."
    ) == explained(record(duplicate_of=Place("impressions", 1, 3)))


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"problem": Bad("tombstone", "")}, "with this key is a bad record"),
        ({"problem": Filtered("right.filter (v > 5)")}, "was dropped by right.filter (v > 5)"),
        ({"duplicate_of": Place("clicks", 0, 1)}, "with this key is a duplicate"),
    ],
)
def test_row_that_is_not_joined_is_the_reason_of_the_other_one(
    fields: dict[str, Any], text: str
) -> None:
    rows = (record(), record("right", **fields))

    assert explained(*rows, **waiting()).endswith(f"{text}.")


def test_expired_row_of_an_inner_join_is_dropped() -> None:
    assert (
        f"{L} expired without a match once the watermark had passed 2026-11-20T13:00:00.000Z, and "
        f"join type inner emits no unmatched left rows; {NO_RIGHT}."
    ) == explained(plan=of_type(JoinType.INNER), watermark_ms=NOW_MS + 2 * HOUR_MS)


OTHER_PLACE = Place("clicks", 0, 9)
OUTSIDE = Pair(3 * HOUR_MS, is_in_window=False, meets_condition=True, passes_filter=True)
UNMATCHED = {("left", LEFT): StoredRow(NOW_MS + HOUR_MS, matched=False)}


def test_unmatched_row_names_the_late_row_that_matches_it_before_others() -> None:
    rows = (record(), record("right"), record("right", place=OTHER_PLACE))
    pairs = {(LEFT, OTHER_PLACE): MATCHING, (LEFT, RIGHT): OUTSIDE}
    bounds = {rows[2].row: Bounds(BEFORE, AFTER)}

    assert explained(*rows, pairs=pairs, watermarks=bounds, results=(result("left"),)).endswith(
        "; right clicks/0/9 with this key was late."
    )


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        (OUTSIDE, "right clicks/0/4 is 3 hours after it, outside of the window: a right row"),
        (replace(MATCHING, meets_condition=False), "is not true with right clicks/0/4"),
        (None, "right clicks/0/4 is not read yet"),
    ],
)
def test_unread_row_is_the_cause_only_if_it_may_match(pair: Pair | None, why: str) -> None:
    rows = (record(), record("right"))
    assert why in explained(*rows, pair=pair, unread={("right", RIGHT): 3}, **waiting())


def test_row_that_cannot_be_compared_is_named() -> None:
    assert explained(record(), record("right"), **waiting()).endswith(
        "; it is not known whether right clicks/0/4 matches it."
    )


def test_row_in_state_that_has_matched_does_not_wait() -> None:
    matched = {("left", LEFT): StoredRow(NOW_MS + HOUR_MS, matched=True)}
    not_found = "has matched a right row; its result is not in what was read of attributed"

    assert f"{L} {not_found}." == explained(stored=matched)
    assert f"{L} {not_found}: the topic was not read to its end." == explained(
        stored=matched, output=replace(OUTPUT, is_complete=False)
    )
    assert f"{L} has matched, and join type left_anti emits no result for it." == explained(
        stored=matched, plan=of_type(JoinType.LEFT_ANTI)
    )


def test_row_in_state_was_not_late() -> None:
    late = {("left", LEFT): Bounds(AFTER, AFTER)}
    assert "waits for a right row" in explained(watermarks=late, **waiting())


@pytest.mark.parametrize("join_type", [JoinType.LEFT_OUTER, JoinType.LEFT_ANTI])
def test_row_that_the_state_has_as_unmatched_has_not_matched(join_type: JoinType) -> None:
    rows = (record(), record("right"))
    filtered = replace(MATCHING, passes_filter=False)

    assert explained(
        *rows, pair=filtered, plan=of_type(join_type), stored=UNMATCHED, watermarks={}
    ).endswith("; right clicks/0/4 with this key was late.")
    assert "matched left" not in explained(
        *reversed(rows), pair=filtered, plan=of_type(join_type), stored=UNMATCHED
    )


@pytest.mark.parametrize(
    ("join_type", "fields"),
    [(JoinType.INNER, {}), (JoinType.LEFT_OUTER, {"passes_alone": False})],
)
def test_expired_row_may_have_a_result_that_was_not_read(
    join_type: JoinType, fields: dict[str, Any]
) -> None:
    assert (
        f"{L} expired once the watermark had passed 2026-11-20T13:00:00.000Z, with or without a "
        "match: no result of it is in what was read of attributed: the topic was not read to its "
        "end."
    ) == explained(
        record(**fields),
        plan=of_type(join_type),
        watermark_ms=NOW_MS + 2 * HOUR_MS,
        output=replace(OUTPUT, is_complete=False),
    )
