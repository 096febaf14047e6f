"""Schemas of record keys and of envelopes: the columns, and what a checkpoint freezes."""

from typing import Any

import pytest

from job.errors import CheckpointError
from job.formats.pinning import check_schema_evolution
from job.formats.registry import RegistryAccess
from job.plan.explain import explained, plan_as_json
from job.plan.fingerprint import fingerprint, incompatible_changes
from job.spec.spec import JoinSpec
from tests.registry_stub import RegistryStub
from tests.unit.formats.test_pinning import MILLIS, plan, problems, registry, spec
from tests.unit.formats.written import envelope, field, record

__all__ = ["registry"]

KEY = 'syntax = "proto3"; message Key { int64 id = 1; string region = 2; }'
ROW = record(field("id", "long"), field("at", ["null", MILLIS]), name="shop.Value")


def keyed(registry: RegistryStub, schema: Any, kind: str = "AVRO", **changes: Any) -> JoinSpec:
    """A spec with keys on the left."""
    registry.register("impressions-key", schema, kind)
    return spec(registry, left__key_format=kind.lower(), **changes)


@pytest.mark.parametrize(
    ("schema", "kind", "declared", "expected"),
    [
        ('"long"', "AVRO", None, "BIGINT"),
        ('"int"', "AVRO", "BIGINT", "BIGINT"),
        (["null", "string"], "AVRO", None, "STRING"),
        (MILLIS, "AVRO", None, "TIMESTAMP"),
        (record(field("id", "long")), "AVRO", None, "STRUCT<id: BIGINT>"),
        (record(field("a", MILLIS), field("b", "int")), "AVRO", "STRUCT<b: INT>", "STRUCT<b: INT>"),
        (KEY, "PROTOBUF", None, "STRUCT<id: BIGINT, region: STRING>"),
        (KEY, "PROTOBUF", "STRUCT<region: STRING>", "STRUCT<region: STRING>"),
    ],
)
def test_record_key_has_the_type_of_its_schema(
    registry: RegistryStub, schema: Any, kind: str, declared: str | None, expected: str
) -> None:
    declaration = {} if declared is None else {"left__key_schema": declared}
    made = plan(keyed(registry, schema, kind, **declaration))

    assert expected == str(made.left.record_key.type)
    assert f"{kind.capitalize()}, subject impressions-key, schema 3 (version 1)" in explained(made)
    values = plan_as_json(made)["values"]["left"]  # type: ignore[index]
    assert (1, 3, "impressions-key") == (
        values["schema_id"], values["key_schema_id"], values["key_subject"]
    )  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "changes", "field_name", "message"),
    [
        (
            '"long"',
            {"left__key_subject": "x"},
            "key_subject",
            "register its schema, or set `key_su",
        ),
        ('"long"', {"left__key_format": "protobuf"}, "key_subject", "and `key_format` is protobuf"),
        (
            '"long"',
            {"left__key_schema": "STRING"},
            "key_schema",
            "declare that type, or omit `key_",
        ),
        (["int", "string"], {}, "key_subject", "has a schema of an unsupported type"),
        (record(field("at", MILLIS)), {}, "key_schema", "name the other columns in `key_schema`"),
        (record(field("n", "int")), {"left__key_schema": "INT"}, "key_schema", "must be a STRUCT"),
        (
            record(field("at", "long")),
            {"left__key_schema": "STRUCT<at: TIMESTAMP>"},
            "key_schema",
            "contains a TIMESTAMP inside a key of a registry: declare it BIGINT",
        ),
    ],
)
def test_key_that_the_schema_does_not_have_is_refused(
    registry: RegistryStub, schema: Any, changes: dict[str, Any], field_name: str, message: str
) -> None:
    registry.register("impressions-key", schema)
    found = problems(spec(registry, **{"left__key_format": "avro", **changes}))

    assert message in found[f"left.{field_name}"]


def test_columns_of_an_envelope_are_those_of_the_row(registry: RegistryStub) -> None:
    registry.register("impressions-value", envelope(ROW))
    changes = {"left__envelope": "debezium", "left__key": ["id"], "left__event_time": "at",
               "output__columns": {"id": "left.id"}}  # fmt: skip

    assert ("id", "at") == plan(spec(registry, **changes)).left.schema.names
    declared = plan(spec(registry, left__schema="at TIMESTAMP, id BIGINT", **changes))
    assert ("at", "id") == declared.left.schema.names
    registry.register("impressions-value", ROW)
    assert "is no envelope of Debezium" in problems(spec(registry, **changes))["left.subject"]


def test_schemas_of_keys_and_envelopes_are_frozen_as_those_of_rows(registry: RegistryStub) -> None:
    registry.register("impressions-value", envelope(ROW))
    changes = {"left__envelope": "debezium", "left__key": ["id"], "left__event_time": "at",
               "output__columns": {"id": "left.id"}}  # fmt: skip
    made = keyed(registry, record(field("id", "int")), **changes)
    frozen, access = fingerprint(plan(made)), RegistryAccess(registry.url)
    assert ["left.record_key_schema_id"] == [
        change.field for change in incompatible_changes(plan(spec(registry, **changes)), frozen)
    ]

    registry.register("impressions-key", record(field("id", "long")))
    wider = record(*ROW["fields"], field("more", "int", default=0), name="shop.Value")
    registry.register("impressions-value", envelope(wider))
    renewed = check_schema_evolution(frozen, plan(made).readers, access)
    assert ("5", "6") == (renewed["left.record_key_schema_id"], renewed["left.schema_id"])
    assert [] == incompatible_changes(plan(made), frozen)

    registry.register("impressions-key", record(field("id", "string")))
    with pytest.raises(CheckpointError, match=r"^left keys: .*schema 4.*id: int cannot be read"):
        check_schema_evolution(frozen, plan(made).readers, access)
    registry.register("impressions-key", record(field("id", "long")))
    without_default = record(*ROW["fields"], field("more", "int"), name="shop.Value")
    registry.register("impressions-value", envelope(without_default))
    with pytest.raises(CheckpointError, match=r"^left: .*: field more: is missing and has no def"):
        check_schema_evolution(frozen, plan(made).readers, access)
