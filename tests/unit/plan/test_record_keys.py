"""Record keys of each format, read by the SQL of the job in Spark's own expressions."""

import json
from typing import Any

import pytest

from job.errors import SpecError
from job.plan import record_sql
from job.plan.explain import plan_as_json
from job.plan.fingerprint import fingerprint
from job.plan.plan import JoinPlan
from job.semantics.input_records import records_of_jsonl
from job.semantics.simulate import simulate
from tests.sql_worker import ROWS
from tests.unit.plan.test_value_formats import AT, OK, read
from tests.unit.specs import plan

REGISTRY = {"url": "http://localhost:8081"}
VALUE = json.dumps({"ad_id": 1, "shown_at": AT})
MALFORMED, MISMATCH = "malformed_json", "schema_mismatch"


def keyed(key_schema: str | None, key_format: str = "json", **changes: Any) -> JoinPlan:
    return plan(**{"left__key_format": key_format, "left__key_schema": key_schema, **changes})


def key_of(key_schema: str, key: bytes | str | None, key_format: str = "json") -> dict[str, Any]:
    content = key.encode() if isinstance(key, str) else key
    [row] = read(keyed(key_schema, key_format).left, VALUE, key=content)
    return row


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("BIGINT", "7", "7"),
        ("BIGINT", " 7\n", "7"),
        ("STRING", '"a\\u00e9"', "aé"),
        ("STRING", "1.50", "1.50"),
        ("STRING", '{"a": 1}', '{"a":1}'),
        ("TIMESTAMP", f'"{AT}"', "2026-01-01 00:00:00"),
        ("BOOLEAN", "true", "true"),
        ("STRUCT<id: BIGINT, s: STRING>", '{"s": 1.50, "id": 7, "more": [1]}', "{7, 1.50}"),
        ("STRUCT<id: BIGINT>", "{}", "{null}"),
        ("STRUCT<t: TIMESTAMP>", '{"t": "2026-01-01T00:00Z"}', "{2026-01-01 00:00:00}"),
        ("ARRAY<INT>", "[1, 2]", "[1, 2]"),
        ("BIGINT", "null", None),
        ("BIGINT", None, None),
    ],
)
def test_json_key_has_the_type_of_key_schema(kind: str, key: str | None, value: str | None) -> None:
    row = key_of(kind, key)

    assert (OK, value) == (row["reason"], row["record_key"])


@pytest.mark.parametrize(
    ("kind", "key", "reason"),
    [
        ("BIGINT", "", MALFORMED),
        ("BIGINT", "a", MALFORMED),
        ("STRING", "'a'", MALFORMED),
        ("STRING", b'"\xff"', MALFORMED),
        ("BIGINT", "7, 8", MALFORMED),
        ("BIGINT", '7, "x": 8', MALFORMED),
        ("BIGINT", '7} {"x": 8', MALFORMED),
        ("BIGINT", "7] [8", MALFORMED),
        ("STRUCT<id: BIGINT>", '{"id": 7},"x":{"b":8}', MALFORMED),
        ("STRUCT<id: BIGINT>", '{"id": 7}\t{"id": 8}', MALFORMED),
        ("BIGINT", '"7"', MISMATCH),
        ("BIGINT", "7.5", MISMATCH),
        ("TINYINT", "128", MISMATCH),
        ("TIMESTAMP", '"noon"', MISMATCH),
        ("STRUCT<id: BIGINT>", "7", MISMATCH),
        ("STRUCT<id: BIGINT>", '{"id": "x"}', MISMATCH),
        ("STRUCT<t: TIMESTAMP>", '{"t": "now"}', MISMATCH),
    ],
)
def test_key_that_is_no_json_of_its_type_is_a_bad_record(
    kind: str, key: bytes | str, reason: str
) -> None:
    row = key_of(kind, key)
    message = "not one JSON value in UTF-8" if reason == MALFORMED else f"not of the type {kind}"

    assert (reason, f"the key is {message}") == (row["reason"], row["message"])


def test_json_schema_key_is_json_after_the_id_of_a_schema() -> None:
    assert "7" == key_of("BIGINT", b"\0\0\0\0\x017", "json_schema")["record_key"]
    row = key_of("BIGINT", "7", "json_schema")
    message = "the key does not begin with a byte 0 and the 4 of a schema's id"
    assert ("undecodable_value", message) == (row["reason"], row["message"])


