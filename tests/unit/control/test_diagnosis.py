"""The diagnosis: one test per cause, and their order."""

from datetime import UTC, datetime
from typing import Any

import pytest

from job.control.diagnosis import diagnosis
from job.protocol.progress import BatchProgress
from job.protocol.reports import ChangeReport, PartitionCount, SideCount
from job.protocol.status import JobStatus, QueryState
from job.protocol.totals import Totals
from tests.unit.service.builders import (
    NOW,
    batch,
    broker_report,
    event_times,
    side,
    state_count,
    status,
    status_after,
)
from tests.unit.specs import plan

NOW_MS = round(NOW.timestamp() * 1000)
HOUR_MS = 3_600_000


def read(newest_ms: int = NOW_MS, **fields: Any) -> dict[str, Any]:
    clean = {"bad_records": {}, "null_keys": 0, "duplicates": 0}
    return {**clean, "records": 100, "event_time_max_ms": newest_ms, **fields}


def offsets(*, read_to: int = 100, earliest: int = 0, latest: int = 100) -> dict[str, Any]:
    return {"read": {0: read_to}, "earliest": {0: earliest}, "latest": {0: latest}}


def brokers(left: dict[str, Any], right: dict[str, Any], **fields: Any) -> Any:
    report = broker_report(**fields)
    return report.model_copy(
        update={
            "left": report.left.model_copy(update=left),
            "right": report.right.model_copy(update=right),
        }
    )


ALL_READ = brokers(offsets(), offsets())


def batch_of(left: dict[str, Any], right: dict[str, Any], **fields: Any) -> BatchProgress:
    none = {"output_records": 0, "unmatched_results": 0, "filtered_results": 0, "late_rows": 0}
    return batch(**{**none, "left": side(**left), "right": side(**right), **fields})


def after(
    left: dict[str, Any] | None = None, right: dict[str, Any] | None = None, **fields: Any
) -> JobStatus:
    """Status after one batch that has read all records and written nothing."""
    counts = {
        name: fields.pop(name)
        for name in ("output_records", "unmatched_results", "filtered_results", "late_rows")
        if name in fields
    }
    done = batch_of(left or read(), right or read(), **counts)
    known = {"brokers": ALL_READ, "change": None, "state_count": None, "idle": {}}
    return status_after(done, **{**known, **fields})


def reported(given: JobStatus, **spec: Any) -> str:
    return diagnosis(plan(**spec), given)


def test_query_that_does_not_run() -> None:
    assert reported(status(QueryState.PAUSED)) == (
        "The query is PAUSED and emits no rows until it is resumed."
    )


def test_brokers_that_do_not_answer() -> None:
    report = brokers(offsets(), offsets(), error="no broker answers at localhost:9092")
    assert reported(after(brokers=report)) == (
        "Nothing is read: the brokers last answered 2026-11-20T12:00:00.000Z. no broker answers at "
        "localhost:9092"
    )


def test_replay_after_a_change() -> None:
    change = ChangeReport(
        old_checkpoint="file:/old",
        phase="reading",
        records=9,
        records_left=4,
        possibly_late_records=0,
        offsets={"left": {"0": 5}, "right": {"0": 4}},
    )
    assert reported(after(change=change)).startswith(
        "After the change of the join, 4 of 9 records are still to be read again"
    )


NO_MATCH = "no row can match, and "


@pytest.mark.parametrize(
    ("right", "reason", "effect"),
    [
        (
            offsets(read_to=0, latest=0),
            "is empty: produce records, or correct `right.topic`",
            NO_MATCH,
        ),
        (offsets(read_to=50, earliest=50, latest=50), "is empty: its records were deleted", ""),
        (offsets(), "has no new record since the job started at 2026-11-20T12:00:00.000Z", ""),
    ],
)
def test_side_without_records(right: dict[str, Any], reason: str, effect: str) -> None:
    given = after(
        right=read(None, records=0),
        brokers=brokers(offsets(), right),
        event_times={"left": event_times(NOW_MS)},
    )
    said = reported(given, join__type="left_outer")
    assert said.startswith(f"Topic clicks of the right side {reason}")
    assert said.endswith(
        f"Until then {effect}the watermark does not advance, so no unmatched row is emitted."
    )


@pytest.mark.parametrize("read_to", [None, {0: 0}])
def test_first_batch_that_has_not_ended(read_to: dict[int, int] | None) -> None:
    unread = {**offsets(), "read": read_to}
    given = status().model_copy(
        update={"brokers": brokers(unread, unread), "last_batch": None, "totals": Totals()}
    )
    assert "The query reads its first records." == reported(given)

    nothing_new = given.model_copy(update={"brokers": ALL_READ})
    assert "has no new record since the job started" in reported(nothing_new)


