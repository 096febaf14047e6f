"""Search for a differing case, without Spark."""

import threading
import time
from typing import Any

import pytest

from tests.semantics import differential
from tests.semantics.differential import DifferenceError, Statistics
from tests.semantics.join_cases import Batch, Case, Restart


class NoSpark:
    def newSession(self) -> "NoSpark":  # noqa: N802 - Spark's name
        return self


def search(count: int, **more: Any) -> Statistics:
    statistics = Statistics()
    differential.run_many(NoSpark(), count, statistics=statistics, **more)  # type: ignore[arg-type]
    return statistics


def has_restart(case: Case) -> bool:
    return any(isinstance(step, Restart) for step in case.steps)


@pytest.fixture
def finders(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Threads that differ: only the first one with a restart."""
    found: set[int] = set()

    def check(_: Any, case: Case, **__: Any) -> list[Batch]:
        if has_restart(case) and (not found or threading.get_ident() in found):
            found.add(threading.get_ident())
            raise DifferenceError(f"differs\n{case}")
        return []

    monkeypatch.setattr(differential, "check", check)
    return found


def test_first_difference_ends_the_other_threads(finders: set[int]) -> None:
    started = time.monotonic()

    with pytest.raises(DifferenceError, match="differs"):
        search(1_000_000)

    assert 1 == len(finders)
    assert time.monotonic() - started < differential.SHRINKING_SECONDS * 2


def test_case_is_printed_at_once_and_raised_when_it_is_small(
    finders: set[int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # One thread finds the same case every time; how small it gets depends on the case.
    monkeypatch.setattr(differential, "WORKERS", 1)
    with pytest.raises(DifferenceError) as raised:
        search(1_000_000)

    printed, small = capsys.readouterr().err, str(raised.value)
    assert "# --- spec.yaml" in printed
    assert "restart" in small.lower()
    assert '"batch"' not in small  # no row is needed for a restart
    assert "type: inner" in small
    assert finders


def test_what_spark_cannot_run_is_a_difference_with_its_case(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def check(_: Any, __: Case, **___: Any) -> list[Batch]:
        raise RuntimeError("the query ended")

    monkeypatch.setattr(differential, "check", check)
    monkeypatch.setattr(differential, "SHRINKING_SECONDS", 0)

    with pytest.raises(DifferenceError, match=r"RuntimeError: the query ended\n\n# \d partitions"):
        search(10)


def test_no_case_is_started_when_the_time_is_over(finders: set[int]) -> None:
    assert 0 == search(1_000_000, seconds=0).cases.total()
    assert not finders
