"""Cases of other systems' tests of joins with a table, and of joins that pick one match.

A case in peers/ has the rows in and the rows out of a peer's test. With `differs` it has the rows
of this project as `out`, those of the peer as `peer`, and names the row of docs/other-systems.md
with the reason. `watermark` of a step is the event time up to which rows of the stream then have
their results.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from job.errors import SpecError
from job.plan.plan import JoinPlan
from job.plan.planner import join_plan
from job.semantics.input_records import InputRecord, records_of_jsonl
from job.semantics.simulate import SimulatedBatch, simulate
from job.spec.durations import milliseconds
from job.spec.sides import SIDES, Side
from job.spec.spec import spec_from_document
from tests.sql_worker import ROWS, SQL
from tests.unit.semantics.simulations import T

Row = Sequence[Any]

PAGE = (Path(__file__).parents[3] / "docs" / "other-systems.md").read_text()
FILES = {
    path.stem: yaml.load(path.read_text(), yaml.CSafeLoader)
    for path in sorted((Path(__file__).parent / "peers").glob("*.yaml"))
}
# All cases have the same columns: Spark compiles what differs.
SIDE = {
    "schema": "k STRING, k2 STRING, v STRING, n BIGINT, m BIGINT, op STRING, t TIMESTAMP",
    "key": ["record_key"],
}
DELETED = "op IN ('-U', '-D', '-1', 'true')"
COLUMNS = ("record_key", "k", "k2", "v", "n", "m")
SECONDS = f"unix_seconds({{}}.t) - {T // 1000}"
BASE = {
    "name": "peer",
    "kafka": {"bootstrap_servers": "localhost:9092"},
    "left": {"topic": "left", **SIDE},
    "right": {"topic": "right", **SIDE, "table": {"version": "latest", "delete": DELETED}},
    "join": {"type": "inner"},
    "output": {
        "topic": "results",
        "columns": {
            **{f"{side[0]}_{name}": f"{side}.{name}" for side in SIDES for name in COLUMNS},
            **{f"{side[0]}_t": SECONDS.format(side) for side in SIDES},
        },
        "delivery": "at_least_once",
    },
    "checkpoint": "./checkpoint",
    "on_bad_record": "drop",
}
# The sides of a join whose results wait for the watermark. A record that only advances the
# watermark is filtered. With `pick`, each side ends with one that is newer than all match windows.
TIMES = {
    "key": ["k", "coalesce(k2, '')"],
    "event_time": "t",
    "watermark_delay": "1 hour",
    "filter": "coalesce(record_key, '') <> 'watermark'",
    "table": None,
}
LAST_MS = 10**9
ROW_FIELDS = {"left": ("key", "v"), "right": ("key", "v"), "out": ("l_v", "r_v")}


@dataclass(frozen=True)
class Case:
    file: str
    test: str
    written: Mapping[str, Any]

    @property
    def steps(self) -> Sequence[Mapping[str, Any]]:
        return self.written["steps"]

    @property
    def spec(self) -> Mapping[str, Any]:
        return FILES[self.file]["specs"][self.written["spec"]]

    def fields(self, of: str) -> Sequence[str]:
        """Of a row of `left`, `right` or `out`: `key` is the key of the record."""
        return {**ROW_FIELDS, **self.spec.get("rows", {})}[of]

    @property
    def picks(self) -> bool:
        return "pick" in self.spec.get("join", {})

    @property
    def picks_latest(self) -> bool:
        """Of all right rows that are not newer."""
        join = self.spec.get("join", {})
        return join.get("pick") == "latest" and join["match_window"]["after"] == "0 s"

    @property
    def is_final(self) -> bool:
        table = self.spec.get("right", {}).get("table")
        return isinstance(table, dict) and "final" in table

    @property
    def is_backlog(self) -> bool:
        """All records exist from the start. Otherwise each step is a batch."""
        return "backlog" in self.written

    @property
    def emits_in_steps(self) -> bool:
        """Whether the results of each step are compared, or those of all."""
        return not self.picks and not self.is_backlog


def cases() -> Iterator[Case]:
    for file, written in FILES.items():
        for suite in written["suites"]:
            for case in suite.get("cases", ()):
                yield Case(file, f"{Path(suite['path']).stem}: {case['test']}", case)


CASES = list(cases())


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """None removes a field."""
    result = dict(base)
    for name, value in changes.items():
        inside = result.get(name)
        if isinstance(value, dict) and isinstance(inside, dict) and name != "columns":
            value = merged(inside, value)
        result[name] = value
    return {name: value for name, value in result.items() if value is not None}


def document(case: Case) -> dict[str, Any]:
    base = merged(BASE, dict.fromkeys(SIDES, TIMES)) if case.picks or case.is_final else BASE
    written = {field: part for field, part in case.spec.items() if field != "rows"}
    return merged(base, written)


def plan(case: Case) -> JoinPlan:
    return planned(json.dumps(document(case)))


@cache
def planned(spec: str) -> JoinPlan:
    return join_plan(spec_from_document(json.loads(spec)), SQL, state_partitions=1)


def line(row: Row, names: Sequence[str], batch: int | None, has_typed_keys: bool) -> str:
    """A row that has a key alone is a record without a value."""
    fields = dict(zip(names, row, strict=False))
    record: dict[str, Any] = {"record": True}
    if "key" in names:
        key = fields.pop("key")
        record["key"] = key if key is None or has_typed_keys else str(key)
    if batch is not None:
        record["batch"] = batch
    if fields.get("t") is not None:
        fields["t"] = T + round(1000 * fields["t"])
    record["value"] = fields.get("text", fields) if fields else None
    return json.dumps(record)


def watermark_line(after_ms: int, batch: int) -> str:
    value = {"t": T + after_ms}
    return json.dumps({"record": True, "key": "watermark", "value": value, "batch": batch})


def records(case: Case, side: Side) -> list[InputRecord]:
    """Every second batch is empty: it has the results of the watermark of the step before it."""
    of_side = plan(case).side(side)
    has_typed_keys = "key_format" in case.spec.get(side, {})
    lines = []
    for number, step in enumerate(case.steps):
        batch = None if case.is_backlog else 2 * number
        rows = step.get(side, ())
        lines += [line(row, case.fields(side), batch, has_typed_keys) for row in rows]
        if side == "left" and "watermark" in step:
            advanced = 1000 * step["watermark"] + milliseconds(of_side.watermark_delay) + 1
            lines.append(watermark_line(advanced, 2 * number))
    if case.picks:
        lines.append(watermark_line(LAST_MS, 2 * len(case.steps)))
    return records_of_jsonl(lines, ROWS, of_side)


def by_step(batches: Sequence[SimulatedBatch]) -> list[list[SimulatedBatch]]:
    """Each step has records, and then the batches without records."""
    steps: list[list[SimulatedBatch]] = []
    for batch in batches:
        if any(batch.records.values()):
            steps.append([])
        steps[-1].append(batch)
    return steps


def results(case: Case, batches: Iterable[SimulatedBatch]) -> Counter[tuple[str | None, ...]]:
    values = [json.loads(result.value) for batch in batches for result in batch.output]
    return counted([value[name] for name in case.fields("out")] for value in values)


def counted(rows: Iterable[Row]) -> Counter[tuple[str | None, ...]]:
    return Counter(tuple(None if value is None else str(value) for value in row) for row in rows)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if "refused" not in case.written],
    ids=lambda case: f"{case.file}, {case.test}",
)
def test_case_of_a_peer(case: Case) -> None:
    left, right = (records(case, side) for side in SIDES)

    steps = by_step(simulate(plan(case), ROWS, left, right))

    expected = [counted(step.get("out", ())) for step in case.steps]
    emitted = [results(case, batches) for batches in steps]
    if case.emits_in_steps:
        assert expected == emitted
    else:
        assert sum(expected, Counter()) == sum(emitted, Counter())
    for step, batches in zip(case.steps, steps, strict=False):
        dropped = sum(drop.side == "left" for batch in batches for drop in batch.drops)
        assert step.get("dropped", dropped) == dropped


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.picks_latest],
    ids=lambda case: f"{case.file}, {case.test}",
)
def test_latest_match_is_the_version_of_its_time(case: Case) -> None:
    """No row of a case is older than the match window."""
    table = {
        "right": {"table": {"version": "as_of", "final": True}},
        "join": {"match_window": None, "pick": None},
    }
    as_of = planned(json.dumps(merged(document(case), table)))

    batches = simulate(as_of, ROWS, *(records(case, side) for side in SIDES))

    expected = [counted(step.get("out", ())) for step in case.steps]
    assert sum(expected, Counter()) == results(case, batches)


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if "refused" in case.written],
    ids=lambda case: f"{case.file}, {case.test}",
)
def test_spec_that_a_peer_refuses_is_refused(case: Case) -> None:
    with pytest.raises(SpecError) as refused:
        plan(case)

    assert [case.written["refused"]] == [problem.field for problem in refused.value.problems]


def test_differences_are_documented() -> None:
    documented = {text.split(" | ")[0].removeprefix("| ") for text in PAGE.splitlines()}

    assert {case.written["differs"] for case in CASES if "differs" in case.written} <= documented


def test_only_a_case_that_differs_has_other_rows_of_the_peer() -> None:
    for case in CASES:
        steps = case.written.get("steps", ())
        differs = any(step.get("peer") not in (None, step.get("out", [])) for step in steps)

        assert differs == ("differs" in case.written), case.test


def test_page_has_the_numbers_of_the_cases() -> None:
    rows = {}
    for file, written in FILES.items():
        of_file = [case for case in CASES if case.file == file]
        different = sum("differs" in case.written for case in of_file)
        not_expressible = sum(
            sum(suite.get("not_expressible", {}).values()) for suite in written["suites"]
        )
        numbers = f"{len(of_file) - different} | {different} | {not_expressible}"
        rows[f"| {written['repository']}"] = f"{numbers} |"
    of_page = [text.partition(" | ") for text in PAGE.splitlines()]

    assert rows == {name: numbers for name, _, numbers in of_page if name in rows}