def test_reason_of_the_value_comes_before_that_of_the_key() -> None:
    [row] = read(keyed("BIGINT").left, "x", key=b"x")

    message = "the value is not one JSON object in UTF-8"
    assert (MALFORMED, message) == (row["reason"], row["message"])


def test_filter_drops_no_record_whose_key_it_cannot_read() -> None:
    side = keyed("BIGINT", left__filter="record_key IS NOT NULL AND cost > 0").left
    without = json.dumps({"ad_id": 1, "shown_at": AT, "cost": 0})

    assert [MALFORMED] == [row["reason"] for row in read(side, without, key=b"x")]
    assert [OK] == [row["reason"] for row in read(side, without, key=b"7")]


def test_reasons_of_keys_are_counted() -> None:
    side = keyed(
        "BIGINT",
        "json_schema",
        left__format="text",
        left__schema=None,
        left__key=["record_key"],
        left__event_time="record_timestamp",
        output__columns={"user": "right.user"},
    ).left

    assert {MALFORMED, MISMATCH, "undecodable_value"} < set(record_sql.reasons(side))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"left__key_format": "json"}, "left: has no `key_schema`, which key_format json requires"),
        ({"left__key_schema": "INT"}, "left: has a key_schema, which key_format string does not"),
        (
            {"left__key_format": "json", "left__key_schema": "id BIGINT"},
            "left.key_schema: is no type (",
        ),
        (
            {"left__key_format": "json", "left__key_schema": "INT, b INT"},
            "left.key_schema: has 2 columns: write one type in Spark DDL",
        ),
        ({"left__key_format": "text"}, "left.key_format: must be one of 'string', 'json'"),
        ({"left__key_subject": "s"}, "left: has a key_subject, which key_format string does not"),
        ({"left__key_format": "avro"}, "the file: has format avro and no schema_registry"),
        (
            {
                "left__key_format": "avro",
                "schema_registry": REGISTRY,
            },
            "left.key_schema: is required here, because no registry is read",
        ),
        (
            {
                "left__key_format": "avro",
                "left__topic": None,
                "left__topics": ["a", "b"],
                "schema_registry": REGISTRY,
            },
            "left: has several topics or a topic_pattern and no `key_subject`",
        ),
    ],
)
def test_key_format_and_its_schema_belong_together(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as refused:
        plan(**changes)

    assert str(refused.value).startswith(message)


def joined_on_keys(**changes: Any) -> JoinPlan:
    return keyed(
        "STRUCT<id: BIGINT>",
        left__key=["record_key.id"],
        right__key=["record_key"],
        right__key_schema="BIGINT",
        output__columns={"id": "left.record_key.id", "user": "right.user"},
        **{"right__key_format": "json_schema", **changes},
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"left__key_format": "protobuf", "right__key_format": "avro", "schema_registry": REGISTRY},
    ],
)
def test_simulation_joins_on_typed_keys(changes: dict[str, Any]) -> None:
    made = joined_on_keys(**changes)
    left = [{"value": {"shown_at": AT}, "key": {"id": 7}}, {"value": {"shown_at": AT}, "key": "x"}]
    right = [{"value": {"clicked_at": AT, "user": "ada"}, "key": 7}]
    records = [
        records_of_jsonl([json.dumps(line) for line in lines], ROWS, side)
        for lines, side in ((left, made.left), (right, made.right))
    ]
    [batch, *_] = simulate(made, ROWS, *records)

    assert ['{"id":7,"user":"ada"}'] == [record.value for record in batch.output]
    assert [MISMATCH] == [drop.reason for drop in batch.drops]


def test_type_of_the_key_is_frozen_and_shown() -> None:
    made = joined_on_keys()

    columns = fingerprint(made)["left.state_columns"]
    assert "record_key STRUCT<id: BIGINT>" in columns
    values = plan_as_json(made)["values"]
    assert isinstance(values, dict)
    assert {"format": "json", "key_format": "json_schema", "record_key": "BIGINT"} == values[
        "right"
    ]
