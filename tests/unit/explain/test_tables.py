"""What is explained of a join with a table."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from job.explain.facts import StoredRow
from job.explain.simulated import explained
from job.explain.topics import _records_of
from job.plan.plan import JoinPlan
from job.semantics.cli import Simulation
from job.semantics.input_records import records_of_jsonl
from job.semantics.simulate import simulate
from job.spec.sides import SIDES
from tests.sql_worker import ROWS
from tests.unit.explain.test_causes import NOW_MS, OUTPUT
from tests.unit.explain.test_causes import explained as explained_of_key
from tests.unit.explain.test_causes import record as record_of_key
from tests.unit.explain.test_causes import result as result_of
from tests.unit.semantics.simulations import T, row
from tests.unit.semantics.test_table import VERSIONS, as_of, record, tables, version
from tests.unit.spec.test_table import as_of as versions_of
from tests.unit.spec.test_table import enriched

AT = "(event time 2023-11-14T22:13:20.000Z)"
WAS = "was the row of its key in the table until"
AT_ONCE = "had no match when it was read, and was emitted as unmatched: the result is in batch"


@cache
def table_plan() -> JoinPlan:
    """An inner join of impressions with the table of clicks."""
    return enriched(topic="clicks")


def order(key: int | None, batch: int) -> str:
    return json.dumps({"value": json.loads(row(key, 0)), "batch": batch})


def stories(made: JoinPlan, left: Sequence[str], right: Sequence[str], key: str) -> list[str]:
    of = dict(
        zip(SIDES, (records_of_jsonl(left, ROWS), records_of_jsonl(right, ROWS)), strict=True)
    )
    batches = simulate(made, ROWS, of["left"], of["right"])
    return explained(Simulation(made, of, batches), ROWS, key)


def test_each_row_says_which_version_it_got() -> None:
    left = [order(1, 0), order(1, 1), order(1, 3)]
    right = [record(1, 10, batch=1), record(1, 11, batch=2), record(1, batch=3)]
    none = (
        "the table had no row of its key then: right r/0/2, the newest record of the key, was read "
        "later, or has deleted the row"
    )

    assert [
        f"left l/0/0 {AT} {AT_ONCE} 0; {none}.",
        f"left l/0/1 {AT} matched right r/0/0: the result is in batch 1.",
        f"left l/0/2 {AT} {AT_ONCE} 3; {none}.",
        f"right r/0/0 {WAS} right r/0/1 replaced it; 1 result with it was found.",
        f"right r/0/1 {WAS} right r/0/2 deleted it; no result with it was found.",
        "right r/0/2 deleted the row of its key in the table.",
    ] == stories(tables(), left, right, "1")


def test_row_without_a_match_says_why() -> None:
    made = tables(join={"type": "left_outer", "condition": "right.v <> 6"}, output__filter="k < 9")
    left = [order(2, 0), order(3, 0), order(9, 0)]
    right = [record(2, 6, batch=0), record(9, 1, batch=0)]

    assert [
        f"left l/0/0 {AT} {AT_ONCE} 0; join.condition (right.v <> 6) is not true with right r/0/0."
    ] == stories(made, left, right, "2")[:1]
    assert [f"left l/0/1 {AT} {AT_ONCE} 0; no right row with this key is in the files."] == stories(
        made, left, right, "3"
    )
    assert [
        f"left l/0/2 {AT} matched right r/0/1, and output.filter (k < 9) dropped the result."
    ] == stories(made, left, right, "9")[:1]


def test_inner_join_names_the_row_that_has_no_result() -> None:
    made = tables(join={"type": "inner"})

    [sentence] = stories(made, [order(3, 0)], [record(4, 1, batch=0)], "3")
    assert sentence == (
        f"left l/0/0 {AT} had no match when it was read, and join type inner emits no result for "
        "it; no right row with this key is in the files."
    )


def test_result_names_the_record_of_the_table_in_its_header() -> None:
    headers = [("streamjoin-id", b"orders/0/17|"), ("streamjoin-match", b"customers/3/90")]

    assert {"left": ("orders", 0, 17), "right": ("customers", 3, 90)} == _records_of(headers)
    assert {"left": ("orders", 0, 17)} == _records_of([headers[0], ("streamjoin-match", None)])
    assert {"right": ("orders", 0, 17)} == _records_of([("streamjoin-id", b"|orders/0/17")])


OF_TABLE = record_of_key("right")
IS, WAS_ROW = ("is the row of its key in the table", "was the row of its key in the table")
NONE_FOUND = "no result with it was found in what was read of attributed"


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({}, f"{IS}; {NONE_FOUND}."),
        (
            {"output": replace(OUTPUT, from_ms=NOW_MS + 1)},
            (
                f"{IS}; {NONE_FOUND}: only "
                "results since 2026-11-20T12:00:00.001Z were read, or still exist."
            ),
        ),
        (
            {"results": (result_of("left", "right"),), "stored_is_known": {"right": True}},
            (
                f"{WAS_ROW}, and is not any more; 1 result with it was found in what was read of "
                "attributed."
            ),
        ),
        (
            {"stored": {OF_TABLE.row: StoredRow(None, None)}, "stored_is_known": {"right": True}},
            f"{IS}; {NONE_FOUND}.",
        ),
    ],
)
def test_record_of_a_table_names_what_was_read_of_the_output(
    facts: dict[str, Any], text: str
) -> None:
    assert f"right clicks/0/4 {text}" == explained_of_key(OF_TABLE, plan=table_plan(), **facts)


def test_row_without_a_result_is_not_called_unmatched_if_the_output_is_not_known() -> None:
    known = explained_of_key(plan=table_plan())
    unknown = explained_of_key(plan=table_plan(), output=replace(OUTPUT, is_complete=False))

    assert "had no match when it was read, and join type inner emits no result for it" in known
    assert unknown.endswith(
        "was joined when it was read; no result of it is in what was read of attributed: the "
        "topic was not read to its end."
    )


def test_row_after_a_tombstone_names_it() -> None:
    left = [json.dumps({"value": json.loads(row(1, 0)), "batch": 1, "timestamp": T + 2})]
    right = [record(1, 10, batch=0, timestamp=T), record(1, batch=0, timestamp=T + 1)]

    assert stories(tables(), left, right, "1")[0].endswith(
        "; right r/0/1, the newest record of its key in the table, has deleted the row."
    )


def test_row_as_of_a_time_says_which_version_it_got() -> None:
    left = [row(1, at) for at in (15, 5, 22, 27)]
    right = [*VERSIONS, version(1, 25_000, None)]
    found = stories(as_of(), left, right, "1")

    assert [
        "matched right r/0/1: the result is in batch 1.",
        f"{AT_ONCE} 1; all versions of its key are later: right r/0/1 is the first one.",
        "matched right r/0/2: the result is in batch 1.",
        f"{AT_ONCE} 1; right r/0/3, the version of its key at its event time, deletes the key.",
    ] == [text.split(") ", 1)[1] for text in found[:4]]
    counted = "1 result with it was found."
    until = "is the version of its key in the table until right"
    assert [
        "is the newest version of its key in the table; no result with it was found.",
        f"{until} r/0/2; {counted}",
        f"{until} r/0/3; {counted}",
        "deletes its key in the table from its event time on.",
    ] == [text.split(") ", 1)[1] for text in found[4:]]


def test_row_that_waits_for_its_version_says_until_when() -> None:
    left = [
        json.dumps({"value": json.loads(row(1, at)), "batch": n}) for n, at in enumerate((15, 50))
    ]
    found = stories(as_of(final=True), left, [*VERSIONS, version(1, 60_000, None)], "1")

    assert found[0].endswith("matched right r/0/1: the result is in batch 2.")
    assert "waits until the watermark passes 2023-11-14T22:14:10.000Z" in found[1]
    assert "then its result has the version of its key that is valid at its event time." in found[1]


@pytest.mark.parametrize("made", [tables, as_of], ids=["latest", "as_of"])
def test_row_that_waits_for_a_row_of_the_table_says_until_when(made: Callable[..., Any]) -> None:
    wait = {"right": {"table": {"version": "latest", "wait": "30 seconds"}}}
    plan = made(**(wait if made is tables else {"wait": "30 seconds"}))
    left = [order(1, 0), order(2, 0)]
    right = [json.dumps({**json.loads(version(1, 0, 10)), "batch": 1})]
    much_later = [json.dumps({"value": json.loads(row(3, 99)), "batch": n}) for n in (2, 3)]

    assert stories(plan, left, right, "1")[0].endswith(
        "matched right r/0/0: the result is in batch 1."
    )
    assert (
        "has found no row of its key in the table, and waits for one until the watermark passes "
        "2023-11-14T22:13:50.000Z ("
    ) in stories(plan, left, right, "2")[0]
    assert (
        "had no match until the watermark had passed it, and it had waited, and was emitted as "
        "unmatched: the result is in batch 3"
    ) in stories(plan, [*left, *much_later], right, "2")[0]


def test_row_before_all_versions_says_why_it_does_not_join_the_first_one() -> None:
    first_deletes = [version(1, 10_000, None), version(1, 20_000, 2)]
    made = as_of(before_first="first")

    assert stories(made, [row(1, 5)], first_deletes, "1")[0].endswith(
        "; right r/0/0, the version of its key at its event time, deletes the key."
    )


def test_version_that_left_the_state_is_not_called_a_row() -> None:
    made = enriched(**{**versions_of(), "topic": "clicks"})
    text = explained_of_key(OF_TABLE, plan=made, stored_is_known={"right": True})

    assert "was a version of its key in the table, and is not any more; no result" in text


def test_row_that_is_late_says_so() -> None:
    left = [
        json.dumps({"value": json.loads(row(1, at)), "batch": n})
        for n, at in enumerate((90, 90, 5))
    ]

    assert "late" in stories(as_of(), left, VERSIONS, "1")[2]
