"""The text of `plan`, compared with recorded texts.

Record them again and read the difference:

    UPDATE_GOLDEN=1 .venv/bin/pytest tests/unit/plan/test_explain.py
"""

import os
from pathlib import Path
from typing import Any

import pytest

from job.plan.capacity import AvailableResources
from job.plan.explain import explained, plan_as_json, summarized
from tests.unit.specs import plan

GOLDEN = Path(__file__).parents[2] / "golden"

RESOURCES = AvailableResources(cores=2, heap_bytes=2 * 2**30, disk_free_bytes=100 * 2**30)
JOINS: dict[str, dict[str, Any]] = {
    "inner": {},
    "exactly_once": {
        "output__delivery": "exactly_once",
        "output__key": "user",
        "output__timestamp": "event_time",
        "left__columns": {"cents": "cost * 100"},
        "left__event_time": "coalesce(shown_at, record_timestamp)",
    },
    "left_outer": {
        "join__type": "left_outer",
        "left__filter": "cost > 0",
        "join__condition": "right.user <> 'bot'",
        "output__filter": "cost < 100",
        "output__key": "ad_id",
    },
    "full_outer_window": {
        "join": {"type": "full_outer", "window": "10 minutes", "null_safe": True},
    },
    "expected_load": {
        "left__expected_rate": 2_000,
        "right__expected_rate": 150,
        "join__type": "left_outer",
    },
    "deduplicate": {
        "left__expected_rate": 2_000,
        "right__expected_rate": 150,
        "left__deduplicate": {"by": ["ad_id", "campaign"], "within": "10 minutes"},
    },
    "protobuf_results": {
        "schema_registry": {"url": "http://localhost:8081"},
        "output__format": "protobuf",
        "output__columns": {"ad_id": "left.ad_id", "users": "split(right.user, ',')"},
        "output__key": "ad_id",
        "output__key_format": "avro",
        "output__partition_by": "left.campaign",
    },
    "avro_results": {
        "schema_registry": {"url": "http://localhost:8081"},
        "output__format": "avro",
    },
    "pick": {"join__pick": "nearest", "join__type": "left_outer"},
    "table": {
        "join": {"type": "left_outer", "condition": "right.user <> 'bot'"},
        "left__expected_rate": 2_000,
        "right": {
            "topic": "users",
            "schema": "user STRING, op STRING",
            "key": ["cast(record_key AS BIGINT)"],
            "table": {"version": "latest", "delete": "op = 'd'", "expected_keys": 1_000_000},
            "expected_rate": 10,
        },
    },
    "left_anti": {"join__type": "left_anti", "output__columns": {"ad_id": "left.ad_id"}},
    "right_semi": {"join__type": "right_semi", "output__columns": {"ad_id": "right.ad_id"}},
    "unbounded": {
        "left__expected_rate": 2_000,
        "right__expected_rate": 150,
        "join": {"type": "inner", "unbounded_state": True, "match_window": {"after": "1 hour"}},
        "on_null_key": "drop",
    },
    "real_time": {
        "engine": "real_time",
        "real_time": {"checkpoint_interval": "30 seconds"},
        "join__type": "left_outer",
        "on_bad_record": None,
        "dead_letter": {"topic": "attributed.dead"},
        "on_null_key": "dead_letter",
    },
    "real_time_exactly_once": {
        "engine": "real_time",
        "left__expected_rate": 1_000,
        "right__expected_rate": 1_000,
        "output__delivery": "exactly_once",
        "on_bad_record": None,
        "dead_letter": {"topic": "attributed.dead"},
    },
    "event_time_in_key": {
        "left__key": ["ad_id", "shown_at"],
        "right__key": ["ad_id", "clicked_at"],
        "join": {"type": "right_outer"},
    },
}


@pytest.mark.parametrize("name", JOINS)
def test_explanation_reads_as_recorded(name: str) -> None:
    recorded = GOLDEN / f"plan_{name}.txt"
    text = explained(plan(**JOINS[name]), RESOURCES)
    if os.environ.get("UPDATE_GOLDEN"):
        recorded.write_text(text)

    assert recorded.read_text() == text
    summary = summarized(plan(**JOINS[name]), RESOURCES)
    assert text.startswith(summary)
    assert len(summary.splitlines()) <= 10


def test_summary_names_the_expressions_that_can_fail_and_counts_warnings() -> None:
    names = {f"c{index}": "cast(left.campaign AS INT)" for index in range(4)}

    text = summarized(plan(output__columns=names, left__event_time="cast(ad_id AS TIMESTAMP)"))

    assert "can fail          output.columns.c0, output.columns.c1, output.columns.c2 and 1" in text
    assert "WARNINGS          1: see `streamjoin plan --full`" in text


def test_plan_explains_the_offset_of_a_window() -> None:
    window = {"size": "10 minutes", "offset": "3 minutes"}

    text = explained(plan(join={"type": "inner", "window": window}))

    assert "tumbling window of 10 minutes; windows begin 3 minutes after its multiples" in text


def test_plan_explains_the_nulls_of_null_safe_pairs() -> None:
    keys = {"left__key": ["ad_id", "campaign"], "right__key": ["ad_id", "user"]}

    text = explained(plan(**keys, join__null_safe=[False, True]))

    assert "left ad_id = right ad_id and left campaign <=> right user" in text
    assert "Not counted in left campaign and right user: there a null matches a null" in text


def test_plan_warns_about_numbers_that_are_cast_to_timestamp() -> None:
    seconds = "date_trunc('DAY', cast(left.cost AS TIMESTAMP))"
    made = plan(
        left__columns={"day": "cast(ad_id AS TIMESTAMP)"},
        left__event_time="cast(ad_id + 1 AS TIMESTAMP)",
        left__key=["ad_id", "timestamp(ad_id)"],
        right__key=["ad_id", "timestamp_seconds(ad_id)"],
        output__columns={"day": seconds, "at": "cast(left.campaign AS TIMESTAMP)"},
    )
    fields = ["left.columns.day", "left.key[1]", "left.event_time", "output.columns.day"]
    warned = [f"{field} casts a number to TIMESTAMP" for field in fields]

    shown = plan_as_json(made)["warnings"]

    assert isinstance(shown, list)
    assert warned == [warning.partition(",")[0] for warning in shown]
    assert [warning for warning in shown if f"  {warning}\n" not in explained(made)] == []
    assert "Warnings" not in explained(plan())


def test_plan_explains_which_idle_side_follows_the_clock() -> None:
    outer = {"join__type": "full_outer", "right__idle_after": "1 minute"}

    one = explained(plan(**outer))
    both = explained(plan(**outer, left__idle_after="5 minutes"))

    assert "event time follows the clock, 1 minute 20 seconds behind it" in one
    assert "While the left side is idle, it does" in one
    assert "follows the clock, 5 minutes 10 seconds behind it" in both
    assert "no unmatched rows are emitted" not in both
