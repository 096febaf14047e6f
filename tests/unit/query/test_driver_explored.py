"""The driver holds its rules in micro-batches and in replays, under every schedule."""

from types import ModuleType

import pytest

from job.query import driver
from tests.semantics.planted_rules import WRONG_RULES, Rule
from tests.unit.delivery.interval_bugs import mutant
from tests.unit.delivery.schedules import ViolationError
from tests.unit.query.modelled_spark import Spark

SCHEDULES = 300

BUGS = {
    "replay reads past the cut": (
        "state.replay.readable(state.replay_phase,",
        "state.replay.readable(ReplayPhase.OVER,",
    ),
    "watermark in the first phase of a replay": (
        "    if phase is ReplayPhase.READING:\n        return state, []\n",
        "",
    ),
    "takes over without the old watermark": (
        "return state, [RaiseWatermark(replay.watermark_ms)]",
        "return state, []",
    ),
    "backlog of a side is not seen": (
        "replace(state, partitions=after, batches=",
        "replace(state, partitions=Partitions(after.left, {}, after.newest_ms), batches=",
    ),
}


def violation(seed: int, rules: ModuleType = driver) -> str | None:
    """What is wrong after the schedule of this number. None: all is right."""
    try:
        Spark(seed, rules).run()
    except ViolationError as error:
        return str(error)
    return None


def test_no_row_is_late_and_everything_is_read() -> None:
    wrong = {seed: text for seed in range(SCHEDULES) if (text := violation(seed))}
    assert {} == wrong


@pytest.mark.parametrize("bug", BUGS)
def test_bug_in_the_driver_is_seen(bug: str) -> None:
    rules = mutant(*BUGS[bug], driver)
    assert any(violation(seed, rules) for seed in range(SCHEDULES))


@pytest.mark.parametrize("wrong", WRONG_RULES, ids=lambda rule: rule.__name__)
def test_wrong_rule_for_the_watermark_is_seen(monkeypatch: pytest.MonkeyPatch, wrong: Rule) -> None:
    monkeypatch.setattr(driver, "watermark_ms", wrong)
    assert any(violation(seed) for seed in range(SCHEDULES))
