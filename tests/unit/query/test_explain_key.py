"""Why a row has not come out: each sentence has its case, in the words people read."""

from datetime import timedelta
from typing import Any

import pytest

from job.protocol.answers import StateAnswer, StateRow
from job.protocol.progress import JobStatus, QueryState
from job.protocol.reports import BrokerReport, SideOffsets
from job.query.explain_key import why
from tests.unit.service.builders import (
    NO_BROKER,
    NOW,
    batch,
    event_times,
    side,
    status,
    status_after,
)
from tests.unit.specs import plan

NOW_MS = round(NOW.timestamp() * 1000)
# The watermark is 12 s behind on both sides: the delays are 10 s and 11.5 s.
EVEN = batch(
    late_records=0,
    watermark_ms=NOW_MS - 12_000,
    left=side(bad_records={}, event_time_max_ms=NOW_MS - 2_000),
    right=side(bad_records={}, event_time_max_ms=NOW_MS - 500),
)
CALM = status_after(EVEN, brokers=None)

NOTHING_HELD = (
    "No row of this key is held on either side: it has not been read yet, or it could not be read, "
    "came late, failed a filter, or its time is over and what there was to say of it has come out."
)
WAITS = (
    "The left row impressions/1/17, event time 2026-11-20T12:00:00.000Z, is held. It waits for a "
    "right row until the watermark has passed 2026-11-20T12:01:00.000Z, 72.0 s ahead of where it "
    "is; "
)


def row(topic: str = "impressions", **fields: Any) -> StateRow:
    return StateRow(
        **{
            "row": {},
            "event_time": NOW,
            "topic": topic,
            "partition": 1,
            "offset": 17,
            "matched": None,
            "leaves_after": NOW + timedelta(minutes=1),
            **fields,
        }
    )


def told(
    given: JobStatus = CALM,
    *,
    left: list[StateRow] | None = None,
    right: list[StateRow] | None = None,
    more: bool = False,
    **spec: Any,
) -> list[str]:
    def held(side: str, rows: list[StateRow] | None) -> StateAnswer:
        return StateAnswer(
            side=side, key=["7"], batch_id=7, rows=rows or [], more=more, seconds=0.1
        )

    changes = {"join__type": "left_outer", **spec}
    return why(plan(**changes), given, held("left", left), held("right", right))


# --- The rows


def test_a_key_of_which_nothing_is_held_has_its_possible_reasons() -> None:
    assert [NOTHING_HELD] == told()


@pytest.mark.parametrize(
    ("join_type", "comes_out"),
    [
        ("inner", False),
        ("left_outer", True),
        ("right_outer", False),
        ("full_outer", True),
        ("left_semi", False),
        ("left_anti", True),
    ],
)
def test_a_row_that_waits_is_told_until_when_and_what_becomes_of_it(
    join_type: str, comes_out: bool
) -> None:
    columns = {"output__columns": {"ad_id": "left.ad_id"}}
    sentences = told(left=[row()], join__type=join_type, **columns)

    fate = (
        "without one it then comes out unmatched."
        if comes_out
        else "without one it is then dropped: this join type shows no unmatched row of this side."
    )
    assert [f"{WAITS}{fate}", "No right row of this key is held."] == sentences


@pytest.mark.parametrize(
    ("join_type", "comes_out"),
    [("left_outer", False), ("right_outer", True), ("full_outer", True), ("inner", False)],
)
def test_what_becomes_of_a_right_row_depends_on_the_join_type(
    join_type: str, comes_out: bool
) -> None:
    [_, sentence] = told(right=[row("clicks")], join__type=join_type)

    assert sentence.startswith("The right row clicks/1/17, event time 2026-11-20T12:00:00.000Z, ")
    assert comes_out is sentence.endswith("without one it then comes out unmatched.")


def test_a_row_that_has_matched_has_come_out() -> None:
    assert (
        "The left row impressions/1/17, event time 2026-11-20T12:00:00.000Z, is held and has "
        "matched: its results have come out."
    ) == told(left=[row(matched=True)], right=[row("clicks")])[0]


def test_rows_on_both_sides_may_have_matched() -> None:
    assert (
        "The left row impressions/1/17, event time 2026-11-20T12:00:00.000Z, is held, beside rows "
        "of the other side; where they match, the results have come out. It waits for a right row "
        "until the watermark has passed 2026-11-20T12:01:00.000Z, 72.0 s ahead of where it is; "
        "without one it then comes out unmatched."
    ) == told(left=[row(matched=False)], right=[row("clicks")])[0]


def test_a_row_of_unbounded_state_waits_for_ever() -> None:
    assert (
        "The left row impressions/1/17, event time 2026-11-20T12:00:00.000Z, is held. It waits for "
        "a match for ever: nothing bounds this join's state."
    ) == told(left=[row(leaves_after=None)])[0]


def test_before_there_is_a_watermark_no_distance_is_told() -> None:
    sentences = told(status(brokers=None), left=[row()])

    assert (
        "until the watermark has passed 2026-11-20T12:01:00.000Z; without one it then"
    ) in sentences[0]


def test_a_far_distance_is_told_in_minutes() -> None:
    far = row(leaves_after=NOW + timedelta(days=1))

    assert "2026-11-21T12:00:00.000Z, 1,440 min ahead of where it is" in told(left=[far])[0]


@pytest.mark.parametrize(
    ("rows", "more", "told_more"), [(5, False, 0), (6, False, 1), (5, True, 1)]
)
def test_of_many_rows_five_are_told_and_that_there_are_more(
    rows: int, more: bool, told_more: int
) -> None:
    sentences = told(left=[row(offset=offset) for offset in range(rows)], more=more)

    assert 5 == sum(sentence.startswith("The left row") for sentence in sentences)
    assert told_more == sentences.count("More left rows of this key are held.")


