"""Results of the simulated join agree with the specification, and each planted difference is
reported."""

import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from job.compare.span import Span
from job.errors import StreamjoinError
from job.explain.evaluation import place_of
from job.plan.plan import JoinPlan
from job.plan.result_id import Place, places
from job.semantics.input_records import InputRecord, records_of_jsonl
from job.semantics.simulate import simulate
from job.semantics.topic_records import TopicRecords
from job.spec.join_conditions import JoinType
from job.spec.sides import SIDES, Side
from job.verify import expected as expected_module
from job.verify.absent import OutputRead
from job.verify.comparison import Comparison, Difference, NotChecked
from job.verify.expected import Expected, expected_results
from job.verify.joined import InputsRead, PartitionOffsets, Progress
from job.verify.report import Report
from job.verify.topics import WrittenResult
from job.verify.verification import Verification
from tests.sql_worker import ROWS
from tests.unit.semantics.simulations import T, plan, row

COMPLETE = InputsRead(None, {"left": None, "right": None})
ALL_KEPT = OutputRead(None, may_lack_any=False, bytes_max=1_000_000)
ALL_READ: dict[tuple[Side, str, int], int] = {
    (side, topic, partition): 100
    for side, topic in zip(SIDES, "lr", strict=True)
    for partition in (0, 1)
}
ALL = Span({}, {place[1:]: offset for place, offset in ALL_READ.items()})

# By batch. Left 0 matches right 0. Left 1 has no match, 2 fails the filter, 3 is bad. Left 5
# matches right 2, and is late: the watermark is that of the rows at 300 s.
LEFT = {0: [row(1, 0, 1), row(2, 0, 2), row(3, 0, -1), "{", row(9, 300, 9)], 3: [row(5, 100, 5)]}
RIGHT = {0: [row(1, 3, 6), row(9, 300, 7), row(5, 101, 8)], 1: [row(8, 300)], 2: [row(8, 300)]}


def records(batches: Mapping[int, Sequence[str]], *, partitions: int) -> list[InputRecord]:
    lines = [line for batch in batches.values() for line in batch]
    numbers = [number for number, batch in batches.items() for _ in batch]
    return [
        replace(
            record,
            timestamp_us=(T + record.offset) * 1000,
            batch=number,
            partition=record.offset % partitions,
        )
        for number, record in zip(numbers, records_of_jsonl(lines, ROWS), strict=True)
    ]


@cache
def made(**changes: Any) -> JoinPlan:
    return plan(**{"join__type": "full_outer", "left__filter": "v >= 0", **changes})


class Joined:
    """Records, what the specification gives for them, and the results of a simulated join."""

    def __init__(
        self,
        made: JoinPlan,
        left: Mapping[int, Sequence[str]] = LEFT,
        right: Mapping[int, Sequence[str]] = RIGHT,
        *,
        partitions: int = 1,
    ) -> None:
        self.plan = made
        self.records: dict[Side, list[InputRecord]] = {
            "left": records(left, partitions=partitions),
            "right": records(right, partitions=partitions),
        }
        batches = simulate(made, ROWS, *self.records.values())
        self.watermark_ms = batches[-1].watermarks.eviction
        self.late = [drop for batch in batches for drop in batch.drops if drop.reason == "late"]
        self.results = [
            WrittenResult(
                {
                    side: place_of(made.side(side), record)
                    for side, record in zip(SIDES, (result.left, result.right), strict=True)
                    if record is not None and side in made.join_type.shown_sides
                },
                Place("o", 0, offset),
                result.key,
                result.value,
                None,
            )
            for offset, result in enumerate(each for batch in batches for each in batch.output)
        ]
        self.expected: Expected = expected_results(
            made, ROWS, TopicRecords(made, None), self.records
        )

    @property
    def progress(self) -> Progress:
        return Progress(ALL_READ, self.watermark_ms, None)

    def verified(
        self,
        results: Sequence[WrittenResult] | None = None,
        inputs: InputsRead = COMPLETE,
        output: OutputRead = ALL_KEPT,
        progress: Progress | None = None,
        change: PartitionOffsets | None = None,
    ) -> Comparison:
        verification = Verification(self.plan, self.expected, ALL, change=change)
        for result in self.results if results is None else results:
            verification.add(result)
        return verification.compared(inputs, output, progress or self.progress)


