"""Schemas of a registry. Plain values, which are sent to the executors."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal, NamedTuple

from job.errors import StreamjoinError
from job.spec.sides import SIDES, Side
from job.spec.value_format import Format
from job.spec.value_schema import ValueSchema, envelope_type
from job.sql.types import SqlType, struct_of

HEADER_BYTES = 5
"""Bytes before the value in Confluent's wire format, or before the message indexes of Protobuf."""
NO_SCHEMA_ID = "does not begin with a byte 0 and the 4 of a schema's id"

UNDECODABLE_VALUE = "undecodable_value"
UNKNOWN_SCHEMA = "unknown_schema"
INCOMPATIBLE_SCHEMA = "incompatible_schema"
OF_A_REGISTRY = frozenset({UNDECODABLE_VALUE, UNKNOWN_SCHEMA, INCOMPATIBLE_SCHEMA})
"""The reasons.REASONS of values whose schema the job reads."""


@dataclass(frozen=True)
class RegisteredSchema:
    id: int
    type: str
    """AVRO, PROTOBUF or JSON, as the registry returns it."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Names and texts of its references, each after the references that it needs itself."""


class Part(NamedTuple):
    """The values or the keys of a side."""

    side: Side
    name: Literal["value", "key"] = "value"

    def __str__(self) -> str:
        return f"{self.side} keys" if self.is_key else self.side

    @property
    def is_key(self) -> bool:
        return self.name == "key"

    @property
    def schema_id(self) -> str:
        """Name of the schema id in the fingerprint."""
        return f"{self.side}.{'record_key_' * self.is_key}schema_id"

    def field(self, name: str) -> str:
        """The field with this setting in the spec, e.g. left.subject or left.key_subject."""
        return f"{self.side}.{'key_' * self.is_key}{name}"


PARTS = tuple(Part(side, name) for side in SIDES for name in ("value", "key"))


class Shape(StrEnum):
    """Where the columns are in a value or a key."""

    RECORD = "record"
    """They are its fields."""
    ENVELOPE = "envelope"
    """They are the fields of the row in Debezium's envelope."""
    PLAIN = "plain"
    """It is no record, and is the column PLAIN_COLUMN."""


PLAIN_COLUMN = "record_key"


@dataclass(frozen=True)
class ReaderSchema:
    """Schema with which a query reads the values or the keys of a side, independent of the schema
    of each record."""

    format: Format
    subject: str
    version: int
    schema: RegisteredSchema
    columns: ValueSchema
    """Columns that are read from a value."""
    shape: Shape = Shape.RECORD

    @property
    def decoded(self) -> SqlType:
        """The STRUCT that the decoder returns."""
        row = struct_of((column.name, column.type) for column in self.columns.columns)
        return envelope_type(row) if self.shape is Shape.ENVELOPE else row

    @property
    def type(self) -> SqlType:
        """The type of a whole key."""
        return self.columns.columns[0].type if self.shape is Shape.PLAIN else self.decoded


@dataclass(frozen=True)
class OutputSchema:
    """Schema with which a query writes the values or the keys of its results."""

    format: Format
    subject: str
    registers: bool
    """Whether the query registers the schema. False: it only looks it up."""
    text: str
    columns: tuple[tuple[str, SqlType], ...]
    """Names and types of the columns that are encoded."""
    is_key: bool = False
    id: int | None = None
    """Id in the registry. None: the registry was not read (a job always reads it)."""


@dataclass(frozen=True)
class Difference:
    """Reason why values of one schema cannot be read with another."""

    message: str
    """Message with the field, e.g. `field cost: string cannot be read as double`."""
    is_certain: bool = True
    """False: it depends on the value, e.g. whether it is null."""


class UnmappedError(Exception):
    """A field has a type without a SQL type; the message names it."""


class UnreadableError(Exception):
    """A value cannot be decoded; the message gives the reason."""


class IncompatibleError(Exception):
    """A schema is incompatible with the reader schema; the message gives the reason."""


class UnknownSchemaError(StreamjoinError):
    """The registry does not have the requested schema, subject or version."""

    code = "unknown_schema"
