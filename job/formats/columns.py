"""Maps the fields of a registered schema to columns, and checks declared columns against it.

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

A column is nullable if its Avro type is a union of null and one other type, or its Protobuf field
has presence. The wrappers of google.protobuf (Int64Value …) have the type of their value. Other
logical types are read as their underlying type: time-millis as INT. Not supported: other unions,
recursive types, timestamps nested in another type, bare null, maps with other keys.
"""

from collections.abc import Mapping

from job.errors import Problem, SpecError
from job.spec.value_schema import Column, ValueSchema, schema_of
from job.sql.types import BIGINT, DOUBLE, FLOAT, INT, TIMESTAMP, SqlType

# Declared type and the other registered types that it reads without loss.
_WIDER = {
    BIGINT: {INT},
    DOUBLE: {FLOAT, INT},
    TIMESTAMP: {BIGINT},  # epoch milliseconds, as in JSON
}


def all_columns(fields: Mapping[str, SqlType | None], field: str, subject: str) -> ValueSchema:
    """All fields of a schema as columns. `fields`: name and SQL type; None: no SQL type fits.
    `field`: the field of the spec that can name columns.

    Raises SpecError with every field that cannot be a column.
    """
    written = field.rpartition(".")[2]
    refused = [
        Problem(
            field,
            name,
            f"has an unsupported type in subject {subject}: name the other columns in `{written}`",
        )
        for name, kind in fields.items()
        if kind is None
    ]
    if refused:
        raise SpecError(refused)
    return schema_of(
        (Column(name, kind) for name, kind in fields.items() if kind is not None), field
    )


def declared_columns(
    declared: ValueSchema, fields: Mapping[str, SqlType | None], field: str, subject: str
) -> ValueSchema:
    """`declared`, checked against the schema: names inside a type are as the schema spells them, by
    which the decoders find them. Raises SpecError with every column that differs."""
    written = field.rpartition(".")[2]
    problems = [
        Problem(field, f"{column.name} {column.type}", message)
        for column in declared.columns
        if (message := _difference(column, fields, subject, written)) is not None
    ]
    if problems:
        raise SpecError(problems)
    return ValueSchema(tuple(_spelled(column, fields) for column in declared.columns))


def _spelled(column: Column, fields: Mapping[str, SqlType | None]) -> Column:
    registered = fields[column.name]
    if registered is None or not _are_equal(registered, column.type):
        return column
    return Column(column.name, registered)


def _are_equal(registered: SqlType, declared: SqlType) -> bool:
    """Spark ignores the case of names."""
    return str(registered).casefold() == str(declared).casefold()


def _difference(
    column: Column, fields: Mapping[str, SqlType | None], subject: str, written: str
) -> str | None:
    if column.name not in fields:
        return f"is not a field of subject {subject}: it has {', '.join(fields)} (case-sensitive)"
    registered = fields[column.name]
    if registered is None:
        return f"has an unsupported type in subject {subject}: remove it from `{written}`"
    if _are_equal(registered, column.type):
        return None
    if registered in _WIDER.get(column.type, ()):
        return None
    return f"is {registered} in subject {subject}: declare that type, or omit `{written}`"
