"""The oracle of a final as-of join detects each kind of wrong result."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.faults.final_oracle import check_final_results, rows_in_state
from tests.faults.oracle import DELAY_MS, Record

T0 = 1_700_000_000_000
HOUR_MS = 3_600_000


def record(topic: str, offset: int, k: str | None, t: int, n: int) -> Record:
    value = {"k": k, "t": T0 + t, "n": n}
    return Record(topic, 0, offset, T0 + 9 * HOUR_MS, None, json.dumps(value).encode())


def result(left: int, k: str | None, n: int, match: int | None, right_n: int | None) -> Record:
    value = json.dumps({"k": k, "l": n, "r": right_n}).encode()
    headers = {"streamjoin-id": f"l/0/{left}|".encode()}
    if match is not None:
        headers["streamjoin-match"] = f"r/0/{match}".encode()
    return Record("out", 0, 0, T0, None, value, headers)


RIGHT = [
    record("r", 0, "a", 20, 1),
    record("r", 1, "a", 10, 2),  # out of order
    record("r", 2, "a", 30, 10),  # deletes the key
    record("r", 3, "b", 10, 3),
    record("r", 4, "b", 10, 4),
    record("r", 5, None, 10, 5),
]
LEFT = [
    record("l", 0, "a", 9, 11),
    record("l", 1, "a", 19, 12),
    record("l", 2, "a", 29, 13),
    record("l", 3, "a", 31, 14),
    record("l", 4, "b", 11, 15),
    record("l", 5, None, 11, 16),
    record("l", 6, "later", 2 * DELAY_MS + 32, 17),
]
OUTPUT = [
    result(0, "a", 11, None, None),
    result(1, "a", 12, 1, 2),
    result(2, "a", 13, 0, 1),
    result(3, "a", 14, None, None),
    result(4, "b", 15, 4, 4),
    result(5, None, 16, None, None),
]


def test_right_results_are_accepted() -> None:
    checked = check_final_results(LEFT, RIGHT, OUTPUT)

    assert [] == checked.problems
    assert (6, 3, 3) == (checked.left_rows, checked.matched, checked.unmatched)


@pytest.mark.parametrize(
    ("damaged", "counts"),
    [
        (lambda rows: rows[1:], (1, 0, 0)),
        (lambda rows: [*rows, rows[1]], (0, 1, 0)),
        (lambda rows: [*rows, result(6, "later", 17, None, None)], (0, 0, 1)),
        (lambda rows: [result(0, "a", 11, 1, 2), *rows[1:]], (0, 0, 1)),
        (lambda rows: [*rows[:2], result(2, "a", 13, 1, 2), *rows[3:]], (0, 0, 1)),
        (lambda rows: [*rows[:3], result(3, "a", 14, 0, 1), *rows[4:]], (0, 0, 1)),
        (lambda rows: [*rows[:4], result(4, "b", 15, 3, 3), *rows[5:]], (0, 0, 1)),
    ],
    ids=["lost", "repeated", "too early", "later", "replaced", "deleted", "first of two"],
)
def test_wrong_results_are_counted(
    damaged: Callable[[list[Record]], list[Record]], counts: tuple[int, int, int]
) -> None:
    checked = check_final_results(LEFT, RIGHT, damaged(OUTPUT))

    assert counts == (checked.losses, checked.duplicates, checked.phantoms)
    assert checked.problems


def test_late_row_has_no_result() -> None:
    late = record("l", 7, "a", 19, 18)
    late = replace(late, value=json.dumps({"k": "a", "t": T0 + 19, "n": 18, "late": True}).encode())

    checked = check_final_results([*LEFT, late], RIGHT, OUTPUT)

    assert [] == checked.problems
    assert 1 == checked.late_rows


def test_deleted_key_is_in_state_until_no_older_version_can_come() -> None:
    waits, versions = 1, 2

    assert waits + versions == rows_in_state(LEFT, RIGHT)
    much_later = record("l", 7, "later", 5 * HOUR_MS, 18)
    assert waits + versions - 1 == rows_in_state([*LEFT, much_later], RIGHT)
