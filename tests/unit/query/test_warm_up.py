"""Which intervals are short, without Spark."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from job.query import warm_up
from job.query.warm_up import RECORDS_MIN, SHORT_INTERVAL, SHORT_INTERVALS, WarmUp

FULL = timedelta(minutes=1)


@pytest.fixture
def durations(monkeypatch: pytest.MonkeyPatch) -> list[timedelta]:
    """The durations that Spark gets."""
    set_to: list[timedelta] = []
    monkeypatch.setattr(
        warm_up, "set_interval_duration", lambda _, __, duration: set_to.append(duration)
    )
    return set_to


def run(jvm: object, records: int = RECORDS_MIN, interval: timedelta = FULL) -> Any:
    partitions = {0: SimpleNamespace(next_offset=records // 2)}
    return SimpleNamespace(
        spark=jvm,
        plan=SimpleNamespace(real_time=SimpleNamespace(checkpoint_interval=interval)),
        stats=SimpleNamespace(partitions=SimpleNamespace(side=lambda _: partitions)),
    )


def plan_intervals(intervals: WarmUp, count: int) -> None:
    query: Any = object()
    for _ in range(count):
        intervals.plan_interval(query)


def test_first_intervals_of_a_jvm_are_short(durations: list[timedelta]) -> None:
    intervals, first, second = WarmUp(), object(), object()

    intervals.begin_run(run(first))
    plan_intervals(intervals, SHORT_INTERVALS)
    assert [SHORT_INTERVAL] == durations
    plan_intervals(intervals, 2)
    assert [SHORT_INTERVAL, FULL] == durations

    intervals.begin_run(run(first))
    plan_intervals(intervals, 1)
    assert [SHORT_INTERVAL, FULL] == durations

    intervals.begin_run(run(second))
    plan_intervals(intervals, 1)
    assert [SHORT_INTERVAL, FULL, SHORT_INTERVAL] == durations


def test_run_that_ends_in_the_warm_up_is_continued_by_the_next_run(
    durations: list[timedelta],
) -> None:
    intervals, jvm = WarmUp(), object()

    intervals.begin_run(run(jvm))
    plan_intervals(intervals, SHORT_INTERVALS - 1)
    intervals.begin_run(run(jvm))
    plan_intervals(intervals, 2)

    assert [SHORT_INTERVAL, SHORT_INTERVAL, FULL] == durations


def test_intervals_are_not_shortened_without_records(durations: list[timedelta]) -> None:
    intervals = WarmUp()

    intervals.begin_run(run(object(), records=RECORDS_MIN - 2))
    plan_intervals(intervals, 2)

    assert [] == durations


def test_intervals_are_never_longer_than_the_checkpoint_interval(
    durations: list[timedelta],
) -> None:
    intervals = WarmUp()

    intervals.begin_run(run(object(), interval=SHORT_INTERVAL))
    plan_intervals(intervals, SHORT_INTERVALS + 1)

    assert [] == durations


def test_query_runs_with_full_intervals_if_spark_has_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []

    def refuse(*arguments: object) -> None:
        calls.append(arguments)
        raise AttributeError("no such field")

    monkeypatch.setattr(warm_up, "set_interval_duration", refuse)
    intervals = WarmUp()
    intervals.begin_run(run(object()))
    plan_intervals(intervals, 3)

    assert 1 == len(calls)
