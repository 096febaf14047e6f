"""Explanation of a key: one test per sentence."""

from datetime import timedelta
from typing import Any

import pytest

from job.control.explain_key import explain_key
from job.protocol.reports import BrokerReport, SideOffsets
from job.protocol.results import KeyRows, StateRow
from job.protocol.status import JobStatus, QueryState
from job.spec.join_conditions import JoinType
from job.spec.sides import Side
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
    late_rows=0,
    watermark_ms=NOW_MS - 12_000,
    left=side(bad_records={}, event_time_max_ms=NOW_MS - 2_000),
    right=side(bad_records={}, event_time_max_ms=NOW_MS - 500),
)
CALM = status_after(EVEN, brokers=None)

NO_STATE_ROWS = (
    "No row with this key is in state on either side: it was not read yet, was a bad record, was "
    "late, failed a filter, or it expired and its result was already emitted."
)
WAITS = (
    "The left row impressions/1/17, event time 2026-11-20T12:00:00.000Z, is in state. It waits for "
    "a right row until the watermark passes 2026-11-20T12:01:00.000Z, 72.0 s ahead of it; "
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


def explained(
    given: JobStatus = CALM,
    *,
    left: list[StateRow] | None = None,
    right: list[StateRow] | None = None,
    more: bool = False,
    **spec: Any,
) -> list[str]:
    def key_rows(side: Side, rows: list[StateRow] | None) -> KeyRows:
        return KeyRows(
            side=side, key=["7"], batch_id=7, rows=rows or [], more=more, duration_seconds=0.1
        )

    changes = {"join__type": "left_outer", **spec}
    return explain_key(plan(**changes), given, key_rows("left", left), key_rows("right", right))


# --- State rows


def test_key_without_state_rows_has_the_possible_reasons() -> None:
    assert [NO_STATE_ROWS] == explained()


@pytest.mark.parametrize(
    ("join_type", "is_emitted"),
    [
        ("inner", False),
        ("left_outer", True),
        ("right_outer", False),
        ("full_outer", True),
        ("left_semi", False),
        ("left_anti", True),
        ("right_semi", False),
        ("right_anti", False),
    ],
)
def test_waiting_row_is_shown_with_its_expiry_and_outcome(join_type: str, is_emitted: bool) -> None:
    columns = {"output__columns": {"ad_id": f"{JoinType(join_type).shown_sides[0]}.ad_id"}}
    sentences = explained(left=[row()], join__type=join_type, **columns)

    outcome = (
        "without a match it is then emitted as unmatched."
        if is_emitted
        else "without a match it is then dropped: this join type emits no unmatched left rows."
    )
    assert [f"{WAITS}{outcome}", "No right row with this key is in state."] == sentences


@pytest.mark.parametrize(
    ("join_type", "is_emitted"),
    [("left_outer", False), ("right_outer", True), ("full_outer", True), ("inner", False)],
)
def test_outcome_of_a_right_row_depends_on_the_join_type(join_type: str, is_emitted: bool) -> None:
    [_, sentence] = explained(right=[row("clicks")], join__type=join_type)

    assert sentence.startswith("The right row clicks/1/17, event time 2026-11-20T12:00:00.000Z, ")
    assert is_emitted is sentence.endswith("without a match it is then emitted as unmatched.")


def test_results_of_a_matched_row_were_emitted() -> None:
    assert (
        "The left row impressions/1/17, event time 2026-11-20T12:00:00.000Z, is in state and "
        "has matched: its results were emitted."
    ) == explained(left=[row(matched=True)], right=[row("clicks")])[0]


def test_rows_in_state_on_both_sides_may_have_matched() -> None:
    assert (
        "The left row impressions/1/17, event time 2026-11-20T12:00:00.000Z, is in state; "
        "results of its matches with the right rows in state were emitted. It waits for a right "
        "row until the watermark passes 2026-11-20T12:01:00.000Z, 72.0 s ahead of it; without a "
        "match it is then emitted as unmatched."
    ) == explained(left=[row(matched=False)], right=[row("clicks")])[0]


def test_row_of_unbounded_state_waits_indefinitely() -> None:
    assert (
        "The left row impressions/1/17, event time 2026-11-20T12:00:00.000Z, is in state. It "
        "waits for a match indefinitely: the state of this join is unbounded."
    ) == explained(left=[row(leaves_after=None)])[0]


def test_without_a_watermark_no_distance_is_shown() -> None:
    sentences = explained(status(brokers=None), left=[row()])

    assert (
        "until the watermark passes 2026-11-20T12:01:00.000Z; without a match it is then"
    ) in sentences[0]


def test_long_distance_is_in_minutes() -> None:
    far = row(leaves_after=NOW + timedelta(days=1))

    assert "2026-11-21T12:00:00.000Z, 1,440 min ahead of it" in explained(left=[far])[0]


@pytest.mark.parametrize(
    ("rows", "more", "more_lines"), [(5, False, 0), (6, False, 1), (5, True, 1)]
)
def test_five_rows_are_shown_and_whether_there_are_more(
    rows: int, more: bool, more_lines: int
) -> None:
    sentences = explained(left=[row(offset=offset) for offset in range(rows)], more=more)

    assert 5 == sum(sentence.startswith("The left row") for sentence in sentences)
    assert more_lines == sentences.count("More left rows with this key are in state.")


# --- Query and watermark


@pytest.mark.parametrize("state", [QueryState.PAUSED, QueryState.STOPPED])
def test_paused_or_stopped_query_comes_first(state: QueryState) -> None:
    assert [
        f"The query is {state} and emits no rows until it is resumed.",
        NO_STATE_ROWS,
    ] == explained(CALM.model_copy(update={"state": state, "last_failure": NO_BROKER}))


@pytest.mark.parametrize("state", [QueryState.FAILED, QueryState.RESTARTING])
def test_failed_query_is_shown_with_its_failure(state: QueryState) -> None:
    down = CALM.model_copy(update={"state": state, "last_failure": NO_BROKER})

    assert (
        f"The query is {state} and emits no rows: no broker answers at localhost:9092."
    ) == explained(down)[0]


def test_starting_query_has_no_failure() -> None:
    starting = CALM.model_copy(update={"state": QueryState.STARTING})

    assert "The query is STARTING and emits no rows." == explained(starting)[0]


@pytest.mark.parametrize(
    ("left_ms", "right_ms", "slower", "at", "faster", "distance"),
    [
        (30_000, 61_500, "left", "00:00:20.000Z", "right", "30.0 s"),
        (300_000, 61_500, "right", "00:00:50.000Z", "left", "4 min"),
    ],
)
def test_side_that_holds_the_watermark_back_is_named(
    left_ms: int, right_ms: int, slower: str, at: str, faster: str, distance: str
) -> None:
    apart = status_after(
        batch(
            late_rows=0,
            left=side(bad_records={}, event_time_max_ms=left_ms),
            right=side(bad_records={}, event_time_max_ms=right_ms),
        ),
        brokers=None,
    )

    assert (
        f"The {slower} side holds the watermark back, at 1970-01-01T{at}: the {faster} side "
        f"is {distance} ahead. The watermark advances when newer {slower} records arrive."
    ) == explained(apart)[-1]


@pytest.mark.parametrize(
    ("silent", "names"),
    [(("left",), "left"), (("right",), "right"), (("left", "right"), "left and right")],
)
def test_side_without_readable_records_is_named(silent: tuple[str, ...], names: str) -> None:
    nothing = side(bad_records={}, event_time_max_ms=None)
    quiet = status_after(EVEN.model_copy(update=dict.fromkeys(silent, nothing)), brokers=None)

    assert (
        f"The {names} side received no readable record since the job started. Without an event "
        "time of both sides the watermark does not advance, and no unmatched rows are emitted."
    ) == explained(quiet)[-1]


# --- Unread and dropped records


def test_unread_records_are_counted_by_side() -> None:
    def behind(topic: str, records: int) -> SideOffsets:
        return SideOffsets(topic=topic, read={0: 5, 1: 5}, latest={0: 5, 1: 5 + records})

    report = BrokerReport(left=behind("impressions", 1_234), right=behind("clicks", 0))

    assert ["1,234 left records are unread; the row or its match may be among them."] == explained(
        CALM.model_copy(update={"brokers": report})
    )[1:]


def test_late_rows_are_counted() -> None:
    late = status_after(EVEN.model_copy(update={"late_rows": 1_500}), brokers=None)

    assert [
        (
            "1,500 late rows were dropped since the job started; the row or its match may be among "
            "them."
        )
    ] == explained(late)[1:]


def test_bad_records_are_counted_by_side_and_reason() -> None:
    bad = side(
        bad_records={"malformed_json": 1_200, "tombstone": 1, "schema_mismatch": 0},
        event_time_max_ms=NOW_MS - 500,
    )
    unreadable = status_after(EVEN.model_copy(update={"right": bad}), brokers=None)

    assert [
        "Bad records of the right side since the job started: 1 tombstone, 1,200 malformed_json."
    ] == explained(unreadable)[1:]


def test_most_important_sentence_comes_first() -> None:
    report = BrokerReport(
        left=SideOffsets(topic="impressions", read={0: 0}, latest={0: 2}),
        right=SideOffsets(topic="clicks"),
    )
    all_at_once = status_after(batch(), state=QueryState.PAUSED, brokers=report)

    assert [
        "The query is PAUSED",
        "The left row impres",
        "No right row with t",
        "The right side hold",
        "2 left records are ",
        "2 late rows were dr",
        "Bad records of the ",
        "Bad records of the ",
    ] == [sentence[:19] for sentence in explained(all_at_once, left=[row()])]


def test_partition_that_holds_the_watermark_back_is_named() -> None:
    times = {"left": event_times(20_000), "right": event_times(10_000, held_back_by=1)}

    assert (
        "Partition 1 of the right side holds the watermark back, at 1969-12-31T23:59:58.500Z: it "
        "has unread records. The watermark advances as they are read."
    ) in explained(CALM.model_copy(update={"event_times": times}))


def test_unread_backlog_is_named() -> None:
    times = {"left": event_times(None, held_back_by=0), "right": event_times(10_000)}

    assert (
        "No readable record of left partition 0 was read yet, and there is a backlog. Until then "
        "the watermark does not advance, and no unmatched rows are emitted."
    ) in explained(CALM.model_copy(update={"event_times": times}))
