"""The Avro schema of results, from the types of the output columns.

| SQL type | Avro |
|---|---|
| BOOLEAN | boolean |
| TINYINT, SMALLINT, INT | int |
| BIGINT | long |
| FLOAT, DOUBLE | float, double |
| DECIMAL(p, s) | bytes, decimal(p, s) |
| STRING | string |
| BINARY | bytes |
| DATE | int, date |
| TIMESTAMP | long, timestamp-micros |
| ARRAY, MAP<STRING, …>, STRUCT | array, map, record |

Each field, element and value of a map is a union of null and its type, and each field has the
default null: with any compatibility, columns can be added and removed. AvroEncoder.java writes the
values.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from job.formats.column_rules import ColumnRules, Columns
from job.sql.types import SqlType

_TYPES: Mapping[str, Any] = {
    "BOOLEAN": "boolean",
    "TINYINT": "int",
    "SMALLINT": "int",
    "INT": "int",
    "BIGINT": "long",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "BINARY": "bytes",
    "DATE": {"type": "int", "logicalType": "date"},
    "TIMESTAMP": {"type": "long", "logicalType": "timestamp-micros"},
}

RULES = ColumnRules(
    format="Avro",
    name=re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII),
    name_rule="use letters, digits and _, and begin with a letter or _",
    atomic_types={*_TYPES, "DECIMAL"},
    nests_collections=True,
    names_taken=lambda name, _: {name},
)


def record_schema(name: str, columns: Columns) -> str:
    """The schema of a record `name` as JSON. The columns obey the RULES."""
    return _text(_record(name, "", columns))


def plain_schema(kind: SqlType) -> str:
    """The schema as JSON of a value that is not null and not a STRUCT."""
    return _text(_type(kind, "key", "key"))


def _text(schema: Any) -> str:
    return json.dumps(schema, separators=(",", ":"))


def _record(name: str, namespace: str, fields: Columns) -> dict[str, Any]:
    """The namespace of a nested record is its place, so that no two records have one name."""
    inner = f"{namespace}.{name}" if namespace else name
    return {
        "type": "record",
        "name": name,
        **({"namespace": namespace} if namespace else {}),
        "fields": [
            {"name": field, "type": ["null", _type(kind, field, inner)], "default": None}
            for field, kind in fields
        ],
    }


def _type(kind: SqlType, name: str, namespace: str) -> Any:
    """`name` and `namespace`: those of the record if the type is a STRUCT."""
    if kind.is_decimal:
        logical = {"logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
        return {"type": "bytes", **logical}
    if kind.name == "STRUCT":
        return _record(name, namespace, kind.fields)
    if kind.element is not None:
        part = "items" if kind.name == "ARRAY" else "values"
        element = _type(kind.element, "element", f"{namespace}.{name}")
        return {"type": kind.name.lower(), part: ["null", element]}
    return _TYPES[kind.name]
