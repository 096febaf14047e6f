"""Schemas of a registry. Plain values, which are sent to the executors."""

from dataclasses import dataclass

from job.errors import StreamjoinError
from job.spec.sides import Side
from job.spec.value_format import Format
from job.spec.value_schema import ValueSchema
from job.sql.types import SqlType

UNDECODABLE_VALUE = "undecodable_value"
UNKNOWN_SCHEMA = "unknown_schema"
INCOMPATIBLE_SCHEMA = "incompatible_schema"
OF_A_REGISTRY = frozenset({UNDECODABLE_VALUE, UNKNOWN_SCHEMA, INCOMPATIBLE_SCHEMA})
"""The reasons.REASONS that only values with a registered schema can have."""


@dataclass(frozen=True)
class RegisteredSchema:
    id: int
    type: str
    """AVRO, PROTOBUF or JSON, as the registry returns it."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Names and texts of its references, each after the references that it needs itself."""


@dataclass(frozen=True)
class ReaderSchema:
    """Schema with which a query reads a side, independent of the schema of each record."""

    format: Format
    subject: str
    version: int
    schema: RegisteredSchema
    columns: ValueSchema
    """Columns that are read from a value."""


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


def schema_id_of(side: Side) -> str:
    """Name of the side's schema id in the fingerprint."""
    return f"{side}.schema_id"


class UnmappedError(Exception):
    """A field has a type without a SQL type; the message names it."""


class UnreadableError(Exception):
    """A value cannot be decoded; the message gives the reason."""


class IncompatibleError(Exception):
    """A schema is incompatible with the reader schema; the message gives the reason."""


class UnknownSchemaError(StreamjoinError):
    """The registry does not have the requested schema, subject or version."""

    code = "unknown_schema"
