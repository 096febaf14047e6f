"""The reference tables of the documentation, from the code.

python -m service.reference docs    rewrites the tables of docs/metrics.md and docs/http-api.md
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service.app import create_app
from service.metrics.exposition import METRICS
from service.settings import ServiceSettings

BEGIN = "<!-- begin: written by `python -m service.reference docs` -->\n"
END = "<!-- end -->\n"


def metrics_reference() -> str:
    """One table per subject."""
    return "\n".join("\n".join(_metrics_table(subject)) for subject in METRICS)


def _metrics_table(subject: str) -> Iterator[str]:
    yield f"### {subject}\n"
    yield "| metric | type | labels | meaning |\n|---|---|---|---|"
    for metric in METRICS[subject]:
        labels = ", ".join(f"`{label}`" for label in metric.labels if label != "le")
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"
    yield ""


def calls_reference() -> str:
    """One table of all calls."""
    return "\n".join(_calls_table(create_app(ServiceSettings()).openapi())) + "\n"


def _calls_table(document: dict[str, Any]) -> Iterator[str]:
    yield "| call | parameters | effect |\n|---|---|---|"
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parameters = dict.fromkeys(_parameters(document, operation))  # each one once
            names = ", ".join(f"`{name}`" for name in parameters)
            text = " ".join(operation["description"].split())
            yield f"| `{method.upper()} {path}` | {names} | {text} |"


def _parameters(document: dict[str, Any], operation: dict[str, Any]) -> Iterator[str]:
    """Query parameters and fields of the JSON body."""
    yield from (each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")
    content = operation.get("requestBody", {}).get("content", {})
    schema = content.get("application/json", {}).get("schema", {})
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    yield from schema.get("properties", ())


REFERENCES = {"metrics.md": metrics_reference, "http-api.md": calls_reference}


def with_reference(page: str, reference: str) -> str:
    """The text of a page with `reference` between the markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{reference}\n{END}{after}"


def main() -> None:
    for name, reference in REFERENCES.items():
        page = Path(sys.argv[1]) / name
        page.write_text(
            with_reference(page.read_text(encoding="utf-8"), reference()), encoding="utf-8"
        )


if __name__ == "__main__":
    main()
