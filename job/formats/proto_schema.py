"""The Protobuf schema of results, from the types of the output columns.

| SQL type | Protobuf |
|---|---|
| BOOLEAN | bool |
| TINYINT, SMALLINT, INT | int32 |
| BIGINT | int64 |
| FLOAT, DOUBLE | float, double |
| STRING | string |
| BINARY | bytes |
| TIMESTAMP | google.protobuf.Timestamp |
| ARRAY, MAP<STRING, …>, STRUCT | repeated, map, message |

The fields of a message are numbered from 1 in the order of the columns, so that the schema follows
from the spec alone. registration.py refuses a change of numbers. Each field is optional unless it
is repeated or a map, so that a null differs from the default. ProtobufEncoder.java writes the
values.
"""

import re
from collections.abc import Iterator, Mapping

from job.formats.column_rules import ColumnRules, Columns
from job.sql.types import SqlType

_TYPES: Mapping[str, str] = {
    "BOOLEAN": "bool",
    "TINYINT": "int32",
    "SMALLINT": "int32",
    "INT": "int32",
    "BIGINT": "int64",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "BINARY": "bytes",
    "TIMESTAMP": "google.protobuf.Timestamp",
}
_TIMESTAMP_FILE = 'import "google/protobuf/timestamp.proto";'
_INDENT = "  "


def record_schema(name: str, columns: Columns) -> str:
    """The .proto file of a message `name` in camel case. The columns obey the RULES."""
    columns = list(columns)
    has_timestamp = any(kind.holds("TIMESTAMP") for _, kind in columns)
    imports = [_TIMESTAMP_FILE] if has_timestamp else []
    return "\n".join(['syntax = "proto3";', *imports, *_message(_camel(name), columns)])


def _names_taken(name: str, kind: SqlType) -> set[str]:
    """Names of a field, and of the message that Protobuf or this module defines for the field.

    In lower case and without _, because Protobuf derives method names and JSON names from a name.
    """
    names = {name}
    if kind.name == "MAP":
        names.add(f"{name}Entry")
    if _struct_of(kind) is not None:
        names.add(_message_name(name))
    return {each.replace("_", "").lower() for each in names}


RULES = ColumnRules(
    format="Protobuf",
    name=re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII),
    name_rule="use letters, digits and _, and begin with a letter",
    atomic_types=_TYPES.keys(),
    nests_collections=False,
    names_taken=_names_taken,
)


def _message(name: str, fields: Columns) -> Iterator[str]:
    yield f"message {name} {{"
    structs = []
    for number, (field, kind) in enumerate(fields, start=1):
        yield f"{_INDENT}{_declared(field, kind)} {field} = {number};"
        if (struct := _struct_of(kind)) is not None:
            structs.append((_message_name(field), struct.fields))
    for inner, inner_fields in structs:
        yield from (_INDENT + line for line in _message(inner, inner_fields))
    yield "}"


def _declared(field: str, kind: SqlType) -> str:
    if kind.name == "MAP":
        return f"map<string, {_single(field, kind.inside('value'))}>"
    if kind.element is not None:
        return f"repeated {_single(field, kind.element)}"
    return f"optional {_single(field, kind)}"


def _single(field: str, kind: SqlType) -> str:
    return _message_name(field) if kind.name == "STRUCT" else _TYPES[kind.name]


def _struct_of(kind: SqlType) -> SqlType | None:
    """The STRUCT for which a field needs a message: its type, or that of its elements."""
    single = kind.element or kind
    return single if single.name == "STRUCT" else None


def _message_name(field: str) -> str:
    """With a suffix: a message and a field of one name would collide."""
    return f"{_camel(field)}Struct"


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))
