"""From spec to plan: derived settings, and problems that are found before the start."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest

from job.errors import SpecError
from job.plan.fingerprint import Change, changes, fingerprint
from job.plan.plan import DeadLetterPlan
from job.spec.join_conditions import JoinType
from job.spec.sides import OTHER_SIDE, Side
from job.spec.start_positions import StartPositions
from tests.unit.specs import plan, problems

FILE_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"


# --- Retention and the ON clause


def test_match_window_bounds_each_side_by_the_other() -> None:
    planned = plan()

    assert timedelta(hours=1) == planned.left.retention
    assert timedelta(minutes=1) == planned.right.retention


def test_match_window_becomes_two_bounds_on_event_times() -> None:
    on = plan().on

    assert "`right_clicked_at` >= `left_shown_at` - (INTERVAL '60.000' SECOND)" in on
    assert "`right_clicked_at` <= `left_shown_at` + (INTERVAL '3600.000' SECOND)" in on


def test_keys_are_never_null_unless_null_safe() -> None:
    assert "(`left_ad_id`) IS NOT NULL AND (`right_ad_id`) IS NOT NULL" in plan().on
    assert plan(join__null_safe=True).on.startswith("(`left_ad_id`) <=> (`right_ad_id`) AND ")


def test_null_safety_is_set_for_each_pair_of_keys() -> None:
    keys = {"left__key": ["ad_id", "campaign"], "right__key": ["ad_id", "user"]}

    planned = plan(**keys, join__null_safe=[True, False])

    assert "(`left_ad_id`) <=> (`right_ad_id`) AND " in planned.on
    assert "(`left_campaign`) IS NOT NULL AND (`right_user`) IS NOT NULL" in planned.on
    assert "(`left_ad_id`) IS NOT NULL" not in planned.on
    assert (1,) == planned.left.null_checked == planned.right.null_checked
    assert "true, false" == fingerprint(planned)["join.null_safe"]
    assert "true" == fingerprint(plan(**keys, join__null_safe=[True, True]))["join.null_safe"]


@pytest.mark.parametrize("null_safe", [[], [True, False]])
def test_null_safety_of_another_number_of_pairs_is_refused(null_safe: list[bool]) -> None:
    found = problems(join__null_safe=null_safe)

    assert ["join.null_safe"] == list(found)
    assert "write one for each pair" in found["join.null_safe"]


def test_event_time_in_the_key_is_compared_by_equality_even_when_null_safe() -> None:
    keys = {"left__key": ["ad_id", "shown_at"], "right__key": ["ad_id", "clicked_at"]}
    planned = plan(**keys, join={"type": "inner", "null_safe": True})

    assert "(`left_shown_at`) = (`right_clicked_at`)" in planned.on
    assert timedelta(0) == planned.left.retention == planned.right.retention


def test_tumbling_window_joins_on_the_windows_end() -> None:
    planned = plan(join={"type": "left_outer", "window": "10 minutes"})

    assert planned.on.endswith("window_end_left = window_end_right")
    assert timedelta(minutes=10) == planned.left.retention


def test_tumbling_window_may_begin_later() -> None:
    window = {"size": "10 minutes", "offset": "3 minutes"}
    planned = plan(join={"type": "left_outer", "window": window})
    plain, size = (
        fingerprint(plan(join={"type": "left_outer", "window": written}))["join.window"]
        for written in ("10 minutes", {"size": "10 minutes"})
    )

    assert timedelta(minutes=10) == planned.left.retention
    assert "10 minutes, offset 3 minutes" == fingerprint(planned)["join.window"]
    assert plain == size == "10 minutes"


@pytest.mark.parametrize(
    ("offset", "same"), [("10 minutes", "0 seconds"), ("-1 minute", "9 minutes")]
)
def test_offset_outside_of_the_window_is_refused(offset: str, same: str) -> None:
    found = problems(join={"type": "inner", "window": {"size": "10 minutes", "offset": offset}})

    assert ["join.window.offset"] == list(found)
    assert f"write {same}" in found["join.window.offset"]


def test_state_has_only_the_columns_needed_after_the_side_filter() -> None:
    planned = plan(left__filter="campaign <> 'x'", join__condition="right.user <> 'bot'")

    assert ["ad_id", "shown_at", "cost"] == [c.name for c in planned.left.kept_columns]
    assert ["ad_id", "clicked_at", "user"] == [c.name for c in planned.right.kept_columns]


def test_headers_are_read_only_if_an_expression_uses_them() -> None:
    assert plan().left.reads_headers is False
    assert plan(left__filter="record_headers['x'] = 'y'").left.reads_headers is True


def test_omitted_columns_mean_all_of_both_sides() -> None:
    planned = plan(
        left__schema="id BIGINT, shown_at TIMESTAMP",
        left__key=["id"],
        output__columns=None,
    )

    assert ["id", "shown_at", "ad_id", "clicked_at", "user"] == list(planned.output.columns)


def test_start_from_a_time_is_the_same_instant_in_any_notation() -> None:
    for start in ("2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00"):
        options = plan(start_from=start).left.source_options
        assert "1769860800000" == options["startingTimestamp"]
        assert "startingOffsets" not in options


def test_partition_without_a_start_position_starts_at_its_first_record() -> None:
    read = plan().reading({"left": (3,), "right": (1,)})
    started = read.starting_at(StartPositions(left={0: 7, 1: 5}, right="latest"))

    options = [side.source_options["startingOffsets"] for side in (started.left, started.right)]
    assert ({"impressions": {"0": 7, "1": 5, "2": 0}}, "latest") == (
        *(json.loads(options[0]), options[1]),
    )


def test_settings_that_decide_semantics_are_always_passed_to_spark() -> None:
    planned = plan()

    assert "true" == planned.left.source_options["failOnDataLoss"]
    assert "read_committed" == planned.left.source_options["kafka.isolation.level"]
    assert "2" == planned.spark_conf["spark.sql.shuffle.partitions"]
    assert "4" == planned.spark_conf["spark.sql.streaming.join.stateFormatVersion"]


@pytest.mark.parametrize("checkpoint", ["data/join", "/data/join", "file:///data/join"])
def test_files_of_a_local_checkpoint_are_written_without_a_process_for_each(
    checkpoint: str,
) -> None:
    conf = plan(checkpoint=checkpoint).spark_conf

    assert conf["spark.hadoop.fs.file.impl"].endswith("BareLocalFileSystem")
    assert conf[FILE_MANAGER].endswith("FileSystemBasedCheckpointFileManager")


def test_files_of_a_checkpoint_on_hdfs_are_written_as_spark_does() -> None:
    conf = plan(checkpoint="hdfs://nodes/data/join").spark_conf

    assert FILE_MANAGER not in conf
    assert "spark.hadoop.fs.file.impl" not in conf


# --- Problems


def test_colliding_names_of_omitted_columns_are_refused() -> None:
    found = problems(output__columns=None)

    assert "both sides have ad_id" in found["output.columns"]


def test_headers_can_use_output_columns_and_their_columns_are_kept_in_state() -> None:
    made = plan(output__headers={"twice": "cost * 2", "by": "left.campaign", "BY": "user"})
    assert {"twice", "by", "BY"} == made.output.headers.keys()
    assert "campaign" in [column.name for column in made.left.kept_columns]
    assert () == made.checks.headers
    assert ("n",) == plan(output__headers={"n": "cast(user AS INT)"}).checks.headers


def test_event_time_as_timestamp_needs_exactly_once_and_is_frozen_with_a_tumbling_window() -> None:
    with pytest.raises(SpecError, match="write `delivery: exactly_once`, or leave timestamp out"):
        plan(output__timestamp="event_time")
    output = {"output__timestamp": "event_time", "output__delivery": "exactly_once"}
    assert plan(**output).output.has_event_time
    assert "output.timestamp" not in fingerprint(plan(**output))
    tumbling = plan(**output, join={"type": "inner", "window": "1 minute"})
    before = plan(output__delivery="exactly_once", join={"type": "inner", "window": "1 minute"})
    [change] = changes(fingerprint(before), fingerprint(tumbling))
    assert ("output.timestamp", "none", "event_time") == (
        change.field,
        change.frozen,
        change.wanted,
    )


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("Streamjoin-id", "user", "is reserved for headers of Streamjoin"),
        ("__streamjoin.errors.topic", "user", "is reserved for headers of Streamjoin"),
        ("a", "clicks", "output.headers.a: unknown column clicks"),
        ("", "user", "must not be empty"),
    ],
)
def test_impossible_header_is_refused(name: str, text: str, problem: str) -> None:
    with pytest.raises(SpecError, match=re.escape(problem)):
        plan(output__headers={name: text})


def test_output_names_that_differ_only_in_case_are_refused() -> None:
    found = problems(output__columns={"id": "left.ad_id", "ID": "right.ad_id"})

    assert "collides with id" in found["output.columns.ID"]


def test_key_columns_of_two_types_are_refused_with_the_cast() -> None:
    found = problems(right__schema="ad_id STRING, clicked_at TIMESTAMP, user STRING")

    assert "write try_cast(ad_id as bigint)" in found["right.key[0]"]


@pytest.mark.parametrize(
    ("left", "right", "remedy"),
    [
        ("INT", "BIGINT", "write cast(ad_id as bigint) in left.key[0], or declare the same type"),
        ("INT", "TINYINT", "write cast(ad_id as int) in right.key[0], or declare the same type"),
    ],
)
def test_narrower_of_two_whole_numbers_is_cast_to_the_wider_one(
    left: str, right: str, remedy: str
) -> None:
    found = problems(
        left__schema=f"ad_id {left}, shown_at TIMESTAMP, campaign STRING, cost DOUBLE",
        right__schema=f"ad_id {right}, clicked_at TIMESTAMP, user STRING",
    )

    assert remedy in found["right.key[0]"]


@pytest.mark.parametrize("join_type", list(JoinType))
@pytest.mark.parametrize("window", [None, {"before": "1 hour"}, {"after": "1 hour"}])
def test_join_without_both_bounds_is_refused(join_type: JoinType, window: Any) -> None:
    join = {"type": str(join_type)} | ({"match_window": window} if window else {})

    assert ["join"] == list(problems(**_shown_columns(join_type), join=join))


def test_only_an_inner_join_may_have_unbounded_state() -> None:
    assert plan(join={"type": "inner", "unbounded_state": True}).left.retention is None
    assert ["join"] == list(problems(join={"type": "left_outer", "unbounded_state": True}))


@pytest.mark.parametrize("field", ["left.watermark_delay", "right.watermark_delay", "left.key"])
def test_part_without_which_spark_keeps_rows_indefinitely_is_required(field: str) -> None:
    """SPARK-46350, SPARK-58904."""
    assert [field] == list(problems(**{field.replace(".", "__"): None}))


def test_unbounded_state_with_a_bound_is_refused() -> None:
    assert ["join.unbounded_state"] == list(problems(join__unbounded_state=True))


@pytest.mark.parametrize(
    ("join_type", "hidden"),
    [
        ("left_semi", "right"),
        ("left_anti", "right"),
        ("right_semi", "left"),
        ("right_anti", "left"),
    ],
)
def test_output_cannot_show_the_other_side_of_a_semi_or_anti_join(
    join_type: str, hidden: Side
) -> None:
    columns = {"shown": f"{OTHER_SIDE[hidden]}.ad_id", "hidden": f"{hidden}.ad_id"}

    found = problems(join__type=join_type, output__columns=columns, output__key="shown")

    assert ["output.columns.hidden"] == list(found)


def test_event_time_must_be_a_timestamp_column() -> None:
    assert "is BIGINT" in problems(left__event_time="ad_id")["left.event_time"]
    assert "unknown column" in problems(left__event_time="nope")["left.event_time"]


def test_record_columns_cannot_be_shadowed() -> None:
    found = problems(left__schema="ad_id BIGINT, shown_at TIMESTAMP, record_key STRING, cost INT")

    assert "rename the column" in found["left.schema"]


def test_problems_of_all_parts_are_reported_together() -> None:
    found = problems(
        left__key=["nope"],
        right__filter="rand() > 0",
        join__condition="left.x = 1",
        output__columns={"a": "left.b"},
    )

    assert {"left.key[0]", "right.filter", "join.condition", "output.columns.a"} == set(found)


def test_dead_letter_topic_takes_bad_records_and_what_the_spec_adds() -> None:
    topic = {"on_bad_record": None, "dead_letter": {"topic": "dead"}}
    alone = plan(**topic)
    all_of_it = plan(**topic, on_null_key="dead_letter", on_late_row="dead_letter")

    assert DeadLetterPlan("dead", takes_null_keys=False, takes_late_rows=False) == alone.dead_letter
    assert (
        DeadLetterPlan("dead", takes_null_keys=True, takes_late_rows=True) == all_of_it.dead_letter
    )
    assert (True, False) == (alone.null_keys_pass, all_of_it.null_keys_pass)


def test_query_fails_on_bad_records_only_with_on_bad_record_fail() -> None:
    assert not plan().fails_on_bad_records
    assert plan(on_bad_record="fail").fails_on_bad_records


def test_commit_topic_is_named_after_the_join_unless_it_has_a_name() -> None:
    assert "tested.commits" == plan(output__delivery="exactly_once").output.commit_topic
    named = plan(output__delivery="exactly_once", output__commit_topic="ours")
    assert "ours" == named.output.commit_topic


# --- Settings frozen by a checkpoint


def test_changed_frozen_settings_are_listed() -> None:
    frozen = fingerprint(plan())
    wanted = fingerprint(
        plan(join__match_window={"before": "1 minute", "after": "2 hours"}, left__topic="views")
    )

    assert [
        Change("join.match_window.after", "1 hour", "2 hours"),
        Change("left.topic", "impressions", "views"),
    ] == changes(frozen, wanted)


def test_intervals_cannot_be_keys() -> None:
    """Spark has no order for them."""
    key = ["make_interval(0, 0, 0, cast(ad_id AS INT))"]
    with pytest.raises(SpecError, match="Spark cannot compare them"):
        plan(left__key=key, right__key=key)


def test_new_output_column_changes_the_state_columns() -> None:
    columns = {"ad_id": "left.ad_id", "campaign": "left.campaign"}
    found = changes(fingerprint(plan()), fingerprint(plan(output__columns=columns)))

    assert ["left.state_columns", "right.state_columns"] == [c.field for c in found]


def test_settings_without_effect_on_state_may_change() -> None:
    free = plan(
        left__filter="cost > 1",
        output__topic="elsewhere",
        output__filter="cost > 2",
        output__key="ad_id",
        name="renamed",
        on_null_key="drop",
    )

    assert [] == changes(fingerprint(plan()), fingerprint(free))


def _shown_columns(join_type: JoinType) -> dict[str, Any]:
    return {"output__columns": {"ad_id": f"{join_type.shown_sides[0]}.ad_id"}}


@pytest.mark.parametrize("key", ["shown_at", "left.shown_at", "`SHOWN_AT`"])
def test_event_time_in_the_key_is_recognized_in_any_spelling(key: str) -> None:
    join = {"type": "left_outer"}
    assert plan(left__key=[key], right__key=["right.clicked_at"], join=join).event_time_in_key


def test_start_before_1970_is_1970() -> None:
    """-1 milliseconds are the end of a partition for Kafka."""
    options = plan(start_from="1969-12-31T23:59:59.999Z").left.source_options
    assert "0" == options["startingTimestamp"]
