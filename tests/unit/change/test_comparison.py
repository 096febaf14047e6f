"""Effects of a change, and changes that are refused."""

from typing import Any

import pytest

from job.change.comparison import compare
from job.errors import SpecError
from job.replay.replay import Expired
from tests.unit.specs import BASE, plan

NEW = {"checkpoint": "/checkpoints/new"}


def refusals(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    with pytest.raises(SpecError) as refused:
        compare(plan(**old), plan(**{**old, **NEW, **new}))
    return [problem.field for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ({}, {"name": "other"}, "name"),
        ({}, {"checkpoint": "/checkpoints/tested"}, "checkpoint"),
        ({}, {"left__topic": "others"}, "left.topic"),
        ({}, {"join": {"type": "inner", "unbounded_state": True}}, "join"),
        ({}, {"left__deduplicate": {"by": ["ad_id"], "within": "1 minute"}}, "left.deduplicate"),
        ({}, {"right__topic": None, "right__topic_pattern": "clicks_.*"}, "right.topic_pattern"),
        ({"output__delivery": "exactly_once"}, {"output__commit_topic": "other"},
         "output.commit_topic"),
        ({"join__type": "left_outer", "join__condition": "left.cost > 1"},
         {"join__condition": "left.cost > 2"}, "join.condition"),
        ({"join__type": "left_outer", "on_null_key": "pass"}, {"on_null_key": "drop"},
         "join.condition"),
        ({"join__type": "left_outer"}, {"left__event_time": "record_timestamp"},
         "left.event_time"),
    ],
)  # fmt: skip
def test_change_that_cannot_be_made_is_refused_by_name(
    old: dict[str, Any], new: dict[str, Any], field: str
) -> None:
    assert field in refusals(old, new)


USERS = {
    "topic": "clicks",
    "schema": "user STRING",
    "key": ["cast(record_key AS BIGINT)"],
    "table": "latest",
}
ENRICHED: dict[str, Any] = {"join": {"type": "left_outer"}, "right": USERS}
STREAMS = {side: BASE[side] for side in ("right", "join")}


