"""The oracle of a join with a table detects each kind of wrong result."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.oracle import Record
from tests.faults.table_oracle import check_table_results, live_keys

T0 = 1_700_000_000_000


def record(topic: str, offset: int, key: str | None, value: Any) -> Record:
    encoded = None if value is None else json.dumps(value).encode()
    return Record(topic, 0, offset, T0, None if key is None else key.encode(), encoded)


def order(offset: int, k: str | None, n: int) -> Record:
    return record("l", offset, k, {"k": k, "t": T0, "n": n})


def customer(offset: int, k: str, n: int) -> Record:
    return record("r", offset, k, {"k": k, "n": n})


def tombstone(offset: int, k: str, n: int) -> Record:
    return replace(record("r", offset, k, None), headers={"n": str(n).encode()})


def result(left: int, k: str | None, n: int, match: int | None, right_n: int | None) -> Record:
    headers: dict[str, Any] = {"streamjoin-id": f"l/0/{left}|".encode(), "streamjoin-match": None}
    if match is not None:
        headers["streamjoin-match"] = f"r/0/{match}".encode()
    return replace(record("out", 0, k, {"k": k, "l": n, "r": right_n}), headers=headers)


RIGHT = [
    customer(0, "a", 1),
    customer(1, "a", 4),
    record("r", 2, None, {"k": "bad"}),
    tombstone(3, "a", 8),
    customer(4, "b", 9),
]
LEFT = [
    order(0, "a", 3),
    order(1, "a", 5),
    replace(order(2, "a", 0), value=b"\xff"),
    order(3, "watermark-0-left", 6),
    order(4, "a", 10),
    order(5, None, 11),
    order(6, "b", 7),
]
OUTPUT = [
    result(0, "a", 3, 1, 4),  # a newer row than the one that was acknowledged
    result(1, "a", 5, None, None),  # deleted meanwhile
    result(3, "watermark-0-left", 6, None, None),
    result(4, "a", 10, None, None),
    result(5, None, 11, None, None),
    result(6, "b", 7, 4, 9),
]


def test_right_results_have_no_problem() -> None:
    checked = check_table_results(LEFT, RIGHT, OUTPUT, is_ordered=True)

    assert [] == list(checked.problems)
    assert (6, 4, 2, 4, 1) == (
        checked.left_rows,
        checked.right_rows,
        checked.matched,
        checked.unmatched,
        checked.unreadable,
    )
    assert 1 == live_keys(RIGHT)


@pytest.mark.parametrize(
    ("damaged", "counts"),
    [
        (lambda rows: rows[1:], (1, 0, 0)),
        (lambda rows: [*rows, result(0, "a", 3, 0, 1)], (0, 1, 0)),
        (lambda rows: [*rows, result(2, "a", 0, 0, 1)], (0, 0, 1)),
        (lambda rows: [*rows[1:], result(0, "a", 3, 1, 1)], (0, 0, 1)),
        (lambda rows: [*rows[1:], result(0, "a", 3, 4, 9)], (0, 0, 1)),
        (lambda rows: [*rows[:3], result(4, "a", 10, 1, 4), *rows[4:]], (0, 0, 1)),
    ],
    ids=["lost", "repeated", "of no row", "wrong value", "row of another key", "deleted row"],
)
def test_wrong_results_are_counted(
    damaged: Callable[[list[Record]], list[Record]], counts: tuple[int, int, int]
) -> None:
    checked = check_table_results(LEFT, RIGHT, damaged(OUTPUT), is_ordered=True)

    assert counts == (checked.losses, checked.duplicates, checked.phantoms)
    assert checked.problems


@pytest.mark.parametrize(
    ("left", "is_right_in_real_time"),
    [
        (result(1, "a", 5, 0, 1), True),
        (result(4, "a", 10, 0, 1), False),  # another one was read before
        (result(4, "a", 10, 1, 4), True),
    ],
)
def test_row_that_was_replaced_before_is_wrong_once_that_was_read(
    left: Record, is_right_in_real_time: bool
) -> None:
    others = [each for each in OUTPUT if _id(each) != _id(left)]

    for is_ordered, is_right in ((True, False), (False, is_right_in_real_time)):
        checked = check_table_results(LEFT, RIGHT, [*others, left], is_ordered=is_ordered)
        assert is_right == (checked.phantoms == 0)


def _id(record: Record) -> bytes:
    return record.headers["streamjoin-id"]
