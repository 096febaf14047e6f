"""Reference of the spec's fields: its JSON Schema, and the tables of docs/spec.md.

`python -m job.spec.reference docs/spec.md` writes the tables into the page.

The description of a field is the docstring below it, read from the source code. pydantic's own
`use_attribute_docstrings` would read the source at each start of a command: 40 ms of `validate`.
"""

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from textwrap import dedent
from typing import Any

from pydantic import BaseModel

from job.spec.durations import duration_text
from job.spec.spec import JoinSpec
from job.spec.text import fields_of, model_in

_BEGIN = "<!-- The tables are generated: python -m job.spec.reference docs/spec.md -->\n"
_END = "<!-- End of the tables. -->\n"


def spec_json_schema() -> dict[str, Any]:
    """JSON Schema of the spec, with a description of each field."""
    schema = JoinSpec.model_json_schema(by_alias=True)
    for model in {model for _, model in _sections(JoinSpec)}:
        part = schema if model is JoinSpec else schema["$defs"][model.__name__]
        docstrings = _docstrings(model)
        for name, field in model.model_fields.items():
            described = part["properties"][field.alias or name]
            if name in docstrings:
                described["description"] = docstrings[name]
            if isinstance(field.default, timedelta):  # pydantic writes ISO-8601, e.g. PT1H
                described["default"] = duration_text(field.default)
    return schema


def field_tables() -> str:
    """Markdown: a heading and a table of fields for each mapping of the spec."""
    schema = spec_json_schema()
    headings: dict[type[BaseModel], list[str]] = {}
    for path, model in _sections(JoinSpec):
        headings.setdefault(model, []).append(path)
    parts = []
    for model, paths in headings.items():
        part = schema if model is JoinSpec else schema["$defs"][model.__name__]
        title = ", ".join(f"`{path}`" for path in paths if path) or "Top level"
        rows = (_row(name, field, part, schema) for name, field in part["properties"].items())
        table = "| field | type | default | description |\n|---|---|---|---|\n" + "".join(rows)
        parts.append(f"### {title}\n\n{part['description']}\n\n{table}")
    return "\n".join(parts)


def with_tables(page: str) -> str:
    """`page` with its tables replaced by `field_tables()`."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n{field_tables()}\n{_END}{after}"


def _sections(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """`model` and all models in its fields, each with its path in the YAML ('' for the root)."""
    yield path, model
    for name, field in fields_of(model).items():
        inner = model_in(field.annotation)
        if inner is not None:
            yield from _sections(inner, f"{path}.{name}".lstrip("."))


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """The docstring of each field that has one, on one line."""
    [definition] = ast.parse(dedent(inspect.getsource(model))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(definition.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(text.value.value, str)
    }


def _row(name: str, field: dict[str, Any], part: dict[str, Any], schema: dict[str, Any]) -> str:
    default = field.get("default")
    if name in part.get("required", ()):
        shown = "required"
    else:
        text = default if isinstance(default, str) else json.dumps(default)
        shown = "" if default in (None, [], "") else f"`{text}`"
    description = field.get("description", "").replace("|", "\\|")
    return f"| `{name}` | {_type(field, schema)} | {shown} | {description} |\n"


def _type(field: dict[str, Any], schema: dict[str, Any]) -> str:
    if "$ref" in field:
        return _type(schema["$defs"][field["$ref"].rpartition("/")[2]], schema)
    if forms := field.get("anyOf") or field.get("oneOf"):
        return " or ".join(_type(form, schema) for form in forms if form.get("type") != "null")
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if field.get("type") == "array":
        items = _type(field["items"], schema)
        return f"list of {items}" if items.startswith("`") else f"list of {items}s"
    if "10 seconds" in field.get("examples", ()):
        return "duration"
    name: str = field["type"]
    return {"object": "mapping", "string": "text"}.get(name, name)


def main() -> None:
    page = Path(sys.argv[1])
    page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
