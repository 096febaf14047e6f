"""The comparison of the demo: equal for equal results, and it finds every planted difference."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from deploy.demo.check import CheckResult, check_result
from deploy.demo.joins import STREAMS
from deploy.demo.load import (
    Click,
    Delivered,
    Impression,
    OutputRow,
    bad_record,
    expected_rows,
)
from deploy.demo.service import Figures
from job.spec.engine import Engine
from tests.unit.service.builders import query_after

SHOWN_MS = 1_790_000_000_000
RECORDS = (
    Impression(1, SHOWN_MS),
    Impression(None, SHOWN_MS),
    bad_record("left", "tombstone", SHOWN_MS),
    Click(1, SHOWN_MS),
    bad_record("right", "malformed_json", SHOWN_MS),
)
DELIVERED = [Delivered(record, 0, offset) for offset, record in enumerate(RECORDS)]
OUTPUT = expected_rows(DELIVERED)
COUNTED = {
    "output_records_total": 2,
    "bad_records_total{left,tombstone}": 1,
    "bad_records_total{right,malformed_json}": 1,
    "null_key_records_total{left}": 1,
}


def test_expected_rows_are_right_in_any_order() -> None:
    assert result_of(OUTPUT[::-1], figures()).is_right


@pytest.mark.parametrize(
    ("planted", "wrong"),
    [
        (lambda rows: rows[1:], {"output rows", "  missing"}),
        (lambda rows: [*rows, replace(rows[0], id="clicks/9/9|")], {"output rows", "  unexpected"}),
        (lambda rows: [replace(rows[0], key="2"), *rows[1:]], {"  missing", "  unexpected"}),
        (lambda rows: [replace(rows[0], value="{}"), *rows[1:]], {"  missing", "  unexpected"}),
        (lambda rows: [*rows, rows[0]], {"  repeated"}),
    ],
)
def test_difference_in_the_output_is_wrong(
    planted: Callable[[list[OutputRow]], list[OutputRow]], wrong: set[str]
) -> None:
    output = planted(OUTPUT)

    assert wrong == wrongs(result_of(output, figures(output_records_total=len(output))))


def test_repeated_row_is_right_after_a_restart() -> None:
    counted = figures(output_records_total=3, query_restarts_total=1)

    result = result_of([*OUTPUT, OUTPUT[0]], counted)

    assert result.is_right
    assert [OUTPUT[0]] == result.differences.repeated


def test_unreported_counts_of_a_batch_are_right_after_a_restart() -> None:
    counted = figures(output_records_total=1, query_restarts_total=1)

    assert result_of(OUTPUT, counted).is_right
    assert "  missing" in wrongs(result_of(OUTPUT[1:], counted))
    again = replace(OUTPUT[0], id="impressions/9/9|")
    assert "  unexpected" in wrongs(result_of([*OUTPUT, again], counted))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("output_records_total", "rows out, by the job's count"),
        ("late_rows_total", "late rows"),
        ("bad_records_total{left,tombstone}", "  tombstone"),
        ("bad_records_total{right,tombstone}", "  tombstone"),
        ("null_key_records_total{right}", "  null keys"),
    ],
)
def test_count_that_is_off_is_wrong(name: str, wrong: str) -> None:
    off = figures(**{name: COUNTED.get(name, 0) + 1})

    assert {wrong} == wrongs(result_of(OUTPUT, off))


def test_bad_record_that_was_not_counted_is_wrong() -> None:
    not_counted = figures(**{"bad_records_total{left,tombstone}": 0})

    assert {"  tombstone"} == wrongs(result_of(OUTPUT, not_counted))


def test_record_that_was_not_read_is_wrong() -> None:
    unread = Delivered(Click(None, SHOWN_MS), 1, 0)

    assert "clicks read" in wrongs(result_of(OUTPUT, figures(), [*DELIVERED, unread]))


def result_of(
    output: list[OutputRow], counted: Figures, delivered: list[Delivered] = DELIVERED
) -> CheckResult:
    return check_result(STREAMS, Engine.MICRO_BATCH, delivered, output, counted)


def figures(**other: int) -> Figures:
    """The counts that the job must report for RECORDS, with these changes."""
    counted = {_sample(name): float(count) for name, count in {**COUNTED, **other}.items()}
    return Figures(query_after(left=3, right=2), counted)


def wrongs(result: CheckResult) -> set[str]:
    assert not result.is_right
    return {finding.what for finding in result.findings if not finding.is_right}


def _sample(name: str) -> tuple[str, frozenset[tuple[str, str]]]:
    """The lookup key of `name{left,tombstone}`."""
    metric, _, labels = name.rstrip("}").partition("{")
    named = zip(("side", "reason"), labels.split(","), strict=False) if labels else ()
    return f"streamjoin_{metric}", frozenset(named)