# --- What holds everything up


@pytest.mark.parametrize("state", [QueryState.PAUSED, QueryState.STOPPED])
def test_a_query_at_rest_is_told_first(state: QueryState) -> None:
    assert [
        f"The query is {state} until it is resumed. Nothing comes out meanwhile.",
        NOTHING_HELD,
    ] == told(CALM.model_copy(update={"state": state, "last_failure": NO_BROKER}))


@pytest.mark.parametrize("state", [QueryState.FAILED, QueryState.RESTARTING])
def test_a_query_that_has_failed_is_told_with_its_failure(state: QueryState) -> None:
    down = CALM.model_copy(update={"state": state, "last_failure": NO_BROKER})

    assert (
        f"The query is {state}: no broker answers at localhost:9092. Nothing comes out meanwhile."
    ) == told(down)[0]


def test_a_query_that_starts_has_no_failure_to_tell() -> None:
    starting = CALM.model_copy(update={"state": QueryState.STARTING})

    assert "The query is STARTING. Nothing comes out meanwhile." == told(starting)[0]


@pytest.mark.parametrize(
    ("left_ms", "right_ms", "slower", "at", "faster", "distance"),
    [
        (30_000, 61_500, "left", "00:00:20.000Z", "right", "30.0 s"),
        (300_000, 61_500, "right", "00:00:50.000Z", "left", "4 min"),
    ],
)
def test_the_side_that_holds_the_watermark_back_is_told(
    left_ms: int, right_ms: int, slower: str, at: str, faster: str, distance: str
) -> None:
    apart = status_after(
        batch(
            late_records=0,
            left=side(bad_records={}, event_time_max_ms=left_ms),
            right=side(bad_records={}, event_time_max_ms=right_ms),
        ),
        brokers=None,
    )
    assert faster != slower

    assert (
        f"The {slower} side holds the watermark back, at 1970-01-01T{at}: the other side is "
        f"{distance} further. It moves when newer {slower} records arrive."
    ) == told(apart)[-1]


@pytest.mark.parametrize(
    ("silent", "names"),
    [(("left",), "left"), (("right",), "right"), (("left", "right"), "left and right")],
)
def test_a_side_that_has_been_silent_is_told(silent: tuple[str, ...], names: str) -> None:
    nothing = side(bad_records={}, event_time_max_ms=None)
    quiet = status_after(EVEN.model_copy(update=dict.fromkeys(silent, nothing)), brokers=None)

    assert (
        f"Since the job started nothing readable has come on the {names} side: without an event "
        "time from both sides the watermark does not move, and nothing unmatched comes out."
    ) == told(quiet)[-1]


# --- What has not been read, or was dropped


def test_records_that_are_still_to_be_read_are_told_by_side() -> None:
    def behind(topic: str, records: int) -> SideOffsets:
        return SideOffsets(topic=topic, read={0: 5, 1: 5}, latest={0: 5, 1: 5 + records})

    report = BrokerReport(left=behind("impressions", 1_234), right=behind("clicks", 0))

    assert [
        "1,234 left records are not read yet; the row, or its match, may be among them."
    ] == told(CALM.model_copy(update={"brokers": report}))[1:]


def test_late_rows_are_told() -> None:
    late = status_after(EVEN.model_copy(update={"late_records": 1_500}), brokers=None)

    assert [
        (
            "1,500 rows have come later than the watermark since the job started and were dropped; "
            "the row, or its match, may be among them."
        )
    ] == told(late)[1:]


def test_records_that_could_not_be_read_are_told_by_side_and_reason() -> None:
    bad = side(
        bad_records={"malformed_json": 1_200, "tombstone": 1, "schema_mismatch": 0},
        event_time_max_ms=NOW_MS - 500,
    )
    unreadable = status_after(EVEN.model_copy(update={"right": bad}), brokers=None)

    assert [
        "Of the right side's records some could not be read: 1 tombstone, 1,200 malformed_json."
    ] == told(unreadable)[1:]


def test_the_most_telling_comes_first() -> None:
    report = BrokerReport(
        left=SideOffsets(topic="impressions", read={0: 0}, latest={0: 2}),
        right=SideOffsets(topic="clicks"),
    )
    all_at_once = status_after(batch(), state=QueryState.PAUSED, brokers=report)

    assert [
        "The query is PAUSED",
        "The left row impres",
        "No right row of thi",
        "The right side hold",
        "2 left records are ",
        "2 rows have come la",
        "Of the left side's ",
        "Of the right side's",
    ] == [sentence[:19] for sentence in told(all_at_once, left=[row()])]


def test_partition_that_holds_the_watermark_back_is_named() -> None:
    times = {"left": event_times(20_000), "right": event_times(10_000, held_back_by=1)}

    assert (
        "Partition 1 of the right side holds the watermark back, at 1969-12-31T23:59:58.500Z: it "
        "has unread records. The watermark advances as they are read."
    ) in told(CALM.model_copy(update={"event_times": times}))


def test_backlog_of_which_nothing_was_read_is_named() -> None:
    times = {"left": event_times(None, held_back_by=0), "right": event_times(10_000)}

    assert (
        "Nothing readable has been read of left partition 0 yet, which has a backlog: the "
        "watermark does not advance before, and nothing unmatched comes out."
    ) in told(CALM.model_copy(update={"event_times": times}))