@cache
def joined(**changes: Any) -> Joined:
    return Joined(made(**changes))


def result(of: str, value: dict[str, Any] | None = None, offset: int = 50) -> WrittenResult:
    text = json.dumps(value, separators=(",", ":"))
    return WrittenResult(places(of), Place("o", 0, offset), None, text, None)


def without(results: Sequence[WrittenResult], of: str) -> list[WrittenResult]:
    kept = [each for each in results if each.records != places(of)]
    assert len(kept) == len(results) - 1, of
    return kept


def shown(comparison: Comparison) -> dict[str, str]:
    """The differences with their ids and reasons."""
    return {
        f"{kind} {each.id}": each.reason for kind in Difference for each in comparison.shown[kind]
    }


@pytest.mark.parametrize("join_type", list(JoinType))
def test_simulated_results_agree_with_late_rows_and_out_of_order(join_type: JoinType) -> None:
    dice = random.Random(7)
    sides = [
        {
            batch: [
                row(dice.randint(0, 5), 9 * batch - dice.choice((0, 2, 7, 40)), dice.randint(-1, 9))
                for _ in range(9)
            ]
            for batch in range(9)
        }
        for _ in SIDES
    ]
    columns = {f"{side}_v": f"{side}.v" for side in join_type.shown_sides}
    of_type = Joined(
        made(
            join__type=str(join_type),
            join__condition="left.v <> right.v",
            output__columns=_Columns(columns),
            output__filter="coalesce(" + ", ".join(columns.values()) + ") <> 7",
        ),
        *sides,
        partitions=2,
    )
    assert of_type.late

    comparison = of_type.verified()

    assert {} == shown(comparison)
    checked = comparison.agree + comparison.results_not_checked.total()
    assert (len(of_type.results), True) == (checked, comparison.agree > 5)
    found = 0
    for lost in range(0, len(of_type.results), 3):
        rest = of_type.results[:lost] + of_type.results[lost + 1 :]
        differences = of_type.verified(rest).differences
        assert differences.keys() <= {Difference.MISSING}
        found += differences.total()
    assert found


# Of `joined()`, one planted difference each.
PAIR, ALONE = "l/0/0|r/0/0", "l/0/1|"
Plant = Callable[[list[WrittenResult]], list[WrittenResult]]


def added(of: str, value: dict[str, Any] | None = None) -> Plant:
    return lambda results: [*results, result(of, value)]


@pytest.mark.parametrize(
    ("plant", "difference"),
    [
        (lambda results: without(results, PAIR), {f"missing {PAIR}": "the query has joined"}),
        (lambda results: without(results, ALONE), {f"missing {ALONE}": "the query has joined"}),
        (added("l/0/0|r/0/1"), {"unexplained l/0/0|r/0/1": "the rows do not match"}),
        (added("l/0/0|"), {"unexplained l/0/0|": "the row is in another result with its match"}),
        (
            lambda results: [
                *without(results, PAIR),
                result("l/0/0|", {"k": 1, "v": 1, "rv": None}),
            ],
            {"unexplained l/0/0|": "right r/0/0 matches the row", f"missing {PAIR}": "the query"},
        ),
        (added("l/0/2|"), {"unexplained l/0/2|": "left l/0/2 does not pass left.filter"}),
        (added("l/0/3|"), {"unexplained l/0/3|": "left l/0/3 is a bad record (malformed_json)"}),
        (added("l/0/7|"), {"unexplained l/0/7|": "left l/0/7 is no record of the topic"}),
        (
            lambda results: [*results, *(each for each in results if each.records == places(PAIR))],
            {f"duplicates {PAIR}": "another record has the id"},
        ),
        (
            added(PAIR, {"k": 9}),
            {
                f"duplicates {PAIR}": "another record has the id",
                f"different {PAIR}": 'value {"k":9} instead of {"k":1,',
            },
        ),
        (
            lambda results: [*without(results, ALONE), result(ALONE, {"k": 1})],
            {f"different {ALONE}": 'value {"k":1} instead of {"k":2,'},
        ),
    ],
)
def test_planted_difference_is_reported(plant: Plant, difference: dict[str, str]) -> None:
    comparison = joined().verified(plant(joined().results))

    found = shown(comparison)
    assert difference.keys() == found.keys()
    for name, reason in difference.items():
        assert found[name].startswith(reason)
    only_duplicates = {name.split()[0] for name in found} == {"duplicates"}
    assert comparison.agrees is (comparison.allows_duplicates and only_duplicates)


