"""The state of one side: rows by key and event time."""

import pytest

from job.semantics.rows import JoinedRow
from job.semantics.state_manager_v4 import StateTimes, SymmetricHashJoinStateManagerV4
from job.semantics.watermark_predicates import WatermarkPredicate
from tests.unit.semantics.join_builders import SECOND, R, micros

KEY = ("a",)


@pytest.fixture
def manager():
    return SymmetricHashJoinStateManagerV4(StateTimes(lambda _: None, micros))


def fill(manager, *rows, matched=False):
    for row in rows:
        manager.append((row.key,), row, matched=matched)


def tags(manager, key=KEY):
    return sorted(row.tag for row in manager.get(key))


def join(manager, key=KEY, *, passes=lambda _: True, remove=False):
    look_up = manager.get_joined_rows_and_remove_matched if remove else manager.get_joined_rows
    rows = look_up(key, lambda that: JoinedRow(that, "right"), lambda row: passes(row.left))
    return sorted(row.left.tag for row in rows)


def evict(manager, seconds):
    return sorted(
        (pair.value.tag, pair.matched)
        for pair in manager.evict(WatermarkPredicate("value", seconds * 1000))
    )


def test_key_never_seen_has_no_values(manager):
    assert [] == tags(manager)
    assert [] == join(manager)


def test_all_values_appended_to_a_key_are_got_back_equal_ones_too(manager):
    fill(manager, R("a", 1, "x"), R("a", 2, "y"), R("a", 1, "x"), R("b", 1, "z"))

    assert ["x", "x", "y"] == tags(manager)
    assert ["z"] == tags(manager, ("b",))


def test_joined_rows_are_those_that_pass_and_only_they_are_marked(manager):
    fill(manager, R("a", 1, "x"), R("a", 1, "y"), R("a", 2, "z"))

    assert ["x", "z"] == join(manager, passes=lambda row: row.tag != "y")
    assert [("x", True), ("y", False), ("z", True)] == evict(manager, 9)


def test_mark_once_set_stays(manager):
    fill(manager, R("a", 1, "x"))
    join(manager)

    join(manager, passes=lambda _: False)

    assert [("x", True)] == evict(manager, 9)


def test_eviction_takes_what_is_at_or_behind_the_watermark_and_leaves_the_rest(manager):
    fill(manager, *(R("a", at, str(at)) for at in (3, 1, 2, 5, 4)), R("b", 2, "b2"))

    assert [("1", False), ("2", False), ("3", False), ("b2", False)] == evict(manager, 3)
    assert ["4", "5"] == tags(manager)
    assert [] == tags(manager, ("b",))


def test_what_was_evicted_is_gone_for_good(manager):
    fill(manager, R("a", 1, "x"))
    evict(manager, 9)

    assert [] == evict(manager, 9)
    assert [] == join(manager)
    assert 0 == manager.num_keys


def test_matching_and_removing_gives_each_value_once(manager):
    fill(manager, R("a", 1, "x"), R("a", 1, "y"), R("a", 2, "z"))

    assert ["x", "z"] == join(manager, passes=lambda row: row.tag != "y", remove=True)
    assert ["y"] == join(manager, remove=True)
    assert [] == join(manager, remove=True)
    assert 0 == manager.num_keys


def test_values_that_matched_before_are_removed_without_output(manager):
    fill(manager, R("a", 1, "x"), matched=True)

    assert [] == join(manager, remove=True)
    assert [] == tags(manager)


def test_rows_of_one_key_and_instant_are_one_key(manager):
    fill(manager, R("a", 1, "x"), R("a", 1, "y"), R("a", 2, "z"))

    assert (2, 3) == (manager.num_keys, manager.num_rows)


def test_row_without_event_time_is_evicted(manager):
    fill(manager, R("a", None, "x"))

    assert [("x", False)] == evict(manager, 1)


def test_eviction_scans_from_where_the_last_eviction_ended(manager):
    fill(manager, *(R("a", at, str(at)) for at in (1, 2, 3)))

    evicted = manager.evict_by_timestamp(start=1 * SECOND, end=2 * SECOND)

    assert ["2"] == [pair.value.tag for pair in evicted]


def test_only_the_instant_of_a_key_that_contains_the_event_time_is_scanned():
    manager = SymmetricHashJoinStateManagerV4(StateTimes(lambda key: key[0], micros))
    manager.append((7,), R(7, 99, "x"), matched=False)

    assert ["x"] == join(manager, (7,))
    assert ["x"] == [pair.value.tag for pair in manager.evict_by_timestamp(end=7)]
