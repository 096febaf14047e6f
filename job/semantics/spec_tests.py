"""Tests in a spec: input rows and the expected output.

    tests:
      - name: a click within the hour is attributed
        left:  [{ad_id: 1, shown_at: "2026-01-01T00:00:00Z"}]
        right: [{ad_id: 1, clicked_at: "2026-01-01T00:10:00Z"}]
        output: [{ad_id: 1, user: ann}]

A row is a record's value, or `{value: …, batch: 2, …}` as in the files of `simulate`
(records_of_jsonl). Output is compared as a multiset of rows, by the fields in the
test.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from job.plan.plan import JoinPlan
from job.semantics.input_records import InputLineError, records_of_jsonl
from job.semantics.simulate import SimulatedBatch, simulate
from job.semantics.simulated_topics import with_named_topics
from job.semantics.trace import DROPPED, failed_text, outcome, place
from job.spec.sides import SIDES
from job.sql.rows import SqlRows

Row = Mapping[str, Any]


@dataclass(frozen=True)
class SpecTest:
    name: str
    left: Sequence[Row] = ()
    right: Sequence[Row] = ()
    output: Sequence[Row] = ()


@dataclass(frozen=True)
class Outcome:
    test: SpecTest
    missing: Sequence[Row]
    """Expected rows without a matching result."""
    unexpected: Sequence[Row]
    """Results without a matching expected row."""
    left_out: Sequence[str] = ()
    """Records that become dead letters or fail the query."""

    @property
    def passed(self) -> bool:
        return not self.missing and not self.unexpected

    @property
    def as_json(self) -> dict[str, object]:
        return {
            "name": self.test.name,
            "passed": self.passed,
            "missing": self.missing,
            "unexpected": self.unexpected,
            "left_out": self.left_out,
        }


def run_spec_test(plan: JoinPlan, rows: SqlRows, test: SpecTest) -> Outcome:
    """Runs one test. InputLineError for a row that is not a record."""
    lines = {
        side: [_json(row, f"test {test.name!r}, {side} row {n}") for n, row in enumerate(rows, 1)]
        for side, rows in zip(SIDES, (test.left, test.right), strict=True)
    }
    plan = with_named_topics(plan, lines)
    left, right = (
        records_of_jsonl(lines[side], rows, plan.side(side), f"test {test.name!r}, {side} row")
        for side in SIDES
    )
    batches = simulate(plan, rows, left, right)
    unexpected = [json.loads(record.value) for batch in batches for record in batch.output]
    missing: list[Row] = []
    for expected in test.output:
        match = next((n for n, row in enumerate(unexpected) if _agrees(expected, row)), None)
        if match is None:
            missing.append(expected)
        else:
            del unexpected[match]
    return Outcome(test, missing, unexpected, list(_left_out(plan, batches)))


def _left_out(plan: JoinPlan, batches: Sequence[SimulatedBatch]) -> Iterator[str]:
    for drop in (drop for batch in batches for drop in batch.drops):
        what = outcome(plan, drop.reason)
        if what != DROPPED:
            detail = f"{drop.reason} in {drop.field}" if drop.field else drop.reason
            yield f"{drop.side} {place(drop.record)}: {what}, {detail}"
    for failed in (failed for batch in batches for failed in batch.failed_results):
        yield f"a result: {failed_text(plan, failed)}"


def _json(row: Row, where: str) -> str:
    try:
        return json.dumps(row)
    except (TypeError, ValueError) as error:
        raise InputLineError(
            f"{where}: has a value that JSON does not support ({error}): write text, numbers, "
            "true, false, null, lists and objects"
        ) from error


def _agrees(expected: Row, actual: Row) -> bool:
    return all(name in actual and _same(value, actual[name]) for name, value in expected.items())


def _same(expected: Any, actual: Any) -> bool:
    """Compares JSON values: 1 equals 1.0, but not true."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and _agrees(expected, actual)
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(_same, expected, actual))
    return isinstance(expected, bool) == isinstance(actual, bool) and bool(expected == actual)