def test_results_of_a_join_type_that_does_not_emit_them_are_reported() -> None:
    inner, semi = (
        joined(join__type="inner"),
        joined(join__type="left_semi", output__columns=_Columns(k="left.k")),
    )

    of_inner = inner.verified([*inner.results, result("l/0/1|")])
    of_semi = semi.verified([*semi.results, result(PAIR), result("l/0/1|", {"k": 2})])

    assert {"unexplained l/0/1|": "a inner join emits no left row alone"} == shown(of_inner)
    assert {
        f"unexplained {PAIR}": "a left_semi join emits no pairs",
        "unexplained l/0/1|": "no row matches",
    } == shown(of_semi)


def not_checked(comparison: Comparison) -> tuple[dict[str, int], dict[str, int]]:
    """Of results, and of expected results."""
    assert {} == shown(comparison)
    return dict(comparison.results_not_checked), dict(comparison.expected_not_checked)


def test_what_is_not_certain_is_counted_and_no_difference() -> None:
    of = joined()
    [late] = of.late
    assert 5 == late.record.offset

    # The right row was emitted as unmatched, and its pair was not. Two rows wait for a match.
    assert (
        {NotChecked.LATE_OR_DUPLICATE: 1},
        {NotChecked.LATE_OR_DUPLICATE: 1, NotChecked.NOT_EMITTED_YET: 2},
    ) == not_checked(of.verified())

    lost = without(of.results, PAIR)
    unread = replace(of.progress, next_offsets={**ALL_READ, ("right", "r", 0): 0})
    assert 4 == not_checked(of.verified(lost, progress=unread))[1][NotChecked.NOT_EMITTED_YET]
    removed = OutputRead(T + 100, may_lack_any=False, bytes_max=1_000)
    assert 1 == not_checked(of.verified(lost, output=removed))[1][NotChecked.MAY_BE_REMOVED]
    small = OutputRead(None, may_lack_any=False, bytes_max=30)
    assert 1 == not_checked(of.verified(lost, output=small))[1][NotChecked.MAY_BE_TOO_LARGE]
    later = [*of.results, result("l/0/0|r/0/100"), replace(of.results[0], records=None)]
    counted, _ = not_checked(of.verified(later))
    assert (1, 1) == (counted[NotChecked.RECORD_NOT_READ], counted[NotChecked.WITHOUT_ID])
    from_later = InputsRead(None, {"left": None, "right": T})
    assert 1 == not_checked(of.verified(inputs=from_later))[0][NotChecked.MATCH_NOT_READ]


def test_results_of_rows_that_the_query_before_a_change_has_read_are_not_compared() -> None:
    of = joined()
    # The query before has read the left rows of key 1 and 2, and has emitted them differently.
    change: PartitionOffsets = {("left", "l", 0): 2}
    before = [result("l/0/0|", {"k": 1}), result("l/0/1|", {"k": 7})]
    results = [*without(without(of.results, PAIR), ALONE), *before]
    assert of.verified(results).differences

    of_results, expected = not_checked(of.verified(results, change=change))

    assert 2 == of_results[NotChecked.BEFORE_CHANGE]
    assert 2 == expected[NotChecked.BEFORE_CHANGE]
    # A later row is compared, unless it matches one from before the change.
    assert of.verified(without(of.results, "l/0/4|r/0/1"), change=change).differences


def test_too_many_pairs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected_module, "_PAIRS_MAX", 1)

    with pytest.raises(StreamjoinError, match="more than 1 pairs of these records"):
        Joined(made())


def test_report_has_counts_reasons_and_places() -> None:
    forged = result("l/0/0|r/0/1")

    report = Report(joined().verified([*joined().results, forged]), ["l: 6 records"])

    assert "  not given by the specification            1" in report.text
    assert "  l/0/0|r/0/1 at o/0/50: the rows do not match" in report.text
    assert report.text.endswith("The output differs from the specification.")
    facts = report.as_json
    assert (False, 1) == (facts["agrees"], facts["counts"]["unexplained"])
    assert ["o/0/50"] == [each["at"] for each in facts["shown"]["unexplained"]]


class _Columns(dict[str, str]):
    """A dictionary that can be cached."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(repr(self))
