"""The columns that a JSON Schema of a registry names."""

import json
from collections.abc import Mapping
from typing import Any

from job.proposal.columns import declarable
from job.sql.types import BIGINT, BOOLEAN, DOUBLE, STRING, SqlType, array_of, struct_of

_PLAIN = {"string": STRING, "integer": BIGINT, "number": DOUBLE, "boolean": BOOLEAN}
_DEPTH_MAX = 10


def schema_columns(text: str) -> dict[str, SqlType]:
    """The columns of an object with this JSON Schema, without those whose type it does not name."""
    columns: dict[str, SqlType] = {}
    for name, property_ in _properties(json.loads(text)):
        kind = _type(property_, 0)
        if kind is not None and declarable(name, [kind], columns) is not None:
            columns[name] = kind
    return columns


def _properties(schema: Any) -> list[tuple[str, Any]]:
    found = schema.get("properties") if isinstance(schema, Mapping) else None
    return list(found.items()) if isinstance(found, Mapping) else []


def _type(schema: Any, depth: int) -> SqlType | None:
    """None: the schema allows several types, or names none."""
    if not isinstance(schema, Mapping) or depth == _DEPTH_MAX:
        return None
    for name in ("oneOf", "anyOf"):  # the form of optional fields in Confluent's generators
        if isinstance(schema.get(name), list):
            kinds = [each for each in schema[name] if each != {"type": "null"}]
            return _type(kinds[0], depth + 1) if len(kinds) == 1 else None
    written = schema.get("type")
    names = written if isinstance(written, list) else [written]
    kinds = [name for name in names if name != "null"]
    if len(kinds) != 1:
        return None
    if kinds == ["array"]:
        element = _type(schema.get("items"), depth + 1)
        return None if element is None else array_of(element)
    if kinds == ["object"]:
        fields = [(name, _type(each, depth + 1)) for name, each in _properties(schema)]
        typed = [(name, kind) for name, kind in fields if kind is not None]
        return struct_of(typed) if typed else None
    return _PLAIN.get(kinds[0])
