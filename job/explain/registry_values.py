"""Records as the topic has them, as the JSON that a simulation reads."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from job.explain.facts import Bad
from job.formats.decoded_json import json_text
from job.formats.decoder import Decoded, Decoder
from job.formats.registry import RegistryAccess
from job.formats.schemas import (
    HEADER_BYTES,
    NO_SCHEMA_ID,
    PLAIN_COLUMN,
    UNDECODABLE_VALUE,
    Part,
    Shape,
)
from job.plan.plan import JoinPlan
from job.semantics.input_records import InputRecord
from job.spec.sides import Side
from job.spec.value_format import Format, RecordKeyFormat


@dataclass(frozen=True)
class DecodedValue:
    record: InputRecord
    problem: Bad | None = None
    """Why the value or the key cannot be decoded; the record then has none."""


class RegistryValues:
    """Raises RegistryError or SecurityError if the registry is needed and does not answer."""

    def __init__(self, plan: JoinPlan, registry: RegistryAccess | None) -> None:
        """`registry`: None if no side needs one."""
        self._plan = plan
        self._decoders = (
            {}
            if registry is None
            else {part: Decoder(reader, registry) for part, reader in plan.readers.items()}
        )

    def decoded(self, side: Side, records: Sequence[InputRecord]) -> list[DecodedValue]:
        of_side = self._plan.side(side)
        values = self._read(
            Part(side),
            [_bytes(record.value) for record in records],
            has_id=of_side.format is Format.JSON_SCHEMA,
        )
        keys = self._read(
            Part(side, "key"),
            [_bytes(record.key) for record in records],
            has_id=of_side.key_format is RecordKeyFormat.JSON_SCHEMA,
        )
        return [_decoded(*each) for each in zip(records, values, keys, strict=True)]

    def _read(
        self, part: Part, contents: Sequence[bytes | None], *, has_id: bool
    ) -> list[bytes | Bad | None]:
        """`has_id`: the contents are JSON after the id of a schema."""
        decoder = self._decoders.get(part)
        if decoder is not None:  # one call: it reads each schema once
            return [_content(decoder, decoded) for decoded in decoder.decoded(contents)]
        return [_without_id(content) for content in contents] if has_id else list(contents)


def _decoded(
    record: InputRecord, value: bytes | Bad | None, key: bytes | Bad | None
) -> DecodedValue:
    if isinstance(value, Bad):
        problem: Bad | None = value
    else:
        problem = Bad(key.reason, f"the key: {key.message}") if isinstance(key, Bad) else None
    if isinstance(key, Bad):
        return DecodedValue(replace(record, value=None, key=None), problem)
    text = None if key is None else key.decode(errors="replace")  # Spark reads the key as text
    return DecodedValue(
        replace(record, value=None if isinstance(value, Bad) else value, key=text), problem
    )


def _without_id(content: bytes | None) -> bytes | Bad | None:
    if content is None:
        return None
    if len(content) < HEADER_BYTES or content[0]:
        return Bad(UNDECODABLE_VALUE, NO_SCHEMA_ID)
    return content[HEADER_BYTES:]


def _content(decoder: Decoder, decoded: Decoded) -> bytes | Bad | None:
    if decoded.reason is not None:
        return Bad(decoded.reason, decoded.message or "")
    text = _text(decoder, decoded)
    return None if text is None else text.encode()


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode(errors="surrogateescape") if isinstance(content, str) else content


def _text(decoder: Decoder, decoded: Decoded) -> str | None:
    kinds = dict(decoder.reader.decoded.fields)
    text = json_text(decoded.columns, kinds, for_simulation=True)
    if decoder.reader.shape is not Shape.PLAIN or text is None:
        return text
    return json.dumps(json.loads(text)[PLAIN_COLUMN])
