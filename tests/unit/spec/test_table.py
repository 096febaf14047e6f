"""A side that is a table: what a spec says, and what is refused."""

from datetime import timedelta
from typing import Any

import pytest

from job.plan.capacity import expected_load
from job.plan.fingerprint import fingerprint
from job.plan.join_operator import state_format
from job.plan.plan import JoinPlan
from job.plan.warnings import warnings
from job.spec.durations import duration_text
from job.spec.table import KAFKA_TIMESTAMP
from tests.unit.specs import plan, problems

TABLE: dict[str, Any] = {
    "topic": "users",
    "schema": "user STRING",
    "key": ["cast(record_key AS BIGINT)"],
    "table": "latest",
}


def enriched(join_type: str = "inner", **table: Any) -> JoinPlan:
    return plan(join={"type": join_type}, right={**TABLE, **table})


def refused(join_type: str = "inner", **changes: Any) -> dict[str, str]:
    changes = {"right": TABLE, "join": {"type": join_type}, **changes}
    return problems(**changes)


def test_word_is_the_version() -> None:
    made = enriched(table="latest")

    assert made.right.table == enriched(table={"version": "latest"}).right.table
    assert "right" == made.table_side
    assert ("left",) == made.streams


def test_event_time_of_a_table_is_the_kafka_timestamp() -> None:
    made = enriched()

    assert KAFKA_TIMESTAMP == made.right.event_time_text
    assert timedelta(milliseconds=1) == made.right.watermark_delay


def test_table_is_read_from_its_beginning() -> None:
    made = plan(join={"type": "inner"}, right=TABLE, start_from="latest")

    assert "latest" == made.left.source_options["startingOffsets"]
    assert "earliest" == made.right.source_options["startingOffsets"]


def test_stream_is_the_first_input() -> None:
    table = {**TABLE, "topic": "impressions"}
    side = {"topic": "clicks", "schema": "ad_id BIGINT, clicked_at TIMESTAMP", "key": ["ad_id"]}
    side |= {"event_time": "clicked_at", "watermark_delay": "1 s"}
    columns = {"ad_id": "right.ad_id"}

    for kind, of_spark in {
        "right_outer": "left_outer",
        "right_anti": "left_outer",
        "right_semi": "left_semi",
        "inner": "inner",
    }.items():
        made = plan(join={"type": kind}, left=table, right=side, output__columns=columns)
        assert ("right", "left") == made.inputs
        assert of_spark == made.spark_join_type


@pytest.mark.parametrize("join_type", ["right_outer", "full_outer", "right_semi", "right_anti"])
def test_join_that_emits_rows_of_the_table_is_refused(join_type: str) -> None:
    message = refused(join_type, output__columns={"user": "right.user"})["join.type"]

    assert message.startswith("emits rows of the right side, which is a table")
    assert message.endswith("Use one of inner, left_outer, left_semi, left_anti")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("match_window", {"before": "1 minute", "after": "1 hour"}),
        ("window", "10 minutes"),
        ("unbounded_state", True),
        ("operator", "spark"),
    ],
)
def test_setting_of_a_join_of_streams_is_refused(field: str, value: Any) -> None:
    assert [f"join.{field}"] == list(refused(join={"type": "inner", field: value}))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("deduplicate", {"by": ["user"], "within": "1 hour"}),
        ("idle_after", "1 minute"),
        ("on_tombstone", "drop"),
    ],
)
def test_setting_of_a_stream_is_refused(field: str, value: Any) -> None:
    (message,) = refused(right={**TABLE, field: value}).values()

    assert f"is a table and has {field}, which a table does not use" in message


def test_two_tables_are_refused() -> None:
    found = refused(left={**TABLE, "topic": "impressions"})

    assert "has a table on both sides" in next(iter(found.values()))


def test_delete_that_can_fail_is_refused() -> None:
    table = {"version": "latest", "delete": "cast(user AS INT) = 1"}

    assert "right.table.delete" in refused(right={**TABLE, "table": table})


def test_key_without_tombstones_has_a_warning() -> None:
    table = {**TABLE, "schema": "id BIGINT, user STRING", "key": ["id"]}
    keyed = plan(join={"type": "inner"}, right=table)
    deleting = {"version": "latest", "delete": "user IS NULL"}

    assert [] == list(warnings(enriched()))
    (warning,) = warnings(keyed)
    assert warning.startswith("right.key id is a value of the record")
    assert [] == list(warnings(plan(join={"type": "inner"}, right={**table, "table": deleting})))


