"""What is known of a schema in a registry. Values only: they are sent to the executors."""

from dataclasses import dataclass

from job.errors import StreamjoinError
from job.join_spec.expressions import Side
from job.join_spec.model import Format
from job.join_spec.value_schema import ValueSchema

UNDECODABLE_VALUE = "undecodable_value"
UNKNOWN_SCHEMA = "unknown_schema"
INCOMPATIBLE_SCHEMA = "incompatible_schema"
OF_A_REGISTRY = frozenset({UNDECODABLE_VALUE, UNKNOWN_SCHEMA, INCOMPATIBLE_SCHEMA})
"""Those of reasons.REASONS that only a value with a schema in a registry gets."""


@dataclass(frozen=True)
class RegisteredSchema:
    id: int
    type: str
    """AVRO, PROTOBUF or JSON, as the registry says."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Names and texts of the schemas that it mentions, each behind those that it needs."""


@dataclass(frozen=True)
class ReaderSchema:
    """The schema that a query reads a side by, whichever one a record was written with."""

    format: Format
    subject: str
    version: int
    schema: RegisteredSchema
    columns: ValueSchema
    """What is taken of a value."""


@dataclass(frozen=True)
class Difference:
    """Why values of one schema cannot be read by another."""

    message: str
    """With the field, e.g. `field cost: string cannot be read as double`."""
    is_certain: bool = True
    """False: it depends on the value, e.g. on whether it is null."""


def schema_id_of(side: Side) -> str:
    """What the fingerprint calls the id of the side's schema."""
    return f"{side}.schema_id"


class UnmappedError(Exception):
    """A field has a type that no column has; the message says which."""


class UnreadableError(Exception):
    """A value does not decode; the message says why."""


class IncompatibleError(Exception):
    """A value decodes, and cannot be read by the reader's schema; the message says why."""


class UnknownSchemaError(StreamjoinError):
    """The registry does not know the schema (or subject, or version) asked for."""

    code = "unknown_schema"
