"""SQL types of Avro schemas whose references are expanded. columns.py has the table."""

from typing import Any

from job.formats.schemas import UnmappedError
from job.formats.times import MICROS_A_MILLI
from job.sql.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    SqlType,
    array_of,
    decimal_type,
    map_of,
    struct_of,
)

_PRIMITIVES = {
    "boolean": BOOLEAN,
    "int": INT,
    "long": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BINARY,
}
MICROS = {"timestamp-millis": MICROS_A_MILLI, "timestamp-micros": 1}
_DECIMAL_DIGITS_MAX = 38


def not_null(schema: Any) -> Any:
    """The other branch of a union with null; any other schema unchanged."""
    if isinstance(schema, list):
        others = [branch for branch in schema if branch != "null"]
        return others[0] if len(others) == 1 else schema
    return schema


def kind_of(schema: Any) -> str:
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


def logical_of(schema: Any) -> str:
    if not isinstance(schema, dict):
        return ""
    name = str(schema.get("logicalType", ""))
    if name == "decimal":
        # Avro ignores an invalid logical type.
        precision = schema.get("precision")
        is_valid = isinstance(precision, int) and precision > 0
        return name if is_valid and kind_of(schema) in {"bytes", "fixed"} else ""
    return name


def sql_type_or_none(schema: Any) -> SqlType | None:
    try:
        return _sql_type(not_null(schema))
    except UnmappedError:
        return None


def _sql_type(schema: Any, *, inside: bool = False) -> SqlType:
    kind, logical = kind_of(schema), logical_of(schema)
    if logical == "decimal" and schema["precision"] <= _DECIMAL_DIGITS_MAX:
        return decimal_type(schema["precision"], schema.get("scale", 0))
    if logical in MICROS and kind == "long" and not inside:
        return TIMESTAMP
    if logical == "decimal" or logical in MICROS:
        raise UnmappedError
    if (kind, logical) == ("int", "date"):
        return DATE
    match kind:
        case "enum":
            return STRING
        case "fixed":
            return BINARY
        case "array":
            return array_of(_sql_type(not_null(schema["items"]), inside=True))
        case "map":
            return map_of(STRING, _sql_type(not_null(schema["values"]), inside=True))
        case "record" if schema["fields"]:
            return struct_of(
                (field["name"], _sql_type(not_null(field["type"]), inside=True))
                for field in schema["fields"]
            )
    if kind not in _PRIMITIVES:
        raise UnmappedError
    return _PRIMITIVES[kind]
