"""A row counts as joined only if it cannot have been late, a duplicate, or unread."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from job.explain.facts import RowId
from job.plan.result_id import Place
from job.spec.sides import Side
from job.verify.expected import Expected, InputRow
from job.verify.joined import InputsRead, JoinedRows, Progress
from tests.unit.specs import plan

COMPLETE = InputsRead(None, {"left": None, "right": None})
ROW = InputRow(0, 0, None, None, can_match=True, may_be_duplicate=False)


def left(partition: int, offset: int) -> RowId:
    return "left", Place("impressions", partition, offset)


def rows(times: Mapping[tuple[int, int], float], **fields: Any) -> Expected:
    """Left rows by partition and offset, with the seconds of their event times. The delay is 10."""
    of_times = {
        left(*place): replace(
            ROW,
            event_time_us=round(seconds * 1_000_000),
            late_time_us=round(seconds * 1_000_000),
            **fields,
        )
        for place, seconds in times.items()
    }
    return Expected(of_times)


def certain(
    expected: Expected,
    named: set[tuple[int, int]] | None = None,
    *,
    read: InputsRead = COMPLETE,
    progress: Progress | None = None,
    **changes: Any,
) -> set[tuple[int, int]]:
    """Partition and offset of the rows that were certainly joined."""
    joined = JoinedRows(
        plan(**changes), expected, read, {left(*place) for place in named or ()}, progress
    )
    return {(at.partition, at.offset) for side, at in expected.rows if (side, at) in joined}


def test_row_newer_than_the_newest_before_it_minus_the_delay_is_joined() -> None:
    times = rows({(0, 0): 100, (0, 1): 90.001, (0, 2): 90, (0, 3): 95})

    assert {(0, 0), (0, 1), (0, 3)} == certain(times)
    # Records before the ones that were read may have event times up to 105 s.
    after_others = InputsRead(None, {"left": 105_000, "right": None})
    assert {(0, 0)} == certain(times, read=after_others)
    assert set() == certain(times, left__idle_after="1 minute")


def test_newest_row_of_another_partition_may_have_been_read_before() -> None:
    times = rows({(0, 0): 100, (0, 1): 120, (1, 0): 109, (1, 1): 111})

    assert {(0, 1), (1, 1)} == certain(times)
    # The query may also have read later records, which were not read here.
    assert set() == certain(times, read=replace(COMPLETE, until_ms=1))


def test_row_in_a_result_and_those_before_it_that_are_not_older_are_joined() -> None:
    times = rows({(0, 0): 49, (0, 1): 51, (0, 2): 100, (0, 3): 50, (0, 4): 60, (1, 0): 500})

    assert {(0, 1), (0, 2), (0, 3), (1, 0)} == certain(times, {(0, 2), (0, 3)})


def test_row_before_the_first_one_in_a_result_may_be_unread_unless_the_query_began_before_it() -> (
    None
):
    times = rows({(0, 0): 100, (0, 1): 100, (0, 2): 100})

    assert {(0, 1), (0, 2)} == certain(times, {(0, 1)}, start_from="latest")
    assert {(0, 0), (0, 1), (0, 2)} == certain(times, {(0, 1)})


@pytest.mark.parametrize(
    ("since_ms", "read_offset", "joined"),
    [
        (5, 2, {(0, 0), (0, 1), (1, 0)}),
        (6, 2, {(1, 0)}),
        (None, 2, {(1, 0)}),
        (5, 1, {(0, 0), (1, 0)}),
    ],
)
def test_row_that_a_job_without_late_rows_has_read_is_joined(
    since_ms: int | None, read_offset: int, joined: set[tuple[int, int]]
) -> None:
    side: Side = "left"
    times = rows({(0, 0): 9, (0, 1): 9, (1, 0): 100}, written_ms=5)
    progress = Progress({(side, "impressions", 0): read_offset}, None, since_ms)

    assert joined == certain(times, progress=progress)


@pytest.mark.parametrize(
    "fields", [{"may_be_duplicate": True}, {"excluded": "does not pass left.filter"}]
)
def test_row_that_the_query_may_have_dropped_is_not_joined(fields: dict[str, Any]) -> None:
    times = rows({(0, 0): 100}, **fields)

    assert set() == certain(times)
    assert {(0, 0)} == certain(times, {(0, 0)})
