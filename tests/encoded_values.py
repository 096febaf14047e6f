"""Reads values in Confluent's wire format with fastavro and Google's library."""

import io
import json
from datetime import UTC, datetime
from typing import Any

import fastavro
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from job.formats import protobuf
from job.formats.schemas import RegisteredSchema
from job.spec.value_format import Format

HEADER_BYTES = 5
_TIMESTAMP = "google.protobuf.Timestamp"


def schema_id(value: bytes) -> int:
    assert 0 == value[0]
    return int.from_bytes(value[1:HEADER_BYTES], "big")


def read(value: bytes, used: Format, schema: str) -> Any:
    """The content of `value`. A message is a dictionary, with None for fields that are not set."""
    content = value[HEADER_BYTES:]
    if used is Format.AVRO:
        source = io.BytesIO(content)
        row: Any = fastavro.schemaless_reader(source, json.loads(schema), None)
        assert b"" == source.read()
        return row
    assert 0 == content[0], "the first message of the schema"
    return plain(message_class(schema).FromString(content[1:]))


def message_class(schema: str) -> Any:
    """The class of the first message in a .proto file."""
    return GetMessageClass(protobuf._message(RegisteredSchema(0, "PROTOBUF", schema), (0,)))


def plain(value: Any) -> Any:
    if not isinstance(value, Message):
        return value
    if value.DESCRIPTOR.full_name == _TIMESTAMP:
        at: Any = value
        return datetime.fromtimestamp(at.seconds, UTC).replace(microsecond=at.nanos // 1000)
    return {field.name: _field(value, field) for field in value.DESCRIPTOR.fields}


def _field(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return {key: plain(each) for key, each in value.items()}
    if field.is_repeated:
        return [plain(each) for each in value]
    return plain(value) if message.HasField(field.name) else None
