"""The generated tables of the documentation, and the texts of the OpenAPI description."""

from pathlib import Path
from typing import Any

import pytest

from service.app import create_app
from service.reference import REFERENCES, with_reference
from service.settings import ServiceSettings

DOCS = Path(__file__).parents[3] / "docs"
OPENAPI = create_app(ServiceSettings()).openapi()


@pytest.mark.parametrize("name", REFERENCES)
def test_reference_in_the_documentation_is_that_of_the_code(name: str) -> None:
    page = (DOCS / name).read_text()

    assert with_reference(page, REFERENCES[name]()) == page, (
        "run .venv/bin/python -m service.reference docs"
    )


def test_reference_lists_every_call() -> None:
    table = REFERENCES["http-api.md"]()

    for path, operations in OPENAPI["paths"].items():
        for method in operations:
            assert f"| `{method.upper()} {path}` |" in table


@pytest.mark.parametrize("name", OPENAPI["components"]["schemas"])
def test_every_field_of_the_api_has_a_description(name: str) -> None:
    fields: dict[str, Any] = OPENAPI["components"]["schemas"][name].get("properties", {})

    assert [] == [field for field, schema in fields.items() if not schema.get("description")]


def test_every_call_and_query_parameter_has_a_description() -> None:
    calls = [
        (f"{method} {path}", operation)
        for path, operations in OPENAPI["paths"].items()
        for method, operation in operations.items()
    ]
    parameters = [
        (name, parameter)
        for name, operation in calls
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "query"
    ]

    assert [] == [name for name, part in [*calls, *parameters] if not part.get("description")]
