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
