"""The number of rows in state, carried on from batch to batch between two counts."""

import pytest

from job.query import state_rows
from job.query.state_rows import StateRows


def begun(last: int | None = None) -> StateRows:
    rows = StateRows()
    rows.begins_after(last)
    return rows


def test_new_checkpoint_holds_nothing_and_each_batch_changes_that() -> None:
    rows = begun()
    rows.ended(0, stored=5, removed=0)
    rows.ended(1, stored=3, removed=4)

    assert [5, 4, None] == [rows.after(batch) for batch in (0, 1, 2)]


def test_checkpoint_found_is_unknown_until_it_was_counted() -> None:
    rows = begun(7)
    rows.ended(8, stored=2, removed=1)
    assert rows.after(8) is None

    rows.counted(7, 100)
    assert 101 == rows.after(8)
    rows.ended(9, stored=0, removed=50)
    assert 51 == rows.after(9)


def test_count_may_come_before_the_report_of_its_batch() -> None:
    rows = begun(7)
    rows.counted(8, 100)
    assert rows.after(7) is None

    rows.ended(8, stored=2, removed=0)
    assert (98, 100) == (rows.after(7), rows.after(8))


def test_query_that_goes_on_where_it_stopped_is_still_known() -> None:
    rows = begun()
    rows.ended(0, stored=5, removed=0)
    rows.begins_after(0)

    rows.ended(1, stored=1, removed=0)
    assert 6 == rows.after(1)


@pytest.mark.parametrize("found", [1, 3], ids=["fewer batches", "more batches"])
def test_query_that_goes_on_elsewhere_is_not(found: int) -> None:
    rows = begun()
    for batch in range(3):
        rows.ended(batch, stored=1, removed=0)
    rows.begins_after(found)

    rows.ended(found + 1, stored=1, removed=0)
    assert rows.after(found + 1) is None


def test_report_left_out_makes_it_unknown_until_the_next_count() -> None:
    rows = begun()
    rows.ended(0, stored=5, removed=0)
    rows.ended(2, stored=1, removed=0)
    assert rows.after(2) is None

    rows.counted(2, 9)
    assert 9 == rows.after(2)


def test_report_told_twice_counts_once() -> None:
    rows = begun()
    rows.ended(0, stored=5, removed=0)
    rows.ended(0, stored=5, removed=0)

    assert 5 == rows.after(0)


def test_checkpoint_begun_anew_holds_nothing() -> None:
    rows = begun(7)
    rows.begins_after(None)

    rows.ended(0, stored=1, removed=0)
    assert 1 == rows.after(0)


def test_only_the_last_batches_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_rows, "BATCHES_REMEMBERED", 3)
    rows = begun()
    for batch in range(5):
        rows.ended(batch, stored=1, removed=0)

    assert [None, 3, 4, 5] == [rows.after(batch) for batch in range(1, 5)]