@pytest.mark.parametrize(("old", "new"), [(STREAMS, ENRICHED), (ENRICHED, STREAMS)])
def test_table_is_neither_added_nor_removed(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert "right.table" in refusals(old, new)


WAITING = {**ENRICHED, "right": {**USERS, "table": {"version": "latest", "wait": "1 minute"}}}


@pytest.mark.parametrize(
    ("old", "new"), [(WAITING, WAITING), (ENRICHED, WAITING), (WAITING, ENRICHED)]
)
def test_join_whose_rows_wait_for_a_table_is_not_changed(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert "right.table.wait" in refusals(old, new)


def test_table_is_read_again_whatever_changes() -> None:
    again = "The right side, a table, is read again from its beginning."

    unchanged = compare(plan(**ENRICHED), plan(**{**ENRICHED, **NEW}))
    [only] = unchanged.effects
    assert only.startswith(again)
    changed = {"join": {"type": "inner"}, "output__columns": {"user": "right.user"}}
    comparison = compare(plan(**ENRICHED), plan(**{**ENRICHED, **NEW, **changed}))
    first, second = comparison.effects
    assert first.startswith(again)
    assert second.startswith(
        "Rows of the left side that have no result at the cut follow the new spec."
    )
    assert () == comparison.expired


def test_change_of_partitions_alone_has_no_effect_on_results() -> None:
    comparison = compare(plan(), plan(**NEW))

    assert (("The results are the same as without the change.",), ()) == (
        comparison.effects,
        comparison.expired,
    )


SHADOW = {**NEW, "name": "trial", "output__topic": "attributed_trial"}


def test_shadow_has_another_name_and_other_output_topics() -> None:
    letters = {"on_bad_record": None, "dead_letter": {"topic": "dead"}}
    with pytest.raises(SpecError) as refused:
        compare(plan(**letters), plan(**letters, **NEW), is_shadow=True)
    fields = [problem.field for problem in refused.value.problems]
    assert ["name", "output.topic", "dead_letter.topic"] == fields

    assert () == compare(plan(), plan(**SHADOW), is_shadow=True).changes
    swapped = {**SHADOW, "on_bad_record": None, "dead_letter": {"topic": "attributed"}}
    with pytest.raises(SpecError, match=r"dead_letter\.topic: is a topic of the old query"):
        compare(plan(), plan(**swapped), is_shadow=True)


_REAL_TIME = {"engine": "real_time"}


@pytest.mark.parametrize(("old", "new"), [({}, _REAL_TIME), (_REAL_TIME, {})])
def test_change_of_engine_changes_the_rule_for_late_rows(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    late, others = compare(plan(**old), plan(**NEW, **new)).effects

    assert late.startswith("Rows after the cut are late by the rule of the new engine")
    assert "All other results are the same as without the change." == others


_AVRO = {"schema_registry": {"url": "http://localhost:8081"}, "output__format": "avro"}


@pytest.mark.parametrize(
    ("old", "new", "meaning"),
    [
        ({}, {"left__filter": "cost > 5"}, "The new left.filter"),
        ({}, {"left__min_event_time": "2000-01-01T00:00:00Z"}, "The new left.min_event_time"),
        ({}, {"right__max_event_time_ahead": "2 hours"}, "The new right.max_event_time_ahead"),
        ({}, {"on_null_key": "drop"}, "The new on_null_key"),
        (_AVRO, {"output__format": "protobuf"}, "Results after the cut"),
        ({"output__key": "ad_id"}, {"output__key_format": "json"}, "Results after the cut"),
        ({}, {"output__partition_by": "left.ad_id"}, "Results after the cut"),
        ({"output__delivery": "exactly_once"}, {"output__timestamp": "event_time"},
         "Results after the cut"),
    ],
)  # fmt: skip
def test_change_outside_of_the_state_is_explained(
    old: dict[str, Any], new: dict[str, Any], meaning: str
) -> None:
    (text,) = compare(plan(**old), plan(**{**old, **NEW, **new})).effects

    assert text.startswith(meaning)


def test_rows_that_the_old_query_has_emitted_are_not_emitted_again() -> None:
    old = plan(join__type="full_outer")
    longer = {"before": "1 minute", "after": "2 hours"}
    new = plan(join__type="full_outer", join__match_window=longer, **NEW)
    shorter = compare(new, plan(join__type="full_outer", checkpoint="/checkpoints/third"))

    comparison = compare(old, new)

    assert (Expired("left", kept_ms=3_600_000),) == comparison.expired
    assert () == shorter.expired
    assert any(text.startswith("Left rows that the old query") for text in comparison.effects)
    assert any("A pair of two records before the cut" in text for text in comparison.effects)


def test_rows_of_other_windows_are_not_emitted_again() -> None:
    old = plan(join={"type": "left_outer", "window": "5 minutes"})
    new = plan(join={"type": "left_outer", "window": "1 hour"}, **NEW)

    assert (Expired("left", window_ms=(300_000, 0)),) == compare(old, new).expired


def test_window_of_another_time_zone_is_another_window() -> None:
    days = {"size": "1 day", "time_zone": "Europe/Copenhagen"}
    old, new = (
        plan(join={"type": "left_outer", "window": {**days, **zone}}, checkpoint=checkpoint)
        for zone, checkpoint in (
            ({}, "/checkpoints/old"),
            ({"time_zone": "UTC"}, "/checkpoints/new"),
        )
    )

    comparison = compare(old, new)
    assert (
        Expired("left", window_ms=(86_400_000, 0), window_time_zone="Europe/Copenhagen"),
    ) == comparison.expired
    assert [("join.window", "1 day, time zone Europe/Copenhagen", "1 day")] == [
        (change.field, change.frozen, change.wanted) for change in comparison.changes
    ]


def test_time_zone_of_a_side_with_unmatched_rows_must_stay() -> None:
    zone = {"left__time_zone": "Asia/Shanghai"}

    with pytest.raises(SpecError, match=r"left\.time_zone: must stay UTC"):
        compare(plan(join__type="left_outer"), plan(join__type="left_outer", **zone, **NEW))
    [change] = compare(plan(**zone), plan(**NEW)).changes
    assert ("left.time_zone", "Asia/Shanghai", "UTC") == (
        change.field, change.frozen, change.wanted,
    )  # fmt: skip


def test_new_unmatched_rows_are_explained() -> None:
    comparison = compare(plan(), plan(join__type="left_outer", **NEW))

    assert (
        "Unmatched left rows before the cut are emitted if they expire after the cut."
        in comparison.effects
    )


def test_computed_column_that_can_fail_decides_which_records_are_bad() -> None:
    comparison = compare(
        plan(checkpoint="/old"),
        plan(checkpoint="/new", left__columns={"n": "cast(campaign AS INT)"}),
    )

    assert "The new left.columns applies to records before the cut" in " ".join(comparison.effects)


def test_settings_without_effect_on_the_state_are_listed_too() -> None:
    comparison = compare(plan(output__filter="left.cost > 1"), plan(**NEW))

    assert ((), [("output.filter", "left.cost > 1", "none")]) == (
        comparison.changes,
        [(each.field, each.frozen, each.wanted) for each in comparison.others],
    )
