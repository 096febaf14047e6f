"""The state formats: their common behaviour, and their differences."""

import pytest

from job.semantics.rows import JoinedRow
from job.semantics.state_manager import (
    KeyToNumValuesStore,
    StateTimes,
    SymmetricHashJoinStateManager,
    all_state_store_names,
    get_state_store_name,
    key_schema,
)
from job.semantics.state_manager_v4 import SymmetricHashJoinStateManagerV4
from job.semantics.watermark_predicates import WatermarkPredicate
from tests.unit.semantics.join_builders import SECOND, R, micros

FORMATS = {2: SymmetricHashJoinStateManager, 4: SymmetricHashJoinStateManagerV4}
KEY = ("a",)


@pytest.fixture(params=FORMATS)
def manager(request):
    return FORMATS[request.param]("left", StateTimes(lambda _: None, micros))


@pytest.fixture
def indexed():
    return SymmetricHashJoinStateManager("left", StateTimes(lambda _: None, micros))


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
    assert 0 == manager.metrics.num_keys


def test_matching_and_removing_gives_each_value_once(manager):
    fill(manager, R("a", 1, "x"), R("a", 1, "y"), R("a", 2, "z"))

    assert ["x", "z"] == join(manager, passes=lambda row: row.tag != "y", remove=True)
    assert ["y"] == join(manager, remove=True)
    assert [] == join(manager, remove=True)
    assert 0 == manager.metrics.num_keys


def test_values_that_matched_before_are_removed_without_output(manager):
    fill(manager, R("a", 1, "x"), matched=True)

    assert [] == join(manager, remove=True)
    assert [] == tags(manager)


def test_abort_brings_back_the_last_commit(manager):
    fill(manager, R("a", 1, "x"), R("a", 2, "y"))
    manager.commit()
    evict(manager, 1)
    fill(manager, R("a", 3, "z"))
    join(manager)

    manager.abort_if_needed()

    assert ["x", "y"] == tags(manager)
    assert [("x", False), ("y", False)] == evict(manager, 9)


def test_abort_after_a_commit_changes_nothing(manager):
    fill(manager, R("a", 1, "x"))
    manager.commit()

    manager.abort_if_needed()

    assert ["x"] == tags(manager)


def test_iterating_gives_every_row_with_its_key_and_mark(manager):
    fill(manager, R("a", 1, "x"), R("b", 1, "y"))
    join(manager)

    assert [(("a",), "x", True), (("b",), "y", False)] == sorted(
        (pair.key, pair.value.tag, pair.matched) for pair in manager.iterator()
    )


def test_memory_follows_what_is_stored(manager):
    fill(manager, R("a", 1, "x"))
    held = manager.metrics.memory_used_bytes
    assert held > 0

    evict(manager, 9)

    assert 0 == manager.metrics.memory_used_bytes


def test_last_value_moves_into_the_hole_and_the_number_of_values_is_updated(indexed):
    fill(indexed, *(R("a", at, str(at)) for at in (1, 9, 2, 8)))

    evict(indexed, 2)

    assert 2 == indexed.key_to_num_values.get(KEY)
    assert ["8", "9"] == [indexed.key_with_index_to_value.get(KEY, i).value.tag for i in (0, 1)]


def test_value_that_was_swapped_into_the_hole_is_looked_at_too(indexed):
    fill(indexed, *(R("a", at, str(at)) for at in (1, 9, 2)))

    assert ["1", "2"] == sorted(
        pair.value.tag for pair in indexed.remove_by_value_condition(lambda row: row.at < 9)
    )


def test_removing_by_key_takes_all_values_of_the_key(indexed):
    fill(indexed, R("a", 1, "x"), R("a", 2, "y"), R("b", 1, "z"))

    removed = indexed.remove_by_key_condition(lambda key: key == KEY)

    assert ["x", "y"] == sorted(pair.value.tag for pair in removed)
    assert 0 == indexed.key_to_num_values.get(KEY)
    assert ["z"] == tags(indexed, ("b",))


def test_key_without_values_is_removed_never_put():
    with pytest.raises(ValueError, match="must be removed"):
        KeyToNumValuesStore().put(KEY, 0)


def test_rows_of_one_key_and_instant_count_once_in_format_4_and_each_in_format_2():
    counts = {}
    for version, kind in FORMATS.items():
        manager = kind("left", StateTimes(lambda _: None, micros))
        fill(manager, R("a", 1, "x"), R("a", 1, "y"), R("a", 2, "z"))
        counts[version] = manager.metrics.num_keys

    assert {2: 3, 4: 2} == counts


def test_row_without_event_time_is_evicted_in_format_4_and_never_in_format_2():
    evicted = {}
    for version, kind in FORMATS.items():
        manager = kind("left", StateTimes(lambda _: None, micros))
        fill(manager, R("a", None, "x"))
        evicted[version] = evict(manager, 1)

    assert {2: [], 4: [("x", False)]} == evicted


def test_format_4_scans_from_where_the_last_eviction_ended():
    manager = SymmetricHashJoinStateManagerV4("left", StateTimes(lambda _: None, micros))
    fill(manager, *(R("a", at, str(at)) for at in (1, 2, 3)))

    evicted = manager.evict_by_timestamp(start=1 * SECOND, end=2 * SECOND)

    assert ["2"] == [pair.value.tag for pair in evicted]


def test_format_4_scans_only_the_instant_of_a_key_that_contains_the_event_time():
    manager = SymmetricHashJoinStateManagerV4("left", StateTimes(lambda key: key[0], micros))
    manager.append((7,), R(7, 99, "x"), matched=False)

    assert ["x"] == join(manager, (7,))
    assert ["x"] == [pair.value.tag for pair in manager.evict_by_timestamp(end=7)]


def test_state_stores_are_named_for_side_and_content():
    assert "left-keyToNumValues" == get_state_store_name("left", "keyToNumValues")
    assert [
        "left-keyToNumValues",
        "left-keyWithIndexToValue",
        "right-keyToNumValues",
        "right-keyWithIndexToValue",
    ] == all_state_store_names("left", "right")


def test_key_columns_are_named_field_and_ordinal():
    assert [("field0", "INT"), ("field1", "STRING")] == key_schema(["INT", "STRING"])
