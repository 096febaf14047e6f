"""The number of state rows, updated by batches between two counts."""

import pytest

from job.query import state_rows
from job.query.state_rows import StateRowCounter


def started(last: int | None = None) -> StateRowCounter:
    rows = StateRowCounter()
    rows.on_start(last)
    return rows


def test_new_checkpoint_has_no_rows_and_batches_change_their_number() -> None:
    rows = started()
    rows.add_batch(0, stored=5, removed=0)
    rows.add_batch(1, stored=3, removed=4)

    assert [5, 4, None] == [rows.after(batch) for batch in (0, 1, 2)]


def test_rows_of_an_existing_checkpoint_are_unknown_until_the_first_count() -> None:
    rows = started(7)
    rows.add_batch(8, stored=2, removed=1)
    assert rows.after(8) is None

    rows.set_count(7, 100)
    assert 101 == rows.after(8)
    rows.add_batch(9, stored=0, removed=50)
    assert 51 == rows.after(9)


def test_count_may_precede_the_report_of_its_batch() -> None:
    rows = started(7)
    rows.set_count(8, 100)
    assert rows.after(7) is None

    rows.add_batch(8, stored=2, removed=0)
    assert (98, 100) == (rows.after(7), rows.after(8))


def test_number_is_still_known_after_a_restart_at_the_same_batch() -> None:
    rows = started()
    rows.add_batch(0, stored=5, removed=0)
    rows.on_start(0)

    rows.add_batch(1, stored=1, removed=0)
    assert 6 == rows.after(1)


@pytest.mark.parametrize("last_batch", [1, 3], ids=["fewer batches", "more batches"])
def test_number_is_unknown_after_a_restart_at_another_batch(last_batch: int) -> None:
    rows = started()
    for batch in range(3):
        rows.add_batch(batch, stored=1, removed=0)
    rows.on_start(last_batch)

    rows.add_batch(last_batch + 1, stored=1, removed=0)
    assert rows.after(last_batch + 1) is None


def test_missing_report_makes_the_number_unknown_until_the_next_count() -> None:
    rows = started()
    rows.add_batch(0, stored=5, removed=0)
    rows.add_batch(2, stored=1, removed=0)
    assert rows.after(2) is None

    rows.set_count(2, 9)
    assert 9 == rows.after(2)


def test_repeated_report_counts_once() -> None:
    rows = started()
    rows.add_batch(0, stored=5, removed=0)
    rows.add_batch(0, stored=5, removed=0)

    assert 5 == rows.after(0)


def test_checkpoint_has_no_rows_after_a_reset() -> None:
    rows = started(7)
    rows.on_start(None)

    rows.add_batch(0, stored=1, removed=0)
    assert 1 == rows.after(0)


def test_only_the_last_batches_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_rows, "BATCHES_REMEMBERED", 3)
    rows = started()
    for batch in range(5):
        rows.add_batch(batch, stored=1, removed=0)

    assert [None, 3, 4, 5] == [rows.after(batch) for batch in range(1, 5)]
