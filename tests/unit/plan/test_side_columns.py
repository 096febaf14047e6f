"""Computed columns and event times of a spec: what the plan contains, and what is refused."""

import pytest

from job.errors import SpecError
from job.plan.fingerprint import fingerprint
from job.spec.spec import spec_from_yaml
from tests.unit.specs import plan

NESTED = "ad_id BIGINT, shown_at TIMESTAMP, campaign STRING, cost DOUBLE, at BIGINT, "
NESTED += "p STRUCT<source: STRUCT<ts_ms: BIGINT>>, `@timestamp` TIMESTAMP"


def left(**changes):
    return plan(left__schema=NESTED, **changes).left


def problem(**changes):
    with pytest.raises(SpecError) as error:
        left(**changes)
    (found,) = error.value.problems
    return f"{found.field}: {found.message}"


def test_columns_are_computed_after_those_that_they_use():
    columns = {"c": "upper(B)", "b": "trim(left.a)", "a": "campaign"}
    side = left(left__columns=columns, left__key=["c"], right__key=["user"])

    assert [("a", 1), ("b", 2), ("c", 3)] == [(each.name, each.level) for each in side.computed]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("shown_at", "shown_at"),
        ("SHOWN_AT", "shown_at"),
        ("left.shown_at", "shown_at"),
        ("`@timestamp`", "@timestamp"),
        ("@timestamp", "@timestamp"),
        ("record_timestamp", "record_timestamp"),
        ("placed", "placed"),
        ("timestamp_millis(p.source.ts_ms)", "event_time"),
        ("coalesce(shown_at, record_timestamp)", "event_time"),
    ],
)
def test_event_time_is_a_column_or_an_expression(text, name):
    side = left(left__event_time=text, left__columns={"placed": "timestamp_seconds(at)"})

    assert name == side.event_time
    assert (name == "event_time") == side.has_event_time_expression


def test_column_of_an_event_time_that_is_an_expression_has_a_free_name():
    side = left(left__event_time="timestamp_seconds(at)", left__columns={"EVENT_TIME": "campaign"})

    assert "event_time_" == side.event_time


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"event_time": "p.source.ts_ms"},
         "is BIGINT and must be TIMESTAMP: write timestamp_seconds(p.source.ts_ms), timestamp_m"),
        ({"event_time": "campaign"},
         "left.event_time: is STRING and must be TIMESTAMP: write cast(campaign AS TIMESTAMP)"),
        ({"event_time": "p"}, "left.event_time: is STRUCT<source: STRUCT<ts_ms: BIGINT>> and must"),
        ({"event_time": "nope"}, "left.event_time: unknown column nope of the left side: it has"),
        ({"event_time": "p.source.nope"}, "left.event_time: "),
        ({"columns": {"ad_ID": "at"}}, "left.columns.ad_ID: is the name of a column of the value"),
        ({"columns": {"record_key": "at"}}, "left.columns.record_key: is the name of a column of"),
        ({"columns": {"a": "at", "A": "at"}}, "left.columns: names a column twice"),
        ({"columns": {"a": "b", "b": "c + 1", "c": "left.a"}},
         "left.columns.a: depends on itself (a -> b -> c -> a)"),
        ({"columns": {"a": "null"}}, "left.columns.a: is VOID, which a column cannot be"),
        ({"columns": {"a": "shown_at - record_timestamp"}}, "left.columns.a: is INTERVAL"),
        ({"columns": {"a": "right.user"}}, "left.columns.a: right.user cannot be used here"),
        ({"columns": {"a": "2147483647 + 1"}}, "left.columns.a: "),
        ({"columns": {"a": "2147483647"}, "filter": "a + 1 > 0"}, "left.filter: "),
        # The problem of a column is not repeated where the column is used.
        ({"columns": {"a": "nope"}, "filter": "a > 0", "key": ["a"]}, "left.columns.a: unknown"),
    ],
)  # fmt: skip
def test_refused_column_or_event_time(changes, message):
    found = problem(**{f"left__{name}": value for name, value in changes.items()})

    assert message in found


def test_key_of_constant_columns_is_refused_as_one_of_constants():
    changes = {"left__columns": {"one": "1"}, "left__key": ["one"], "right__key": ["1"]}

    assert "no pair of entries that both depend on a column" in problem(**changes)


def test_frozen_settings_contain_the_definition_of_a_column_and_not_its_name():
    def frozen(**changes):
        made = plan(left__schema=NESTED, right__key=["user"], **changes)
        return {
            name: value
            for name, value in fingerprint(made).items()
            if name in {"left.key", "left.event_time"}
        }

    columns = {"k": "trim(campaign)", "t": "timestamp_seconds(at)"}
    first = frozen(left__columns=columns, left__key=["k"], left__event_time="t")
    renamed = frozen(left__columns={"x": columns["k"], "y": columns["t"]}, left__key=["x"],
                     left__event_time="y")  # fmt: skip
    written = frozen(left__key=["trim( campaign )"], left__event_time="timestamp_seconds(at)")
    columns["k"] = "campaign"
    other = frozen(left__columns=columns, left__key=["k"], left__event_time="t")

    assert first == renamed == written
    assert first["left.key"] != other["left.key"]


def test_stored_column_is_frozen_with_its_definition():
    made = plan(left__columns={"cents": "cost * 100"}, output__columns={"cents": "left.cents"})

    stored = fingerprint(made)["left.state_columns"]

    assert "cents DOUBLE = (left_cost * CAST(100 AS DOUBLE))" in stored.replace("`", "")


def test_headers_in_a_computed_column_are_read():
    changes = {"left__columns": {"h": "record_headers['id']"}, "left__key": ["h"]}

    assert left(**changes, right__key=["user"]).reads_headers
    assert not left().reads_headers


def test_columns_of_the_yaml_are_a_mapping_of_expressions():
    with pytest.raises(SpecError, match=r"left\.columns"):
        spec_from_yaml("left: {columns: [a]}", {})