def test_quiet_topics_after_a_restart_although_the_sides_are_idle() -> None:
    # A restart knows the event times of the checkpoint.
    given = status(
        idle={"left": True, "right": True},
        run_id="run-2",
        brokers=ALL_READ,
        event_times={"left": event_times(NOW_MS), "right": event_times(NOW_MS)},
    )
    assert reported(given, join__type="left_outer").endswith(
        "Until then the watermark does not advance, so no unmatched row is emitted."
    )


def test_side_without_records_is_no_cause_if_the_state_gives_results() -> None:
    given = after(right=read(None, records=0), output_records=3)
    assert reported(given).startswith("3 results were written")


@pytest.mark.parametrize(("rows", "effect"), [(0, "Until then no row can match."), (2, "")])
def test_rows_in_state_may_match(rows: int, effect: str) -> None:
    count = SideCount(rows=rows, unmatched_rows=None, partitions=[])
    given = after(
        right=read(None, records=0), state_count=state_count(right=count), idle={"left": True}
    )
    assert reported(given) == (
        "Topic clicks of the right side has no new record since the job started at "
        f"2026-11-20T12:00:00.000Z. {effect}".rstrip()
    )


@pytest.mark.parametrize(
    ("left", "dropped"),
    [
        (read(bad_records={"malformed_json": 100}), "All 100 {}: 100 bad (malformed_json)."),
        (read(filtered_records=80), "80% of the 100 {}: 80 dropped by left.filter."),
        (read(null_keys=100), "All 100 {}: 100 with a null in their key."),
    ],
)
def test_records_that_cannot_match(left: dict[str, Any], dropped: str) -> None:
    assert dropped.format("left records cannot match") == reported(after(left))


def test_records_of_both_sides_that_cannot_match_and_times_of_another_unit() -> None:
    bad = read(bad_records={"absurd_event_time": 100})

    hint = "`streamjoin check` shows the times, and the unit that they look like."
    assert reported(after(bad, bad)) == (
        f"All 100 left records cannot match: 100 bad (absurd_event_time). {hint} "
        f"All 100 right records cannot match: 100 bad (absurd_event_time). {hint}"
    )


def test_output_filter_drops_most_results() -> None:
    given = after(output_records=1, filtered_results=9)
    assert "output.filter dropped 9 of 10 results." == reported(given)


