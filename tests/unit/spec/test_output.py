"""Format, subject and registration of the results."""

import json

import pytest

from job.errors import SpecError
from job.plan.explain import plan_as_json
from job.spec.spec import spec_from_yaml
from tests.unit.specs import plan, spec_yaml

REGISTRY = {"schema_registry": {"url": "http://localhost:8081"}}


def test_schema_of_the_results_has_the_columns_in_their_order() -> None:
    schema = plan(**REGISTRY, output__format="avro").output.schema

    assert schema is not None
    assert ("attributed-value", True, None) == (schema.subject, schema.registers, schema.id)
    fields = [(field["name"], field["type"]) for field in json.loads(schema.text)["fields"]]
    assert [
        ("ad_id", ["null", "long"]),
        ("cost", ["null", "double"]),
        ("user", ["null", "string"]),
    ] == fields


def test_results_in_json_have_no_schema() -> None:
    assert plan().output.schema is None
    assert {"format": "json"} == plan_as_json(plan())["output"]


def test_plan_as_json_contains_the_schema() -> None:
    made = plan(**REGISTRY, output__format="avro", output__subject="s", output__register=False)

    assert made.output.schema is not None
    expected = {"subject": "s", "register": False, "schema": made.output.schema.text}
    assert {"format": "avro", **expected} == plan_as_json(made)["output"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output__format": "avro"}, "has format avro and no schema_registry"),
        ({**REGISTRY, "output__format": "csv"}, "output.format: is a format of inputs only"),
        ({"output__subject": "s"}, "output: has a subject, which json does not use"),
        ({"output__register": False}, "output: has `register: false`, and neither format nor"),
        ({"output__key_format": "json"}, "output: has key_format json and no key"),
        (
            {"output__key": "ad_id", "output__key_format": "avro"},
            "has format avro and no schema_registry",
        ),
        (
            {**REGISTRY, "output__key": "date '2026-01-31'", "output__key_format": "protobuf"},
            "output.key: is DATE, which Protobuf does not have",
        ),
        ({"output__partition_by": "left.nothing"}, "output.partition_by: unknown column"),
        (
            {
                **REGISTRY,
                "output__format": "protobuf",
                "output__columns": {"a_b": "left.ad_id", "ab": "left.cost"},
            },
            "output.columns.ab: has the same name in Protobuf as a_b",
        ),
        (
            {
                **REGISTRY,
                "output__format": "avro",
                "output__columns": {"a": "left.ad_id", "two words": "left.cost"},
            },
            "output.columns.two words: is not a name in Avro",
        ),
    ],
)
def test_output_that_cannot_be_written_is_refused_by_name(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(SpecError) as raised:
        plan(**changes)

    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("key", "key_format", "text"),
    [
        ("ad_id", "avro", '"long"'),
        (
            "named_struct('id', ad_id)",
            "avro",
            '"name":"tested_key","fields":[{"name":"id","type":["null","long"],"default":null}]',
        ),
        ("user", "protobuf", "message TestedKey {\n  optional string key = 1;\n}"),
        (
            "named_struct('id', ad_id)",
            "protobuf",
            "message TestedKey {\n  optional int64 id = 1;\n}",
        ),
    ],
)
def test_schema_of_the_keys_follows_from_the_key(key: str, key_format: str, text: str) -> None:
    output = plan(**REGISTRY, output__key=key, output__key_format=key_format).output

    assert output.schema is None
    assert output.key_schema is not None
    assert ("attributed-key", True) == (output.key_schema.subject, output.key_schema.is_key)
    assert text in output.key_schema.text


def test_columns_of_partition_by_are_kept_for_the_output() -> None:
    made = plan(output__partition_by="left.campaign")

    assert "campaign" in [column.name for column in made.left.kept_columns]


def test_registry_that_only_the_output_uses_is_accepted() -> None:
    spec = spec_from_yaml(spec_yaml(**REGISTRY, output__format="avro"), {})

    assert "attributed-value" == spec.output.registry_subject
