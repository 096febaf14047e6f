"""Spark's data types, from its JSON."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from job.sql.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    SMALLINT,
    STRING,
    TIMESTAMP,
    TINYINT,
    VOID,
    SqlType,
    array_of,
    decimal_type,
    map_of,
    struct_of,
)

_SIMPLE = {
    "boolean": BOOLEAN,
    "byte": TINYINT,
    "short": SMALLINT,
    "integer": INT,
    "long": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "string": STRING,
    "binary": BINARY,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "void": VOID,
}
_COMMENT = "comment"
_OTHER_TEXT = {"__CHAR_VARCHAR_TYPE_STRING", "__COLLATIONS"}
"""Metadata of a field whose type CHAR, VARCHAR or STRING with a collation Spark reads as STRING."""
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


@dataclass(frozen=True)
class Field:
    """A column of a schema."""

    name: str
    type: SqlType
    has_constraint: bool
    """The column, or a field in it, is NOT NULL, or has a default value."""
    has_other_text: bool
    """The column, or a field in it, is CHAR, VARCHAR, or a STRING with a collation."""


def fields_of_json(text: str) -> list[Field]:
    """`text`: StructType.json of Spark."""
    return [
        Field(
            each["name"],
            _type(each["type"]),
            any(not part["nullable"] or _others(part) - _OTHER_TEXT for part in _fields(each)),
            any(_others(part) & _OTHER_TEXT for part in _fields(each)),
        )
        for each in json.loads(text)["fields"]
    ]


def _fields(field: Any) -> Iterator[Any]:
    """The field, and those of the structs in its type."""
    yield field
    kinds = [field["type"]]
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, dict):
            yield from kind.get("fields", ())
            kinds += [each["type"] for each in kind.get("fields", ())]
            kinds += [
                kind[part] for part in ("elementType", "keyType", "valueType") if part in kind
            ]


def _others(field: Any) -> set[str]:
    return set(field.get("metadata", {})) - {_COMMENT}


def type_of_json(text: str) -> SqlType:
    """`text`: DataType.json of Spark. A type that is not listed here has its name in upper case."""
    return _type(json.loads(text))


def _type(document: Any) -> SqlType:
    if isinstance(document, str):
        decimal = _DECIMAL.fullmatch(document)
        if decimal:
            return decimal_type(int(decimal[1]), int(decimal[2]))
        return _SIMPLE.get(document, SqlType(document.upper()))
    match document["type"]:
        case "array":
            return array_of(_type(document["elementType"]))
        case "map":
            return map_of(_type(document["keyType"]), _type(document["valueType"]))
        case "struct":
            return struct_of((each["name"], _type(each["type"])) for each in document["fields"])
    return SqlType(str(document["type"]).upper())
