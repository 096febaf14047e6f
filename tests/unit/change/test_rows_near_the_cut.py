"""What the plan of a change states about rows near the cut, checked with the specification."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import pytest

from job.change.comparison import compared
from job.instants import from_epoch_ms, utc_text
from job.plan.plan import JoinPlan
from job.semantics.backlog import PlannedBatch
from job.semantics.event_time import WatermarkTracker
from job.semantics.json_records import InputRecord, records_of_jsonl
from job.semantics.simulate import OutputRecord, Simulator
from job.semantics.simulation_plan import SimulationPlan, simulation_plan
from tests.unit.specs import BASE, plan

T = 1_700_000_000_000
DELAY_MS = 5_000
CASES = 20

Result = tuple[int | None, int | None]
"""Offsets of the left and the right record."""

WINDOW = {"before": "10 seconds", "after": "20 seconds"}
NARROWER = {"before": "2 seconds", "after": "6 seconds"}
OTHER = {"before": "2 seconds", "after": "30 seconds"}
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

    def up_to(self, end: int) -> PlannedBatch:
        return PlannedBatch(self.left[:end], self.right[:end])

    def after(self, end: int) -> PlannedBatch:
        return PlannedBatch(self.left[end:], self.right[end:])


def rows(seed: int, keys: int = 7, size: int = 16) -> Input:
    """No row is late. The last ones of both sides let all others expire."""
    chosen = random.Random(seed)

    def side(time: str) -> list[InputRecord]:
        lines = []
        for number in range(size):
            at = T + number * 2_000 + chosen.randrange(DELAY_MS // 2)
            lines.append({"ad_id": chosen.randrange(keys), time: _text(at)})
        lines.append({"ad_id": -1, time: _text(T + 10_000_000)})
        return records_of_jsonl([json.dumps(one) for one in lines])

    return Input(side("shown_at"), side("clicked_at"))


def _text(at_ms: int) -> str:
    return utc_text(from_epoch_ms(at_ms))


def joined(join_type: str, window: Any, **more: Any) -> JoinPlan:
    delay = f"{DELAY_MS} milliseconds"
    only = {"left_semi": "left", "left_anti": "left"}.get(join_type)
    columns = {"ad_id": "left.ad_id"} if only else {"l": "left.ad_id", "r": "right.ad_id"}
    return plan(
        left__watermark_delay=delay,
        right__watermark_delay=delay,
        join={"type": join_type, "match_window": window, **more},
        output={**BASE["output"], "columns": columns},
    )


def changed_results(
    old: SimulationPlan, new: SimulationPlan, made: Input, end: int
) -> tuple[list[Result], list[Result]]:
    """The results of the old query before the cut, and of the new one after it. Both sides are cut
    at the offset `end`."""
    first = Simulator(old)
    batches = [first.run_batch(made.up_to(end // 2))]
    batches.append(
        first.run_batch(PlannedBatch(made.left[end // 2 : end], made.right[end // 2 : end]))
    )
    while first.needs_batch_without_data():
        batches.append(first.run_batch(PlannedBatch()))
    cut_ms = batches[-1].watermarks.eviction

    second = Simulator(new)
    tracker = ReplayTracker(second._query._tracker.delays_ms)
    second._query._tracker = tracker
    second.run_batch(PlannedBatch(made.left[:end], made.right[: end - 1]))
    tracker.cut_ms = cut_ms
    second.run_batch(PlannedBatch([], made.right[end - 1 : end]))
    after = second.run_batch(made.after(end)).output
    while second.needs_batch_without_data():
        after += second.run_batch(PlannedBatch()).output
    kept_ms = {each.side: each.kept_ms for each in compared(old.join, new.join).expired}
    results = [_offsets(one) for batch in batches for one in batch.output]
    delivered = [
        _offsets(one) for one in after if not _was_emitted(one, kept_ms.get("left"), end, cut_ms)
    ]
    return results, delivered


def _offsets(result: OutputRecord) -> Result:
    return tuple(None if one is None else one.offset for one in (result.left, result.right))  # type: ignore[return-value]


def _was_emitted(result: OutputRecord, kept_ms: int | None, end: int, cut_ms: int) -> bool:
    """As kept_back in job/dataflow/replay_sql.py."""
    if kept_ms is None or result.left is None or result.right is not None:
        return False
    at = datetime.fromisoformat(json.loads(result.left.value or "")["shown_at"])
    return result.left.offset < end and at.timestamp() * 1000 + kept_ms < cut_ms


def matches(inner: SimulationPlan, made: Input, end: int) -> set[int]:
    """Offsets of the left rows that match a right row. Both are before the offset `end`."""
    simulator = Simulator(inner)
    return {left or 0 for left, _ in map(_offsets, simulator.run_batch(made.up_to(end)).output)}


CHANGES = [
    ("left_outer", "left_outer"),
    ("inner", "left_outer"),
    ("left_semi", "left_semi"),
    ("left_anti", "left_anti"),
    ("left_outer", "left_semi"),
]
WINDOWS = [(WINDOW, NARROWER), (NARROWER, WINDOW), (WINDOW, OTHER), (WINDOW, WINDOW)]


@pytest.mark.parametrize(("old_type", "new_type"), CHANGES)
@pytest.mark.parametrize("windows", WINDOWS, ids=["narrower", "wider", "other", "same"])
def test_plan_states_which_rows_contradict_or_are_missing(
    old_type: str, new_type: str, windows: tuple[dict[str, str], dict[str, str]]
) -> None:
    """Each such row is one that the plan names, and each sentence has such a row."""
    old, new = (joined(*each) for each in zip((old_type, new_type), windows, strict=True))
    new = replace(new, checkpoint="/checkpoints/next")
    stated = {
        text
        for text in (ONLY_OLD, ONLY_NEW, EXPIRED, AGAIN, NEVER)
        if any(text in meaning for meaning in compared(old, new).meanings)
    }
    simulated = (simulation_plan(old), simulation_plan(new))
    pairs = [simulation_plan(joined("inner", window)) for window in windows]
    found: set[str] = set()
    for seed in range(CASES):
        made, end = rows(seed), 8 + seed % 6
        before, after = changed_results(*simulated, made, end)
        of_old, of_new = (matches(inner, made, end) for inner in pairs)
        whole = len(made.left)
        matched = of_old | of_new | matches(pairs[1], made, whole)
        rows_of = (of_old - of_new, of_new - of_old, matched)
        found |= set(_surprises(old, new, before, after, *rows_of, end))

    assert stated == found


def _surprises(
    old: JoinPlan,
    new: JoinPlan,
    before: Sequence[Result],
    after: Sequence[Result],
    only_old: set[int],
    only_new: set[int],
    matched: set[int],
    end: int,
) -> Iterator[str]:
    """The sentence of each left row before the cut that is matched and unmatched, missing or
    repeated. `matched`: rows that a record matches, also after the cut."""
    is_outer = "left" in new.join_type.outer_sides
    was_outer = "left" in old.join_type.outer_sides
    for left in range(end):
        rights = [right for each, right in [*before, *after] if each == left]
        if not is_outer and old.join_type is new.join_type and len(rights) > 1:
            assert left in only_old
            yield AGAIN
        if (left, None) in after and is_outer and len(rights) > 1:
            assert left in only_old
            yield ONLY_OLD
        if not rights and left in only_new:
            yield ONLY_NEW if is_outer else NEVER
        if not rights and is_outer and was_outer and left not in matched:
            yield EXPIRED
