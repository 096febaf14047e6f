"""Schemas and values in Confluent's wire format, as producers write them."""

import io
import json
from collections.abc import Mapping
from typing import Any

import fastavro

from job.formats import avro as avro_format
from job.formats import protobuf
from job.formats.columns import all_columns
from job.formats.decoder import implementation
from job.formats.schemas import ReaderSchema, RegisteredSchema, Shape
from job.spec.value_format import Format
from job.spec.value_schema import Column, ValueSchema
from job.sql.types import SqlType

CLICK = """syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Click {
  int64 ad_id = 1;
  google.protobuf.Timestamp clicked_at = 2;
  optional string user = 3;
}
"""


def record(*fields: dict[str, Any], name: str = "shop.Impression") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def avro_schema(schema: dict[str, Any], number: int = 1) -> RegisteredSchema:
    return RegisteredSchema(number, "AVRO", json.dumps(schema))


def proto_schema(text: str, number: int = 1) -> RegisteredSchema:
    return RegisteredSchema(number, "PROTOBUF", text)


def message(*fields: str, name: str = "M", more: str = "") -> str:
    """A .proto file with one message."""
    return f'syntax = "proto3"; {more} message {name} {{ {" ".join(fields)} }}'


def envelope(row: dict[str, Any]) -> dict[str, Any]:
    """Debezium's schema of the envelopes of a row."""
    source = record(field("db", "string"), field("ts_ms", "long"), name="connector.Source")
    return record(
        field("before", ["null", row], default=None),
        field("after", ["null", row["name"]], default=None),
        field("source", source),
        field("op", "string"),
        field("ts_ms", ["null", "long"], default=None),
        name=f"{row['name']}.Envelope",
    )


def reader(schema: RegisteredSchema, *columns: Column, shape: Shape = Shape.RECORD) -> ReaderSchema:
    """Reads these columns; all, where none is given."""
    kind = Format(schema.type.lower())
    fields = implementation(kind).fields(schema, shape)
    taken = ValueSchema(columns) if columns else all_columns(fields, "left.schema", "s")
    return ReaderSchema(kind, "s", 1, schema, taken, shape)


def bare_fields(schema: dict[str, Any]) -> list[dict[str, Any]]:
    """The fields without logical types, so that times are numbers."""
    return list(avro_format._bare(schema)["fields"])


def avro(schema: dict[str, Any], **row: Any) -> bytes:
    """The bytes behind the schema's id."""
    return plain_avro(schema, row)


def plain_avro(schema: Any, value: Any) -> bytes:
    """As `avro`, for a value of any schema."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def proto(text: str, *, of: tuple[int, ...] = (0,), **fields: Any) -> bytes:
    """The bytes behind the schema's id; a Timestamp is given as epoch microseconds."""
    kind = protobuf.GetMessageClass(protobuf._message(proto_schema(text), of))
    written = kind()
    for name, value in fields.items():
        described = kind.DESCRIPTOR.fields_by_name[name].message_type
        if described is not None and described.full_name == "google.protobuf.Timestamp":
            at = getattr(written, name)
            at.seconds, at.nanos = value // 1_000_000, value % 1_000_000 * 1_000
        elif isinstance(value, dict | list):
            target = getattr(written, name)
            target.update(value) if hasattr(target, "update") else target.extend(value)
        else:
            setattr(written, name, value)
    indexes = b"\0" if of == (0,) else bytes([2 * len(of), *(2 * index for index in of)])
    return indexes + bytes(written.SerializeToString())


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def as_text(fields: Mapping[str, SqlType | None]) -> dict[str, str | None]:
    return {name: None if kind is None else str(kind) for name, kind in fields.items()}
