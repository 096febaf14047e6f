"""The text of `plan`, compared with recorded texts.

Record them again and read the difference:

    UPDATE_GOLDEN=1 .venv/bin/pytest tests/unit/plan/test_explain.py
"""

import os
from pathlib import Path
from typing import Any

import pytest

from job.plan.capacity import AvailableResources
from job.plan.explain import explained
from tests.unit.specs import plan

GOLDEN = Path(__file__).parents[2] / "golden"

RESOURCES = AvailableResources(cores=2, heap_bytes=2 * 2**30, disk_free_bytes=100 * 2**30)
JOINS: dict[str, dict[str, Any]] = {
    "inner": {},
    "exactly_once": {"output__delivery": "exactly_once"},
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


def test_plan_explains_the_offset_of_a_window() -> None:
    window = {"size": "10 minutes", "offset": "3 minutes"}

    text = explained(plan(join={"type": "inner", "window": window}))

    assert "tumbling window of 10 minutes; windows begin 3 minutes after its multiples" in text


def test_plan_explains_the_nulls_of_null_safe_pairs() -> None:
    keys = {"left__key": ["ad_id", "campaign"], "right__key": ["ad_id", "user"]}

    text = explained(plan(**keys, join__null_safe=[False, True]))

    assert "left ad_id = right ad_id and left campaign <=> right user" in text
    assert "Not counted in left campaign and right user: there a null matches a null" in text


def test_plan_explains_which_idle_side_follows_the_clock() -> None:
    outer = {"join__type": "full_outer", "right__idle_after": "1 minute"}

    one = explained(plan(**outer))
    both = explained(plan(**outer, left__idle_after="5 minutes"))

    assert "event time follows the clock, 1 minute 20 seconds behind it" in one
    assert "While the left side is idle, it does" in one
    assert "follows the clock, 5 minutes 10 seconds behind it" in both
    assert "no unmatched rows are emitted" not in both
