"""The checks of the commit topic detect each kind of wrong content."""

import json
from typing import Any

import pytest

from tests.faults.commit_topic import (
    INTERVAL,
    marker_problems,
    missing_markers,
    part_problems,
)
from tests.faults.oracle import Record


def record(key: str, *, query_id: str = "q", **content: Any) -> Record:
    value = json.dumps({"query_id": query_id, **content}).encode()
    return Record("commits", 0, 0, 0, key.encode(), value)


def markers(slot: str, *batches: int, query_id: str = "q") -> list[Record]:
    """Of micro-batches."""
    return [
        record(f"name/{slot}", query_id=query_id, batch_id=batch, fingerprint="offsets")
        for batch in batches
    ]


def interval(slot: str, batch: int) -> Record:
    return record(f"name/{slot}", batch_id=batch, fingerprint=INTERVAL)


def part(slot: str, batch: int, number: int, *ids: str) -> Record:
    return record(f"name/{slot}/{number}", batch_id=batch, ids=list(ids))


def fence(number: int) -> Record:
    return record("name/0/fence", number=number)


def result(identity: str) -> Record:
    return Record("out", 0, 0, 0, None, b"{}", {"streamjoin-id": identity.encode()})


@pytest.mark.parametrize(
    ("batches", "is_right"),
    [
        ([-1, 0, 1, 2], True),
        ([-1, 0, 2], False),
        ([-1, 0, 1, 1], False),
        ([-1, 0, 2, 1], False),
        ([0, 1, 2], False),
        ([-1, -1, 0], False),
        ([], False),
    ],
)
def test_markers_are_a_claim_and_then_count_up_by_one(batches: list[int], is_right: bool) -> None:
    assert is_right == (marker_problems(markers("0", *batches), 1) == [])


def test_state_partitions_end_with_the_same_batch_and_dead_letters_need_not() -> None:
    zero, one = markers("0", -1, 0, 1), markers("1", -1, 0)
    letters = markers("dead-letters", -1, 1)

    assert [] == marker_problems([*zero, *markers("1", -1, 0, 1), *letters], 2)
    assert marker_problems([*zero, *one, *letters], 2)
    assert marker_problems([*zero, *markers("1", -1), *letters], 2)


def test_last_batch_that_has_ended_has_a_marker_in_each_state_partition() -> None:
    records = [*markers("0", -1, 0), interval("0", 1), *markers("1", -1, 0)]

    assert [] == missing_markers(records, 2, ended=0)
    assert ["slot 1 has no marker of batch 1, which has ended"] == missing_markers(
        records, 2, ended=1
    )


def test_markers_of_a_query_that_replaced_another_begin_again() -> None:
    before, after = markers("0", -1, 0, 1), markers("0", -1, 0, query_id="r")

    assert [] == marker_problems([*before, *after], 1)


def test_only_an_interval_has_several_markers_and_one_may_be_ending() -> None:
    zero, one = markers("0", -1, 0), markers("1", -1, 0)
    cut = [interval("0", 1), interval("0", 1)]

    assert [] == marker_problems([*zero, *cut, *one], 2)
    assert [] == marker_problems([*zero, *cut, *markers("0", 1, 2), *one, *markers("1", 1, 2)], 2)
    assert marker_problems([*zero, *markers("0", 1), interval("0", 1), *one, interval("1", 1)], 2)
    assert marker_problems([*zero, *cut, interval("0", 2), *one], 2)


def test_parts_of_an_interval_and_fences_count_up() -> None:
    before = markers("0", -1, 0)

    assert [] == marker_problems([*before, part("0", 1, 0), part("0", 1, 1), part("0", 2, 0)], 1)
    assert marker_problems([*before, part("0", 1, 0), part("0", 1, 2)], 1)
    assert marker_problems([*before, part("0", 1, 0), part("0", 1, 0)], 1)
    assert [] == marker_problems([*before, fence(1), fence(3)], 1)
    assert marker_problems([*before, fence(2), fence(1)], 1)


def test_each_id_of_a_part_is_that_of_one_result() -> None:
    output = [result("a"), result("b"), result("of a micro-batch")]

    assert [] == part_problems([part("0", 1, 0, "a"), part("1", 1, 0, "b")], output)
    assert part_problems([part("0", 1, 0, "a", "c")], output)
    assert part_problems([part("0", 1, 0, "a"), part("0", 2, 0, "a")], output)
