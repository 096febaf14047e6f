"""What the plan of a change states about rows near the cut, checked with the specification."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any

import pytest

from job.change.comparison import compare
from job.instants import from_epoch_ms, utc_text
from job.plan.plan import JoinPlan
from job.semantics.backlog import PlannedBatch
from job.semantics.event_time import WatermarkTracker
from job.semantics.input_records import InputRecord, records_of_jsonl
from job.semantics.simulate import OutputRecord, ReadRecords, Simulator
from job.semantics.simulation_plan import SimulationPlan, simulation_plan
from job.spec.sides import OTHER_SIDE, SIDES, Side
from tests.sql_worker import ROWS
from tests.unit.specs import BASE, plan

T = 1_700_000_000_000
DELAY_MS = 5_000
EVENT_TIME: dict[Side, str] = {"left": "shown_at", "right": "clicked_at"}
CASES = 12

Result = tuple[int | None, int | None]
"""Offsets of the record of the side that is checked, and of the other one."""

WINDOWS = {
    "usual": {"before": "10 seconds", "after": "20 seconds"},
    "narrower": {"before": "2 seconds", "after": "6 seconds"},
    "other": {"before": "2 seconds", "after": "30 seconds"},
}
ONLY_OLD = "that only the old spec matches with a record before the cut are emitted as unmatched"
ONLY_NEW = (
    "that only the new spec matches with a record before the cut are not emitted as unmatched"
)
EXPIRED = "that have expired at the cut by the new spec, and not by the old one, are not emitted"
AGAIN = "are emitted again, with the same id, if a record after the cut matches them"
NEVER = "that only the new spec matches with a record before the cut are not emitted."


class ReplayTracker(WatermarkTracker):
    """Sets the watermark of the cut after the first batch."""

    cut_ms: int | None = None

    def advance(self) -> int:
        if self.cut_ms is None:
            return super().advance()
        self.watermark_ms, self.cut_ms = self.cut_ms, None
        return self.watermark_ms


@dataclass(frozen=True)
class Input:
    left: list[InputRecord]
    right: list[InputRecord]

    @property
    def size(self) -> int:
        return len(self.left)


@dataclass(frozen=True)
class Read:
    """Input that a plan has read."""

    made: Input
    read: ReadRecords

    def batch(self, left: slice, right: slice) -> tuple[PlannedBatch, ReadRecords]:
        """These records, for a simulator of the plan."""
        planned = PlannedBatch(self.made.left[left], self.made.right[right])
        return planned, {"left": self.read["left"][left], "right": self.read["right"][right]}

    def both(self, part: slice) -> tuple[PlannedBatch, ReadRecords]:
        return self.batch(part, part)


@dataclass(frozen=True)
class MatchRule:
    """Which rows match. `window` and `changed` name those of a checked left side."""

    window: str
    changed: str | None = None
    """Part of the spec that differs from the usual one."""
    on_null_key: str = "pass"


@cache
def rows(checked: Side, seed: int, keys: int = 7, size: int = 16) -> Input:
    """No row is late. The last ones of both sides let all others expire. The checked side has the
    same event times, whether it is left or right."""
    chosen = random.Random(seed)

    def records(side: Side) -> list[InputRecord]:
        lines = []
        for number in range(size):
            at = T + number * 2_000 + chosen.randrange(DELAY_MS // 2)
            lines.append({"ad_id": chosen.randrange(keys), EVENT_TIME[side]: _text(at)})
        lines.append({"ad_id": -1, EVENT_TIME[side]: _text(T + 10_000_000)})
        return records_of_jsonl([json.dumps(one) for one in lines], ROWS)

    made = {side: records(side) for side in (checked, OTHER_SIDE[checked])}
    return Input(made["left"], made["right"])


def _text(at_ms: int) -> str:
    return utc_text(from_epoch_ms(at_ms))


@cache
def joined(checked: Side, join_type: str, rule: MatchRule) -> JoinPlan:
    """`join_type` is that of a checked left side."""
    delay = f"{DELAY_MS} milliseconds"
    columns = {"l": "left.ad_id", "r": "right.ad_id"}
    if join_type.endswith(("semi", "anti")):
        columns = {"ad_id": f"{checked}.ad_id"}
    window = WINDOWS[rule.window]
    if checked == "right":
        join_type = join_type.replace("left", "right")
        window = {"before": window["after"], "after": window["before"]}
    join: dict[str, Any] = {"type": join_type, "match_window": window}
    changes: dict[str, Any] = {}
    match rule.changed:
        case "condition":
            join["condition"] = "right.clicked_at > left.shown_at"
        case "key":
            changes = {"left__key": ["ad_id % 3"], "right__key": ["ad_id % 3"]}
        case "filter":
            changes = {f"{OTHER_SIDE[checked]}__filter": "ad_id % 2 = 0"}
    return plan(
        left__watermark_delay=delay,
        right__watermark_delay=delay,
        join=join,
        output={**BASE["output"], "columns": columns},
        on_null_key=rule.on_null_key,
        **changes,
    )


@cache
def simulated(checked: Side, join_type: str, rule: MatchRule) -> SimulationPlan:
    return simulation_plan(joined(checked, join_type, rule), ROWS)


@cache
def read(checked: Side, join_type: str, rule: MatchRule, seed: int) -> Read:
    """The rows of the seed. Reading takes most of a batch, so each plan reads them once."""
    made = rows(checked, seed)
    simulator = Simulator(simulated(checked, join_type, rule))
    return Read(made, simulator.read(PlannedBatch(made.left, made.right)))


def changed_results(
    checked: Side, old: SimulationPlan, new: SimulationPlan, of: Sequence[Read], end: int
) -> tuple[list[Result], list[Result]]:
    """The results of the old query before the cut, and of the new one after it. Both sides are cut
    at the offset `end`. `of`: what each query has read."""
    of_first, of_second = of
    first = Simulator(old)
    batches = [first.run_batch(*of_first.both(slice(end // 2)))]
    batches.append(first.run_batch(*of_first.both(slice(end // 2, end))))
    while first.needs_batch_without_data():
        batches.append(first.run_batch(PlannedBatch()))
    cut_ms = batches[-1].watermarks.eviction

    second = Simulator(new)
    tracker = ReplayTracker(second._query._tracker.delays_ms)
    second._query._tracker = tracker
    second.run_batch(*of_second.batch(slice(end), slice(end - 1)))
    tracker.cut_ms = cut_ms
    second.run_batch(*of_second.batch(slice(0), slice(end - 1, end)))
    after = second.run_batch(*of_second.both(slice(end, None))).output
    while second.needs_batch_without_data():
        after += second.run_batch(PlannedBatch()).output
    kept_ms = {each.side: each.kept_ms for each in compare(old.join, new.join).expired}
    results = [_offsets(checked, one) for batch in batches for one in batch.output]
    delivered = [
        _offsets(checked, one)
        for one in after
        if not any(_was_emitted(one, side, kept, end, cut_ms) for side, kept in kept_ms.items())
    ]
    return results, delivered


def _offsets(checked: Side, result: OutputRecord) -> Result:
    records = {"left": result.left, "right": result.right}
    own, other = records[checked], records[OTHER_SIDE[checked]]
    return (None if own is None else own.offset, None if other is None else other.offset)


def _was_emitted(
    result: OutputRecord, side: Side, kept_ms: int | None, end: int, cut_ms: int
) -> bool:
    """As kept_back in job/dataflow/replay_sql.py."""
    records = {"left": result.left, "right": result.right}
    own, other = records[side], records[OTHER_SIDE[side]]
    if kept_ms is None or own is None or other is not None:
        return False
    at = datetime.fromisoformat(json.loads(own.value or "")[EVENT_TIME[side]])
    return own.offset < end and at.timestamp() * 1000 + kept_ms < cut_ms


@cache
def matches(checked: Side, rule: MatchRule, seed: int, end: int) -> set[int]:
    """Offsets of the rows of the checked side that match a row of the other one. Both are before
    the offset `end`."""
    simulator = Simulator(simulated(checked, "inner", rule))
    results = simulator.run_batch(*read(checked, "inner", rule, seed).both(slice(end))).output
    return {own or 0 for own, _ in (_offsets(checked, result) for result in results)}


CHANGES = [
    ("left_outer", "left_outer"),
    ("inner", "left_outer"),
    ("left_semi", "left_semi"),
    ("left_anti", "left_anti"),
    ("left_outer", "left_semi"),
    ("inner", "full_outer"),
    ("full_outer", "full_outer"),
]


@pytest.mark.parametrize("checked", SIDES)
@pytest.mark.parametrize("types", CHANGES)
@pytest.mark.parametrize(
    "windows",
    [("usual", "narrower"), ("narrower", "usual"), ("usual", "other"), ("usual", "usual")],
)
def test_plan_states_which_rows_contradict_or_are_missing(
    checked: Side, types: tuple[str, str], windows: tuple[str, str]
) -> None:
    """Each such row is one that the plan names, and each sentence has such a row."""
    stated, found = stated_and_found(checked, types, [MatchRule(window) for window in windows])

    assert stated == found


@pytest.mark.parametrize("checked", SIDES)
@pytest.mark.parametrize("join_type", ["left_outer", "left_semi", "left_anti", "full_outer"])
@pytest.mark.parametrize("change", ["condition", "key", "filter"])
@pytest.mark.parametrize("is_set", [True, False], ids=["set", "removed"])
def test_plan_states_which_rows_contradict_or_are_missing_after_a_change_of_the_match_rule(
    checked: Side, join_type: str, change: str, is_set: bool
) -> None:
    """Each such row is one that the plan names. The plan does not compare expressions, so for each
    change it names rows that only the old spec matches and rows that only the new one matches."""
    rules = [MatchRule("usual", each, "drop") for each in (None, change)]

    stated, found = stated_and_found(
        checked, (join_type, join_type), rules if is_set else rules[::-1]
    )

    assert found <= stated
    matches_more = is_set == (change == "key")
    if matches_more:
        assert found & {ONLY_NEW, NEVER}
    elif join_type.endswith("outer"):
        assert ONLY_OLD in found


def stated_and_found(
    checked: Side, types: tuple[str, str], rules: Sequence[MatchRule]
) -> tuple[set[str], set[str]]:
    """The sentences of the plan about the checked side, and those that the results need.

    `types`, `rules`: old and new.
    """
    old, new = (joined(checked, *one) for one in zip(types, rules, strict=True))
    new = replace(new, checkpoint="/checkpoints/next")
    stated = {
        text
        for text in (ONLY_OLD, ONLY_NEW, EXPIRED, AGAIN, NEVER)
        if any(
            text in meaning and checked in meaning.lower() for meaning in compare(old, new).effects
        )
    }
    first, second = (simulated(checked, *one) for one in zip(types, rules, strict=True))
    second = replace(second, join=new)
    found: set[str] = set()
    for seed in range(CASES):
        of = [read(checked, *one, seed) for one in zip(types, rules, strict=True)]
        end = 8 + seed % 6
        before, after = changed_results(checked, first, second, of, end)
        of_old, of_new = (matches(checked, rule, seed, end) for rule in rules)
        matched = of_old | of_new | matches(checked, rules[1], seed, of[0].made.size)
        rows_of = (of_old - of_new, of_new - of_old, matched)
        found |= set(_surprises(checked, old, new, before, after, *rows_of, end))
    return stated, found


def _surprises(
    checked: Side,
    old: JoinPlan,
    new: JoinPlan,
    before: Sequence[Result],
    after: Sequence[Result],
    only_old: set[int],
    only_new: set[int],
    matched: set[int],
    end: int,
) -> Iterator[str]:
    """The sentence of each checked row before the cut that is matched and unmatched, missing or
    repeated. `matched`: rows that a record matches, also after the cut."""
    is_outer = checked in new.join_type.outer_sides
    was_outer = checked in old.join_type.outer_sides
    for row in range(end):
        others = [other for each, other in [*before, *after] if each == row]
        if not is_outer and old.join_type is new.join_type and len(others) > 1:
            assert row in only_old
            yield AGAIN
        if (row, None) in after and is_outer and len(others) > 1:
            assert row in only_old
            yield ONLY_OLD
        if not others and row in only_new:
            yield ONLY_NEW if is_outer else NEVER
        if not others and is_outer and was_outer and row not in matched:
            yield EXPIRED
