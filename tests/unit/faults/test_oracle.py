"""The oracle of the fault tests detects each kind of wrong result."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.oracle import Record, check_results, offset_log_problems

T0 = 1_700_000_000_000
HOUR_MS = 3_600_000


def record(topic: str, offset: int, value: Any) -> Record:
    return Record(topic, 0, offset, T0 + 10 * HOUR_MS, None, json.dumps(value).encode())


def result(identity: str, k: str | None, left: int | None, right: int | None) -> Record:
    result = record("out", 0, {"k": k, "l": left, "r": right})
    return replace(result, headers={"streamjoin-id": identity.encode()})


LEFT = [
    record("l", 0, {"k": "a", "t": T0, "n": 1}),
    record("l", 1, {"k": "alone", "t": T0, "n": 2}),
    record("l", 2, {"k": None, "t": T0, "n": 3}),
    record("l", 3, {"k": "b", "t": T0, "n": 4, "late": True}),
    replace(record("l", 4, None), value=b"\xff"),
    record("l", 9, {"k": "watermark l", "t": T0 + 3 * HOUR_MS, "n": 9}),
]
RIGHT = [
    record("r", 0, {"k": "a", "t": T0 - 60_000, "n": 5}),
    record("r", 1, {"k": "a", "t": T0 + 300_000, "n": 6}),
    record("r", 2, {"k": "a", "t": T0 + 300_001, "n": 7}),
    record("r", 3, {"k": "b", "t": T0, "n": 8}),
    record("r", 9, {"k": "watermark r", "t": T0 + 3 * HOUR_MS, "n": 10}),
]
OUTPUT = [
    result("l/0/0|r/0/0", "a", 1, 5),
    result("l/0/0|r/0/1", "a", 1, 6),
    result("l/0/1|", "alone", 2, None),
    result("l/0/2|", None, 3, None),
    result("|r/0/2", "a", None, 7),
    result("|r/0/3", "b", None, 8),
]


def test_what_is_right_is_found_right() -> None:
    result = check_results(LEFT, RIGHT, OUTPUT)

    assert [] == list(result.problems)
    assert (2, 4, 6, 1, 1) == (
        result.matched,
        result.unmatched,
        result.results,
        result.late_rows,
        result.unreadable,
    )


@pytest.mark.parametrize(
    ("damaged", "counts"),
    [
        (lambda rows: rows[1:], (1, 0, 0)),
        (lambda rows: [*rows, rows[0]], (0, 1, 0)),
        (lambda rows: [*rows, result("l/0/3|r/0/3", "b", 4, 8)], (0, 0, 1)),
        (lambda rows: [*rows, result("l/0/0|", "a", 1, None)], (0, 0, 1)),
        (lambda rows: [*rows[1:], result("l/0/0|r/0/0", "a", 1, 6)], (1, 0, 1)),
    ],
    ids=[
        "lost",
        "repeated",
        "joined to a late row",
        "unmatched in spite of a match",
        "wrong value",
    ],
)
def test_what_is_wrong_is_counted(
    damaged: Callable[[list[Record]], list[Record]], counts: tuple[int, int, int]
) -> None:
    result = check_results(LEFT, RIGHT, damaged(OUTPUT))

    assert counts == (result.losses, result.duplicates, result.phantoms)
    assert result.problems


@pytest.mark.parametrize(
    ("watermark", "offset", "is_right"), [(5, 7, True), (4, 7, False), (5, 6, False)]
)
def test_neither_watermark_nor_offsets_go_back(watermark: int, offset: int, is_right: bool) -> None:
    def entry(watermark: int, offset: int) -> str:
        return f'v2\n{{"batchWatermarkMs": {watermark}}}\nleft:{{"t":{{"0":{offset}}}}}'

    assert is_right == (offset_log_problems({9: entry(5, 7), 10: entry(watermark, offset)}) == [])
