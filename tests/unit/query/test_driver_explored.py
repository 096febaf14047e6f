"""The driver holds its rules in micro-batches and in replays, under every schedule."""

from types import ModuleType

import pytest

from job.event_time.loading import Loading
from job.query import driver
from tests.semantics.planted_rules import WRONG_RULES, Rule
from tests.unit.delivery.interval_bugs import mutant
from tests.unit.delivery.schedules import ViolationError
from tests.unit.query.modelled_spark import Spark
from tests.unit.query.modelled_table import SparkWithTable

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


def missed(seed: int) -> str | None:
    """As `violation`, of a stream and a table."""
    try:
        SparkWithTable(seed).run()
    except ViolationError as error:
        return str(error)
    return None


@pytest.fixture
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "MAX_OFFSETS_PER_TRIGGER", 2)


@pytest.mark.usefixtures("small_batches")
def test_no_row_of_a_stream_misses_a_version_of_its_table() -> None:
    wrong = {seed: text for seed in range(SCHEDULES) if (text := missed(seed))}
    assert {} == wrong


WRONG_LOADING = {
    "stream is read while the table is loaded": lambda self, side, _, latest: (
        latest if side == self.table and self.is_over else None
    ),
    "table is not read to its end": lambda self, side, starts, _: (
        None if side == self.table or self.is_over else starts
    ),
}


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("bug", WRONG_LOADING)
def test_bug_in_the_loading_of_a_table_is_seen(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    monkeypatch.setattr(Loading, "limit", WRONG_LOADING[bug])
    assert any(missed(seed) for seed in range(SCHEDULES))


@pytest.mark.parametrize("wrong", WRONG_RULES, ids=lambda rule: rule.__name__)
def test_wrong_rule_for_the_watermark_is_seen(monkeypatch: pytest.MonkeyPatch, wrong: Rule) -> None:
    monkeypatch.setattr(driver, "watermark_ms", lambda read, delays_ms, _: wrong(read, delays_ms))
    assert any(violation(seed) for seed in range(SCHEDULES))
