"""Which intervals are short, and how long a catch-up lasts."""

import math
from datetime import timedelta

import pytest

from job.plan.real_time import CATCH_UP_MIN, CATCH_UP_MIN_LONGEST
from job.query.pacing import RECORDS_MIN, SHORT_INTERVAL, SHORT_INTERVALS, Pacing

FULL = timedelta(minutes=1)
SHORT = [SHORT_INTERVAL * 2**n for n in range(SHORT_INTERVALS)]
NEW_JVM = Pacing().of_run(FULL, RECORDS_MIN)


def planned(pacing: Pacing, count: int) -> tuple[Pacing, list[timedelta]]:
    durations = []
    for _ in range(count):
        pacing = pacing.next_interval()
        durations.append(pacing.current)
    return pacing, durations


def test_first_intervals_of_a_jvm_are_short() -> None:
    pacing, durations = planned(NEW_JVM, SHORT_INTERVALS + 2)
    assert [*SHORT, FULL, FULL] == durations
    assert [FULL] == planned(pacing.of_run(FULL, None), 1)[1]
    assert [SHORT_INTERVAL] == planned(pacing.of_run(FULL, RECORDS_MIN), 1)[1]


def test_intervals_after_a_catch_up_are_short_again() -> None:
    pacing, _ = planned(NEW_JVM, SHORT_INTERVALS + 1)
    again = pacing.fell_behind(0.0).of_run(FULL, None)
    assert [*SHORT, FULL] == planned(again, SHORT_INTERVALS + 1)[1]


def test_run_that_ends_in_the_warm_up_is_continued_by_the_next_run() -> None:
    pacing, _ = planned(NEW_JVM, SHORT_INTERVALS - 1)
    again = pacing.of_run(FULL, None)
    assert FULL == again.current  # Spark begins each run with it
    assert [SHORT[-1], FULL] == planned(again, 2)[1]


@pytest.mark.parametrize(
    ("records", "full"), [(RECORDS_MIN - 1, FULL), (RECORDS_MIN, SHORT_INTERVAL)]
)
def test_interval_has_its_full_duration_without_records_or_if_it_is_short(
    records: int, full: timedelta
) -> None:
    assert [full] * 3 == planned(Pacing().of_run(full, records), 3)[1]


def test_duration_that_spark_refuses_is_tried_again_only_if_intervals_are_short() -> None:
    lost = NEW_JVM.next_interval().refused(FULL)
    assert [FULL, FULL] == planned(lost, 2)[1]

    short, _ = planned(NEW_JVM, SHORT_INTERVALS)
    refused = short.next_interval().refused(short.current)
    assert (SHORT[-1], FULL) == (refused.current, refused.next_interval().current)


def test_catch_up_lasts_twice_as_long_each_time() -> None:
    pacing = NEW_JVM
    assert pacing.allows_intervals(0.0)
    now, times = 0.0, []
    for _ in range(math.ceil(math.log2(CATCH_UP_MIN_LONGEST / CATCH_UP_MIN)) + 2):
        pacing = pacing.fell_behind(now)
        until = pacing.catch_up_until
        assert not pacing.allows_intervals(until - 0.1)
        assert pacing.allows_intervals(until)
        times.append(timedelta(seconds=until - now))
        now = until
    assert [min(CATCH_UP_MIN * 2**n, CATCH_UP_MIN_LONGEST) for n in range(len(times))] == times

    short, _ = planned(pacing, 1)
    assert CATCH_UP_MIN_LONGEST == short.kept_up().catch_up_min
    full, _ = planned(pacing, SHORT_INTERVALS + 1)
    assert CATCH_UP_MIN == full.kept_up().catch_up_min
