"""Which intervals are short, without Spark."""

import math
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from job.plan.real_time import CATCH_UP_MIN, CATCH_UP_MIN_LONGEST
from job.query import warm_up
from job.query.warm_up import RECORDS_MIN, SHORT_INTERVAL, SHORT_INTERVALS, WarmUp

FULL = timedelta(minutes=1)
SHORT = [SHORT_INTERVAL * 2**n for n in range(SHORT_INTERVALS)]


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
    assert SHORT == durations
    plan_intervals(intervals, 2)
    assert [*SHORT, FULL] == durations

    intervals.begin_run(run(first))
    plan_intervals(intervals, 1)
    assert [*SHORT, FULL] == durations

    intervals.begin_run(run(second))
    plan_intervals(intervals, 1)
    assert [*SHORT, FULL, SHORT_INTERVAL] == durations


def test_intervals_after_a_catch_up_are_short_again(durations: list[timedelta]) -> None:
    intervals, jvm = WarmUp(), object()
    intervals.begin_run(run(jvm))
    plan_intervals(intervals, SHORT_INTERVALS + 1)
    durations.clear()

    intervals.fell_behind()
    intervals.begin_run(run(jvm))
    plan_intervals(intervals, SHORT_INTERVALS + 1)

    assert [*SHORT, FULL] == durations


def test_catch_up_lasts_twice_as_long_each_time(
    durations: list[timedelta],  # noqa: ARG001  # replaces the call into the JVM
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 0.0
    monkeypatch.setattr(warm_up.time, "monotonic", lambda: now)
    intervals = WarmUp()
    intervals.begin_run(run(object()))
    assert intervals.allows_intervals()

    def shortest() -> timedelta:
        """How long the next catch-up lasts, by a search in whole seconds."""
        nonlocal now
        began = now
        intervals.fell_behind()
        while not intervals.allows_intervals():
            now += 1.0
        return timedelta(seconds=now - began)

    times = math.ceil(math.log2(CATCH_UP_MIN_LONGEST / CATCH_UP_MIN)) + 2
    assert [min(CATCH_UP_MIN * 2**n, CATCH_UP_MIN_LONGEST) for n in range(times)] == [
        shortest() for _ in range(times)
    ]

    plan_intervals(intervals, 1)
    intervals.kept_up()  # a short interval
    assert CATCH_UP_MIN_LONGEST == shortest()

    plan_intervals(intervals, SHORT_INTERVALS + 1)
    intervals.kept_up()
    assert CATCH_UP_MIN == shortest()


def test_run_that_ends_in_the_warm_up_is_continued_by_the_next_run(
    durations: list[timedelta],
) -> None:
    intervals, jvm = WarmUp(), object()

    intervals.begin_run(run(jvm))
    plan_intervals(intervals, SHORT_INTERVALS - 1)
    intervals.begin_run(run(jvm))
    plan_intervals(intervals, 2)

    # Each run begins with the checkpoint interval of the plan.
    assert [*SHORT, FULL] == durations


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