def test_seconds_that_are_read_as_milliseconds() -> None:
    said = reported(after(read(NOW_MS // 1000)))
    assert "started: the newest event time of the left side is 1970-01" in said
    assert "timestamp_seconds" in said


@pytest.mark.parametrize(("hours", "where"), [(2, "2 hours ahead of"), (-5, "5 hours behind")])
def test_times_that_look_like_local_times(hours: int, where: str) -> None:
    left = read(NOW_MS + hours * HOUR_MS, record_time_max_ms=NOW_MS + 900)
    said = reported(after(left, read(record_time_max_ms=NOW_MS + 900)))
    assert f"the event times of the left side are {where} the timestamps of its records" in said
    assert said.endswith("set `left.time_zone`.")


MINUTE_MS = 60_000
WINDOW = {"before": "10 minutes", "after": "10 minutes"}


def in_state(oldest_ms: int, key: str, rows: int = 100) -> SideCount:
    oldest = datetime.fromtimestamp(oldest_ms / 1000, UTC)
    part = PartitionCount(partition=0, rows=rows, unmatched_rows=None, event_time_min=oldest)
    return SideCount.of([part], [[key]])


def with_oldest(left_ms: int, right_ms: int, keys: str = "aa", **fields: Any) -> JobStatus:
    """`left_ms`, `right_ms`: oldest event time in state, before now. The left side ends 40 minutes
    before the right one."""
    count = state_count(
        left=in_state(NOW_MS - left_ms, keys[0]),
        right=in_state(NOW_MS - right_ms, keys[1], fields.pop("right_rows", 100)),
    )
    return after(read(NOW_MS - 40 * MINUTE_MS), read(), state_count=count, **fields)


APART = (
    "the oldest row in state of the right side is 35 min after the newest event time of the left "
    "side (2026-11-20T11:55:00.000Z and 2026-11-20T11:20:00.000Z), and the join allows 10 minutes."
)


def test_event_times_that_are_all_further_apart_than_the_window() -> None:
    given = with_oldest(90 * MINUTE_MS, 5 * MINUTE_MS)
    assert f"No row has matched since the job started: {APART}" == reported(
        given, join__match_window=WINDOW
    )


def test_event_times_are_no_cause_if_some_of_both_sides_are_near_enough() -> None:
    """The newest event times are further apart than the window."""
    given = with_oldest(90 * MINUTE_MS, 80 * MINUTE_MS)
    assert "keys in state are a on the left and a on the right" in reported(
        given, join__match_window=WINDOW
    )


def test_event_times_are_no_cause_if_rows_of_the_newer_side_have_left_the_state() -> None:
    given = with_oldest(90 * MINUTE_MS, 5 * MINUTE_MS, right_rows=99)
    assert "keys in state are" in reported(given, join__match_window=WINDOW)


def test_event_times_are_no_cause_before_the_rows_in_state_are_counted() -> None:
    said = reported(after(read(NOW_MS - 40 * MINUTE_MS)), join__match_window=WINDOW)
    assert "the newest event time" not in said
    assert "the keys or the event times of both sides may differ" in said


def test_keys_that_never_meet_come_before_event_times() -> None:
    given = with_oldest(90 * MINUTE_MS, 5 * MINUTE_MS, keys="ab")
    said = reported(given, join__match_window=WINDOW)
    assert said.startswith(
        "No row has matched since the job started: the samples of the keys in state have none in "
        "common, a on the left and b on the right; and the oldest row in state of the right side"
    )


def counted() -> Any:
    return state_count(
        left=SideCount.of([], [["A-1"], ["A-2"]]), right=SideCount.of([], [["a1"], ["a2"]])
    )


def test_keys_that_never_meet() -> None:
    assert reported(after(state_count=counted())) == (
        "No row has matched since the job started: the samples of the keys in state have none in "
        "common, A-1, A-2 on the left and a1, a2 on the right. `streamjoin explain` and `GET "
        "/v1/query/explain` explain why a key has no match."
    )


@pytest.mark.parametrize(
    ("join_type", "unmatched", "results"),
    [("inner", 0, ""), ("left_outer", 69, ": all 69 results are of unmatched rows")],
)
def test_rows_that_never_match_and_have_left_the_state(
    join_type: str, unmatched: int, results: str
) -> None:
    given = after(output_records=unmatched, unmatched_results=unmatched)
    no_match = f"No row has matched since the job started{results}. All records are read"
    said = reported(given, join__type=join_type)
    assert said.startswith(no_match)
    assert "`streamjoin check` compares the keys of both topics" in said

    unread = brokers(offsets(), offsets(read_to=40))
    for other in (
        after(output_records=unmatched + 1, unmatched_results=unmatched),
        after(output_records=unmatched, unmatched_results=unmatched, brokers=unread),
    ):
        assert "written since the job started" in reported(other, join__type=join_type)


def test_keys_are_no_cause_while_records_are_unread() -> None:
    unread = brokers(offsets(), offsets(read_to=40))
    assert "0 results were written since the job started; 60 unread records." == reported(
        after(state_count=counted(), brokers=unread)
    )


def test_event_times_are_no_cause_while_records_are_unread() -> None:
    unread = brokers(offsets(), offsets(read_to=40))
    given = with_oldest(90 * MINUTE_MS, 5 * MINUTE_MS, brokers=unread)
    assert reported(given, join__match_window=WINDOW).endswith("60 unread records.")


def test_sample_has_few_keys_and_short_parts() -> None:
    of = SideCount.of([], [["a" * 200, None], ["b"], ["c"], ["d"]])
    assert [["a" * 100, None], ["b"], ["c"]] == of.sample_keys


def test_most_rows_are_late() -> None:
    said = reported(after(output_records=3, late_rows=150))
    assert said.startswith("150 of 200 rows were late and dropped")


def test_unmatched_rows_wait_for_the_slower_side() -> None:
    said = reported(
        after(
            event_times={
                "left": event_times(NOW_MS),
                "right": event_times(NOW_MS - 90_000),
            }
        ),
        join__type="left_outer",
    )
    assert said.startswith("The right side holds the watermark back")


def test_results_are_counted() -> None:
    given = after(output_records=1_200, unmatched_results=200)
    assert reported(given, join__type="left_outer") == (
        "1,200 results were written since the job started, 200 of them unmatched; all records are "
        "read."
    )
    before_the_first_poll = given.model_copy(update={"brokers": None})
    assert reported(before_the_first_poll, join__type="left_outer").endswith("of them unmatched.")


def test_stopped_query_hides_all_other_causes() -> None:
    given = after(read(bad_records={"malformed_json": 100}), state=QueryState.STOPPED)
    assert reported(given).startswith("The query is STOPPED")
