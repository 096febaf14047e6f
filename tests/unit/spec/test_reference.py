"""The JSON Schema of the spec and the tables of its fields."""

from typing import Any

import pytest

from job.spec import reference
from job.spec.reference import field_tables, spec_json_schema, with_tables
from job.spec.spec import spec_from_yaml
from tests.unit.specs import spec_yaml

SCHEMA = spec_json_schema()
MODELS: dict[str, dict[str, Any]] = {
    name: model
    for name, model in {"JoinSpec": SCHEMA, **SCHEMA["$defs"]}.items()
    if "properties" in model
}


def test_schema_names_the_fields_as_the_yaml_does() -> None:
    assert {"name", "kafka", "left", "right", "join", "output", "checkpoint"} == set(
        SCHEMA["required"]
    )
    assert "schema" in MODELS["SideSpec"]["properties"]


@pytest.mark.parametrize("model", MODELS)
def test_every_mapping_and_field_has_a_description(model: str) -> None:
    assert MODELS[model].get("description"), f"{model} has no docstring"
    for name, field in MODELS[model]["properties"].items():
        assert field.get("description"), f"{model}.{name} has no docstring"


def test_description_is_the_docstring_below_the_field() -> None:
    rate = MODELS["SideSpec"]["properties"]["expected_rate"]

    assert rate["description"].startswith("Records per second of the topic. `streamjoin plan`")
    assert 0 == rate["anyOf"][0]["exclusiveMinimum"]


def test_default_of_a_duration_is_one_that_the_spec_accepts() -> None:
    default = MODELS["SideSpec"]["properties"]["max_event_time_ahead"]["default"]

    assert "1 hour" == default
    spec_from_yaml(spec_yaml(left__max_event_time_ahead=default), {})


def test_tables_have_a_section_for_each_mapping_and_a_row_for_each_field() -> None:
    tables = field_tables()

    assert "### `left`, `right`\n" in tables
    assert "### `kafka.security`\n" in tables
    assert "| `watermark_delay` | duration | required | How far" in tables
    assert "| `type` | `inner`, `left_outer`," in tables
    assert tables.count("\n| `") == sum(len(model["properties"]) for model in MODELS.values())


def test_tables_are_replaced_in_the_page() -> None:
    page = f"before\n{reference._BEGIN}outdated\n{reference._END}after\n"

    written = with_tables(page)

    assert "outdated" not in written
    assert written.startswith("before\n")
    assert written.endswith("after\n")
    assert with_tables(written) == written
