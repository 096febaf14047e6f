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
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from job.errors import Problem, SpecError
from job.evaluation.sql_types import STRING, SqlType
from job.formats.schemas import OutputSchema
from job.join_spec.expressions import Expression
from job.join_spec.spec import JoinSpec

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
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


def output_schema(spec: JoinSpec, columns: Mapping[str, Expression]) -> OutputSchema | None:
    """The schema of the results of `spec`. None: they are JSON. SpecError as in avro_schema."""
    written = spec.output
    if not written.value_format.has_registry:
        return None
    text = avro_schema(spec.name, {name: column.type for name, column in columns.items()})
    return OutputSchema(written.value_format, written.registry_subject, written.register_, text)


def avro_schema(name: str, columns: Mapping[str, SqlType]) -> str:
    """The schema of a record `name` as JSON. SpecError with every column that Avro cannot hold."""
    problems = [
        Problem(f"output.columns.{column}", str(kind), problem)
        for column, kind in columns.items()
        for problem in _problems(column, kind)
    ]
    if problems:
        raise SpecError(problems)
    return json.dumps(_record(name, "", columns.items()), separators=(",", ":"))


def _problems(column: str, kind: SqlType) -> Iterator[str]:
    if not _NAME.fullmatch(column):
        yield (
            "is not a name in Avro: use letters, digits and _, and begin with a letter or _ "
            "(`output.columns` can rename a column)"
        )
    yield from _problems_of_type(kind)


def _problems_of_type(kind: SqlType) -> Iterator[str]:
    if kind.name == "VOID":
        yield "is a bare NULL, which has no type in Avro: write e.g. cast(NULL AS STRING)"
    elif kind.name == "STRUCT":
        yield from _problems_of_names([name for name, _ in kind.fields])
    elif kind.name == "MAP" and kind.inside("key") != STRING:
        yield f"has keys of type {kind.inside('key')}, and keys of a map in Avro are STRING"
    elif kind.is_atomic and not kind.is_decimal and kind.name not in _TYPES:
        yield f"is {kind}, which Avro does not have: write cast(… AS STRING)"
    for _, inner in kind.fields:
        yield from _problems_of_type(inner)


def _problems_of_names(names: list[str]) -> Iterator[str]:
    for name in dict.fromkeys(names):
        if not _NAME.fullmatch(name):
            yield (
                f"has the field `{name}`, which is not a name in Avro: name it with named_struct, "
                "with letters, digits and _"
            )
        elif names.count(name) > 1:
            yield f"has several fields `{name}`: name them with named_struct"


def _record(name: str, namespace: str, fields: Iterable[tuple[str, SqlType]]) -> dict[str, Any]:
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
