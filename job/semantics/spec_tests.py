"""Tests written into a spec: input rows and the output they must give.

    tests:
      - name: a click within the hour is attributed
        left:  [{ad_id: 1, shown_at: "2026-01-01T00:00:00Z"}]
        right: [{ad_id: 1, clicked_at: "2026-01-01T00:10:00Z"}]
        output: [{ad_id: 1, user: ann}]

A row is a record's value, or `{value: …, batch: 2, …}` as in the files of `simulate`. Output is
compared as a set of rows that may repeat, by the fields the test names.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from job.plan.model import JoinPlan
from job.semantics.json_records import records_of_jsonl
from job.semantics.simulate import SimulatedBatch, place, simulate
from job.semantics.story import DROPPED, failed_text, fate

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
    """Expected and not there."""
    unexpected: Sequence[Row]
    """There and not expected."""
    left_out: Sequence[str] = ()
    """What became of the records that go to the dead letters, or at which the query fails."""

    @property
    def passed(self) -> bool:
        return not self.missing and not self.unexpected


def run_spec_test(plan: JoinPlan, test: SpecTest) -> Outcome:
    left, right = (
        records_of_jsonl([json.dumps(r) for r in rows]) for rows in (test.left, test.right)
    )
    batches = simulate(plan, left, right)
    unexpected = [json.loads(record.value) for batch in batches for record in batch.output]
    missing: list[Row] = []
    for expected in test.output:
        match = next((row for row in unexpected if _agrees(expected, row)), None)
        if match is None:
            missing.append(expected)
        else:
            unexpected.remove(match)
    return Outcome(test, missing, unexpected, list(_left_out(plan, batches)))


def _left_out(plan: JoinPlan, batches: Sequence[SimulatedBatch]) -> Iterator[str]:
    for drop in (drop for batch in batches for drop in batch.drops):
        what = fate(plan, drop.reason)
        if what != DROPPED:
            said = f"{drop.reason} in {drop.field}" if drop.field else drop.reason
            yield f"{drop.side} {place(drop.record)}: {what}, {said}"
    for failed in (failed for batch in batches for failed in batch.failed_results):
        yield f"a result: {failed_text(plan, failed)}"


def _agrees(expected: Row, actual: Row) -> bool:
    return all(name in actual and actual[name] == value for name, value in expected.items())
