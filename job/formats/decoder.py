"""Decodes the values of a side into rows, or into a reason. Runs on the executors.

Confluent's wire format: a byte 0, the schema's id as 4 bytes (big-endian), for Protobuf the indexes
of the message, then the value.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from job.formats.registry import RegistryAccess, schema_by_id
from job.formats.schemas import (
    INCOMPATIBLE_SCHEMA,
    UNDECODABLE_VALUE,
    UNKNOWN_SCHEMA,
    Difference,
    IncompatibleError,
    ReaderSchema,
    RegisteredSchema,
    UnknownSchemaError,
    UnreadableError,
)
from job.join_spec.value_format import Format

_HEADER_BYTES = 5

Decode = Callable[[bytes], dict[str, Any]]


class Implementation(Protocol):
    """Interface of the modules avro.py and protobuf.py."""

    def fields(self, schema: RegisteredSchema) -> dict[str, str | None]: ...
    def differences(self, writer: RegisteredSchema, reader: ReaderSchema) -> list[Difference]: ...
    def decoding(self, writer: RegisteredSchema, reader: ReaderSchema) -> Decode: ...


def implementation(kind: Format) -> Implementation:
    """Import the module on first use: both take half a second, which a join of JSON saves."""
    if kind is Format.AVRO:
        from job.formats import avro

        return avro
    from job.formats import protobuf

    return protobuf


@dataclass(frozen=True)
class Decoded:
    """Result for one value: `columns`, or `reason` and `message` if it cannot be read."""

    reason: str | None = None
    message: str | None = None
    schema_id: int | None = None
    columns: dict[str, Any] | None = None


@dataclass(frozen=True)
class Decoder:
    reader: ReaderSchema
    access: RegistryAccess
    unknown_ids: frozenset[int] = field(default_factory=frozenset)
    """Schema ids to treat as unknown, because they were unknown when the batch was first read."""

    def __call__(self, values: pa.Array, row: pa.DataType) -> pa.Array:
        """Decode each value into a struct of type `row` with the fields of Decoded.

        Raises RegistryError or SecurityError if the registry is needed and does not answer.
        """
        decoded = list(self.decoded(values.to_pylist()))
        return pa.array([each.__dict__ for each in decoded], row)

    def decoded(self, values: Iterable[bytes | None]) -> Iterable[Decoded]:
        decoders: dict[int, Decode | Decoded] = {}
        for value in values:
            if value is None:
                yield Decoded()
                continue
            if len(value) < _HEADER_BYTES or value[0] != 0:
                message = "does not begin with a byte 0 and the 4 of a schema's id"
                yield Decoded(UNDECODABLE_VALUE, message)
                continue
            schema_id = int.from_bytes(value[1:_HEADER_BYTES], "big")
            if schema_id not in decoders:  # an unknown id is requested once per call
                decoders[schema_id] = self._decode_or_reason(schema_id)
            decode = decoders[schema_id]
            yield decode if isinstance(decode, Decoded) else _decoded(decode, schema_id, value)

    def _decode_or_reason(self, schema_id: int) -> "Decode | Decoded":
        unknown = f"schema {schema_id} is not in the schema registry {self.access.url}"
        if schema_id in self.unknown_ids:
            return Decoded(UNKNOWN_SCHEMA, unknown, schema_id)
        try:
            return _decode(self.access, self.reader, schema_id)
        except UnknownSchemaError:
            return Decoded(UNKNOWN_SCHEMA, unknown, schema_id)


def _decoded(decode: Decode, schema_id: int, value: bytes) -> Decoded:
    try:
        return Decoded(schema_id=schema_id, columns=decode(value[_HEADER_BYTES:]))
    except UnreadableError as error:
        return Decoded(UNDECODABLE_VALUE, f"schema {schema_id}: {error}", schema_id)
    except IncompatibleError as error:
        return Decoded(INCOMPATIBLE_SCHEMA, f"schema {schema_id}: {error}", schema_id)


@lru_cache(maxsize=1_000)
def _decode(access: RegistryAccess, reader: ReaderSchema, schema_id: int) -> Decode | Decoded:
    """Decoder for the values of a schema, or the reason why none can be read. Cached."""
    is_readers = schema_id == reader.schema.id
    writer = reader.schema if is_readers else schema_by_id(access, schema_id)
    if writer.type != reader.schema.type:
        message = f"schema {schema_id} has type {writer.type}, expected {reader.schema.type}"
        return Decoded(INCOMPATIBLE_SCHEMA, message, schema_id)
    try:
        return implementation(reader.format).decoding(writer, reader)
    except IncompatibleError as error:
        message = f"schema {schema_id} cannot be read with schema {reader.schema.id}: {error}"
        return Decoded(INCOMPATIBLE_SCHEMA, message, schema_id)
