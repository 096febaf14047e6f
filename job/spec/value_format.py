"""Formats of the values of records."""

from enum import StrEnum


class Format(StrEnum):
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @property
    def has_registry(self) -> bool:
        """Whether values are in Confluent's wire format, with the id of their schema."""
        return self is not Format.JSON


class KeyFormat(StrEnum):
    """Formats of the keys of results."""

    STRING = "string"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"

    @property
    def with_registry(self) -> Format | None:
        """The format of a key that begins with the id of its schema. None: keys have no schema."""
        return Format(self.value) if self in {KeyFormat.AVRO, KeyFormat.PROTOBUF} else None
