"""Decodes values in Confluent's wire format: a byte 0, the schema's id as 4 bytes (big-endian), for
Protobuf the indexes of the message, then the value.

The job decodes in the JVM (encoding/), with the JSON object of `answer` for a schema. `streamjoin
init` decodes a sample in Python.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from job.errors import RegistryError, SecurityError
from job.formats.registry import RegistryAccess, schema_by_id
from job.formats.schemas import (
    HEADER_BYTES,
    INCOMPATIBLE_SCHEMA,
    NO_SCHEMA_ID,
    UNDECODABLE_VALUE,
    UNKNOWN_SCHEMA,
    Difference,
    IncompatibleError,
    ReaderSchema,
    RegisteredSchema,
    Shape,
    UnknownSchemaError,
    UnreadableError,
)
from job.spec.value_format import Format
from job.sql.types import SqlType

Decode = Callable[[bytes], dict[str, Any]]
_Prepared = TypeVar("_Prepared")


class Implementation(Protocol):
    """Interface of the modules avro.py and protobuf.py."""

    def fields(self, schema: RegisteredSchema, shape: Shape = ...) -> dict[str, SqlType | None]: ...
    def shape_of_key(self, schema: RegisteredSchema, /) -> Shape: ...
    def differences(self, writer: RegisteredSchema, reader: ReaderSchema) -> list[Difference]: ...
    def decoding(self, writer: RegisteredSchema, reader: ReaderSchema) -> Decode: ...
    def prepared(self, writer: RegisteredSchema, reader: ReaderSchema) -> dict[str, Any]: ...


def implementation(kind: Format) -> Implementation:
    """Import the module on first use: each takes half a second, which a join of JSON topics
    saves."""
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


def schema_id(value: bytes) -> int | None:
    """Id of the schema of a value. None: the value is not in the wire format."""
    if len(value) < HEADER_BYTES or value[0] != 0:
        return None
    return int.from_bytes(value[1:HEADER_BYTES], "big")


@dataclass(frozen=True)
class Decoder:
    reader: ReaderSchema
    access: RegistryAccess

    def decoded(self, values: Iterable[bytes | None]) -> Iterable[Decoded]:
        """Raises RegistryError or SecurityError if the registry is needed and does not answer."""
        decoders: dict[int, Decode | Decoded] = {}
        for value in values:
            if value is None:
                yield Decoded()
                continue
            number = schema_id(value)
            if number is None:
                yield Decoded(UNDECODABLE_VALUE, NO_SCHEMA_ID)
                continue
            if number not in decoders:  # an unknown id is requested once per call
                decoders[number] = _decode(self, number)
            decode = decoders[number]
            yield decode if isinstance(decode, Decoded) else _decoded(decode, number, value)

    def answer(self, schema_id: int) -> str:
        """A JSON object for an executor (KnownSchema.java): the input of the reader of a schema,
        the reason why no value can be read, or the failure of the registry."""
        try:
            prepared = _prepared(self, schema_id, implementation(self.reader.format).prepared)
        except (RegistryError, SecurityError) as error:
            refuses_login = isinstance(error, SecurityError)
            return json.dumps({"failure": str(error), "refuses_login": refuses_login})
        if isinstance(prepared, Decoded):
            lasts = prepared.reason != UNKNOWN_SCHEMA
            prepared = {"reason": prepared.reason, "message": prepared.message, "lasts": lasts}
        return json.dumps(prepared)

    def unknown(self, schema_id: int) -> str:
        return f"schema {schema_id} is not in the schema registry {self.access.url}"


def _decoded(decode: Decode, schema_id: int, value: bytes) -> Decoded:
    try:
        return Decoded(schema_id=schema_id, columns=decode(value[HEADER_BYTES:]))
    except UnreadableError as error:
        return Decoded(UNDECODABLE_VALUE, f"schema {schema_id}: {error}", schema_id)
    except IncompatibleError as error:
        return Decoded(INCOMPATIBLE_SCHEMA, f"schema {schema_id}: {error}", schema_id)


def _decode(decoder: Decoder, schema_id: int) -> Decode | Decoded:
    return _prepared(decoder, schema_id, implementation(decoder.reader.format).decoding)


def _prepared(
    decoder: Decoder,
    schema_id: int,
    prepare: Callable[[RegisteredSchema, ReaderSchema], _Prepared],
) -> _Prepared | Decoded:
    """The result of `prepare` for the schema, or the reason why no value can be read."""
    reader = decoder.reader
    try:
        is_readers = schema_id == reader.schema.id
        writer = reader.schema if is_readers else schema_by_id(decoder.access, schema_id)
    except UnknownSchemaError:
        return Decoded(UNKNOWN_SCHEMA, decoder.unknown(schema_id), schema_id)
    if writer.type != reader.schema.type:
        message = f"schema {schema_id} has type {writer.type}, expected {reader.schema.type}"
        return Decoded(INCOMPATIBLE_SCHEMA, message, schema_id)
    try:
        return prepare(writer, reader)
    except IncompatibleError as error:
        message = f"schema {schema_id} cannot be read with schema {reader.schema.id}: {error}"
        return Decoded(INCOMPATIBLE_SCHEMA, message, schema_id)