def test_condition_on_the_table_is_evaluated_on_the_row_of_the_key() -> None:
    made = plan(join={"type": "left_outer", "condition": "right.user <> 'bot'"}, right=TABLE)

    assert [] == made.one_sided_condition("right")
    assert made.pair_condition is not None


def as_of(**table: Any) -> dict[str, Any]:
    """A table with versions, and event times."""
    schema = "user STRING, since TIMESTAMP"
    times = {"event_time": "since", "watermark_delay": "1 minute", "schema": schema}
    return {**TABLE, **times, "table": {"version": "as_of", **table}}


def test_table_as_of_needs_event_times_on_both_sides() -> None:
    without = {**TABLE, "table": "as_of"}

    assert {"right.event_time", "right.watermark_delay"} == set(refused(right=without))
    assert plan(join={"type": "inner"}, right=as_of()).is_as_of


def test_rows_of_the_stream_can_be_late_as_of() -> None:
    letters = {"dead_letter": {"topic": "dead"}, "on_late_row": "dead_letter"}
    letters |= {"on_bad_record": None}

    made = plan(join={"type": "inner"}, right=as_of(), **letters)
    assert made.dead_letter is not None
    assert made.dead_letter.takes_late_rows
    assert any("with which no row is late" in text for text in refused(**letters).values())


@pytest.mark.parametrize(
    ("field", "value"), [("before_first", "first"), ("retention", "1 day"), ("final", True)]
)
def test_setting_of_versions_is_refused_for_the_newest_row(field: str, value: object) -> None:
    (message,) = refused(right={**TABLE, "table": {"version": "latest", field: value}}).values()

    assert f"has version latest and {field}, which only as_of uses" in message


def test_row_waits_for_no_first_version() -> None:
    (message,) = refused(right=as_of(final=True, before_first="first")).values()

    assert "has final and before_first first, which contradict each other" in message


@pytest.mark.parametrize(
    ("delay", "wait"),
    [("1 minute", "50 seconds"), ("10 seconds", "0 seconds"), ("1 second", "0 seconds")],
)
def test_row_waits_until_the_longer_delay_is_over(delay: str, wait: str) -> None:
    """The watermark follows the stream, whose delay is 10 seconds."""
    right = {**as_of(final=True), "watermark_delay": delay}
    made = plan(join={"type": "inner"}, left__expected_rate=10, right=right)

    assert made.is_final
    assert made.right.retention is None
    assert made.left.retention is not None
    assert wait == duration_text(made.left.retention)
    assert state_format(made).startswith("table in 256 slots, slots of ")


def test_row_that_finds_none_waits() -> None:
    made = enriched(table={"version": "latest", "wait": "30 seconds"})

    assert made.stream_waits
    assert not made.is_final
    assert made.left.retention is not None
    assert "30 seconds" == duration_text(made.left.retention)
    assert "table in 256 slots, slots of 7 seconds 500 milliseconds" == state_format(made)
    assert made.right.table is not None
    assert "latest, wait 30 seconds" == made.right.table.frozen


def test_row_waits_in_micro_batches_only() -> None:
    table = {"version": "latest", "wait": "30 seconds"}
    (message,) = refused(right={**TABLE, "table": table}, engine="real_time").values()

    assert "is not supported with engine real_time" in message


def test_final_row_does_not_wait_for_another_time() -> None:
    (message,) = refused(right=as_of(final=True, wait="1 minute")).values()

    assert "has final and wait, which contradict each other" in message


def test_checkpoint_freezes_the_settings_of_versions() -> None:
    made = plan(
        join={"type": "inner"},
        right=as_of(before_first="first", retention="90 days", delete="user IS NULL"),
    )

    assert made.right.table is not None
    assert made.right.table.frozen.startswith(
        "as_of, before_first first, retention 90 days, delete"
    )
    assert "1 minute" == fingerprint(made)["right.watermark_delay"]


def test_versions_after_the_watermark_count_for_the_expected_state() -> None:
    made = plan(
        join={"type": "inner"},
        left__expected_rate=10,
        right={**as_of(expected_keys=1_000), "expected_rate": 100},
    )
    load = expected_load(made)

    assert load is not None
    assert 1_000 + 100 * made.left.watermark_delay.total_seconds() == load.rows
