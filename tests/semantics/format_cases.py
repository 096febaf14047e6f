"""A schema, another version of the schema that reads its values, and values."""

import random
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class FormatCase:
    type: str
    """AVRO or PROTOBUF."""
    writer: Any
    reader: Any
    valid: list[bytes]
    """Values without the id of the schema."""
    corrupt: list[bytes]


def corrupted(value: bytes, chance: random.Random) -> bytes:
    """The value cut, extended, or with one bit changed."""
    at = chance.randrange(len(value))
    changed = bytes([value[at] ^ 1 << chance.randrange(8)])
    return chance.choice((value[:at], value + b"\0", value[:at] + changed + value[at + 1 :]))
