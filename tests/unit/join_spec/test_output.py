"""Format, subject and registration of the results."""

import json

import pytest

from job.errors import SpecError
from job.join_spec.spec import spec_from_yaml
from job.plan.explain import facts
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
    assert {"format": "json"} == facts(plan())["output"]


def test_plan_as_json_contains_the_schema() -> None:
    made = plan(**REGISTRY, output__format="avro", output__subject="s", output__register=False)

    assert made.output.schema is not None
    expected = {"subject": "s", "register": False, "schema": made.output.schema.text}
    assert {"format": "avro", **expected} == facts(made)["output"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"output__format": "avro"}, "has format avro and no schema_registry"),
        ({**REGISTRY, "output__format": "protobuf"}, "output.format: must be one of"),
        ({"output__subject": "s"}, "output: has a subject, which json does not use"),
        ({"output__register": False}, "output: has `register: false`, which json does not use"),
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


def test_registry_that_only_the_output_uses_is_accepted() -> None:
    spec = spec_from_yaml(spec_yaml(**REGISTRY, output__format="avro"), {})

    assert "attributed-value" == spec.output.registry_subject
