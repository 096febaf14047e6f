"""Which columns are taken of a schema of the registry, and of which declared types they may be.

| SQL type | Avro | Protobuf |
|---|---|---|
| BOOLEAN | boolean | bool |
| INT | int | int32, sint32, sfixed32 |
| BIGINT | long | int64, sint64, sfixed64, uint32, fixed32 |
| FLOAT, DOUBLE | float, double | float, double |
| DECIMAL(p, s) | decimal, up to 38 digits | uint64, fixed64 as DECIMAL(20, 0) |
| STRING | string (uuid, too), enum | string, enum |
| BINARY | bytes, fixed | bytes |
| DATE | date | |
| TIMESTAMP | timestamp-millis, timestamp-micros | google.protobuf.Timestamp |
| ARRAY | array | repeated |
| MAP<STRING, …> | map | map with string keys |
| STRUCT | record | message |

Nullable: in Avro a union with null and one more, in Protobuf what has presence; google.protobuf's
wrappers (Int64Value …) are what they wrap. Of other logical types the type below counts: of
time-millis INT. No column has: other unions, recursive types, a timestamp within another type,
bare null, a map with other keys.
"""

from collections.abc import Mapping

from job.errors import Problem, SpecError
from job.join_spec.value_schema import Column, ValueSchema, value_schema

# A declared type and the registry's beside itself that it may be read from, without loss.
_WIDER = {
    "BIGINT": {"INT"},
    "DOUBLE": {"FLOAT", "INT"},
    "TIMESTAMP": {"BIGINT"},  # epoch milliseconds, as in JSON
}


def all_columns(fields: Mapping[str, str | None], side: str, subject: str) -> ValueSchema:
    """The columns of a schema with these SQL types of its fields; None: no column has it.

    SpecError with every field that cannot be one.
    """
    field = f"{side}.schema"
    refused = [
        Problem(
            field,
            name,
            f"has a type in subject {subject} that no column can have: name the other columns "
            "in `schema` to leave it out",
        )
        for name, kind in fields.items()
        if kind is None
    ]
    if refused:
        raise SpecError(refused)
    return value_schema(", ".join(f"`{name}` {kind}" for name, kind in fields.items()), field)


def declared_columns(
    declared: ValueSchema, fields: Mapping[str, str | None], side: str, subject: str
) -> ValueSchema:
    """`declared`, all of which the schema has; SpecError with every column that it has not."""
    problems = [
        Problem(f"{side}.schema", f"{column.name} {column.type}", message)
        for column in declared.columns
        if (message := _refusal(column, fields, subject)) is not None
    ]
    if problems:
        raise SpecError(problems)
    return declared


def _refusal(column: Column, fields: Mapping[str, str | None], subject: str) -> str | None:
    if column.name not in fields:
        return f"is no field of subject {subject}: it has {', '.join(fields)} (case counts)"
    found = fields[column.name]
    if found is None:
        return f"has a type in subject {subject} that no column can have: leave it out"
    found = value_schema(f"x {found}", "").columns[0].type
    if _plain(found) == _plain(column.type) or found in _WIDER.get(column.type, ()):
        return None
    return f"is {found} in subject {subject}: declare it so, or leave `schema` out"


def _plain(kind: str) -> str:
    return kind.replace("`", "").replace(" ", "").casefold()
