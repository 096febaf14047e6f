"""An invalid structure hides only the problems of SQL that depends on it."""

from typing import Any

import pytest
import yaml

from job.plan.validation import ValidationRequest, validated
from tests.sql_worker import SQL
from tests.unit.specs import BASE, spec_yaml


def listed(text: str) -> list[str]:
    """Fields of all problems, one entry each."""
    request = ValidationRequest(spec=text, state_partitions=2, frozen=None)
    return sorted(each.field for each in validated(request, SQL).problems)


def test_invalid_sql_of_each_field_is_reported_with_an_invalid_structure() -> None:
    sides = {
        side: {
            **BASE[side],
            "columns": {"computed": "nope + 1"},
            "key": ["nope"],
            "key_format": "json",
            "key_schema": "NOSUCH",
            "event_time": "nope",
            "filter": "nope > 1",
            "deduplicate": {"by": ["ad_id", "nope"], "within": "1 hour"},
            "time_zone": "Mars/Olympus",
        }
        for side in ("left", "right")
    }
    expressions = dict.fromkeys(("key", "partition_by"), "left.nope")
    text = spec_yaml(
        **sides,
        nonsense=1,
        join={
            "type": "sideways",
            "window": {"size": "1 day", "time_zone": "Nowhere"},
            "condition": "left.nope = 1",
        },
        output={
            **BASE["output"],
            **expressions,
            "delivery": "twice",
            "columns": {"a": "left.nope", "b": "left.cost"},
            "headers": {"x.y": "left.nope"},
            "filter": "left.nope > 1",
        },
    )

    of_sides = [
        f"{side}.{field}"
        for side in ("left", "right")
        for field in (
            *("columns.computed", "deduplicate.by[1]", "event_time", "filter", "key[0]"),
            *("key_schema", "time_zone"),
        )
    ]
    of_output = ("columns.a", "delivery", "filter", "headers.x.y", "key", "partition_by")
    assert listed(text) == sorted(
        [
            *of_sides,
            *(f"output.{field}" for field in of_output),
            *("join.condition", "join.type", "join.window.time_zone", "nonsense"),
        ]
    )


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        pytest.param(
            {"left__subject": "s", "left__filter": "nope", "right__filter": "nope"},
            ["left", "left.filter", "right.filter"],
            id="contradiction of a side",
        ),
        pytest.param(
            {"output__key_format": "json", "output__filter": "left.nope > 1"},
            ["output", "output.filter"],
            id="contradiction of the output",
        ),
        pytest.param(
            {"left__key": ["ad_id", 7], "right__key": ["nope", "user"], "right__filter": "nope"},
            ["left.key[1]", "right.filter", "right.key[0]"],
            id="entry of a key that is no text",
        ),
        pytest.param(
            {"left__key": None, "right__key": ["nope", "ad_id"], "join__condition": "left.no = 1"},
            ["join.condition", "left.key", "right.key[0]"],
            id="missing key",
        ),
        pytest.param(
            {"left__schema": None, "left__filter": "nope", "right__filter": "nope"},
            ["left", "right.filter"],
            id="missing schema",
        ),
        pytest.param(
            {"left__schema": 7, "left__filter": "nope", "right__event_time": "nope"},
            ["left.schema", "right.event_time"],
            id="schema that is no text",
        ),
        pytest.param(
            {"left": "impressions", "right__filter": "nope"},
            ["left", "right.filter"],
            id="side that is no mapping",
        ),
        pytest.param(
            {"output__columns": ["ad_id"], "output__filter": "a > 1", "left__filter": "nope"},
            ["left.filter", "output.columns"],
            id="columns that are no mapping",
        ),
        pytest.param(
            {"output__columns": {"a": 7}, "output__filter": "a > 1", "output__key": "nope"},
            ["output.columns.a", "output.key"],
            id="column that is no text",
        ),
        pytest.param(
            {
                "name": "Not Valid",
                "left__deduplicate": {"by": ["nope"]},
                "right__filter": "nope",
            },
            ["left.deduplicate.by[0]", "left.deduplicate.within", "name", "right.filter"],
            id="missing field of a mapping",
        ),
        pytest.param(
            {"left__topic": "${UNSET}", "left__filter": "nope", "right__filter": "${UNSET}"},
            ["left.filter", "left.topic", "right.filter"],
            id="variables without a value",
        ),
    ],
)
def test_invalid_structure_hides_only_sql_that_depends_on_it(
    changes: dict[str, Any], fields: list[str]
) -> None:
    assert fields == listed(spec_yaml(**changes))


def test_invalid_table_does_not_hide_invalid_sql() -> None:
    table = {"version": "newest", "delete": "nope = 1"}
    document = yaml.safe_load(spec_yaml(right__table=table, join={"type": "inner"}))

    assert ["left.filter", "right.table.delete", "right.table.version"] == listed(
        yaml.safe_dump({**document, "left": {**document["left"], "filter": "nope"}})
    )


def test_unknown_time_zone_does_not_hide_invalid_sql() -> None:
    text = spec_yaml(left__time_zone="Mars/Olympus", left__filter="nope > 1", right__key=["nope"])

    assert ["left.filter", "left.time_zone", "right.key[0]"] == listed(text)
