"""Formats of the values of records."""

from enum import StrEnum


class Format(StrEnum):
    JSON = "json"
    JSON_SCHEMA = "json_schema"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    CSV = "csv"
    TEXT = "text"

    @property
    def has_registry(self) -> bool:
        """Whether the job reads the schema of a value from the registry."""
        return self in {Format.AVRO, Format.PROTOBUF}

    @property
    def has_schema_id(self) -> bool:
        """Whether values are in Confluent's wire format: they begin with the id of a schema."""
        return self.has_registry or self is Format.JSON_SCHEMA

    @property
    def is_writable(self) -> bool:
        """Whether results can have the format."""
        return self is Format.JSON or self.has_registry

    @property
    def is_text(self) -> bool:
        """Whether any text may be a value, also one that looks like JSON."""
        return self in {Format.CSV, Format.TEXT}

    @property
    def has_envelopes(self) -> bool:
        """Whether values can be envelopes of changes."""
        return self in {Format.JSON, Format.JSON_SCHEMA, Format.AVRO}

    @property
    def needs_columns(self) -> bool:
        """Whether only the spec names the columns."""
        return not self.has_registry and self is not Format.TEXT


class Envelope(StrEnum):
    """What is around the row in a value."""

    DEBEZIUM = "debezium"


class Operation(StrEnum):
    """Changes of a row, by Debezium."""

    CREATE = "create"
    READ = "read"
    UPDATE = "update"
    DELETE = "delete"


class _KeyFormat(StrEnum):
    @property
    def with_registry(self) -> Format | None:
        """The format, if the schemas of keys are in the registry. None: they are not."""
        return next((each for each in Format if each.has_registry and each == self.value), None)


class RecordKeyFormat(_KeyFormat):
    """Formats of the keys of records that a side reads."""

    STRING = "string"
    JSON = "json"
    JSON_SCHEMA = "json_schema"
    AVRO = "avro"
    PROTOBUF = "protobuf"


class KeyFormat(_KeyFormat):
    """Formats of the keys of results."""

    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
