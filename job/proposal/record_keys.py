"""The keys of the records of a sample: the format that reads them, and their type."""

from collections.abc import Sequence
from dataclasses import replace

from job.formats.schemas import HEADER_BYTES
from job.proposal.columns import PAYLOAD, RecordKeys, is_declarable_type, parsed_json, type_of
from job.proposal.sample import Sample
from job.semantics.json_lines import Json, Members, Number
from job.spec.value_format import RecordKeyFormat
from job.sql.types import SqlType, struct_of

_JSON_FORMATS = {False: RecordKeyFormat.JSON, True: RecordKeyFormat.JSON_SCHEMA}
"""The format of keys in JSON, by whether the id of a schema is in front."""

_LONG_BYTES = 8
"""Length of the keys of Kafka's LongSerializer. Those of small numbers begin with a byte 0, too."""


def with_readable_keys(sample: Sample) -> tuple[Sample, RecordKeys]:
    """The sample, whose records have the keys as a simulation reads them, and how they are read."""
    keys = [key for key in sample.keys if key is not None]
    number = _newest_id(keys)
    has_id = number is not None
    parsed = [parsed_json(key[HEADER_BYTES:] if has_id else key) for key in keys]
    kind = _without_schema(type_of(parsed))
    if parsed and _are_json(parsed, with_scalars=has_id) and is_declarable_type(kind):
        texts = _with_key_texts(sample, HEADER_BYTES if has_id else 0)
        return texts, RecordKeys(_JSON_FORMATS[has_id], kind, number)
    texts = _with_key_texts(sample, 0)
    if not has_id or all(len(key) == _LONG_BYTES for key in keys):
        return texts, RecordKeys(schema_id=number)
    return texts, RecordKeys(schema_id=number, are_read=False)


def _newest_id(keys: Sequence[bytes]) -> int | None:
    """None: not all keys begin with the id of a schema. No registry gives a schema the id 0."""
    if not keys or not all(has_schema_id(key) for key in keys):
        return None
    return int.from_bytes(keys[-1][1:HEADER_BYTES]) or None


def _without_schema(kind: SqlType) -> SqlType:
    """Of a key of Kafka Connect's converter, the payload alone."""
    fields = dict(kind.fields) if kind.name == "STRUCT" else {}
    if fields.keys() != {"schema", PAYLOAD}:
        return kind
    return struct_of([(PAYLOAD, fields[PAYLOAD])])


def has_schema_id(value: bytes) -> bool:
    """Whether bytes begin as in Confluent's wire format. No text begins so."""
    return value[:1] == b"\0" and len(value) > HEADER_BYTES


def _are_json(keys: Sequence[Json], *, with_scalars: bool) -> bool:
    """Whether all keys are objects, or all are texts in quotes. A plain number is also the text of
    a serializer for numbers or texts."""
    if all(isinstance(key, Members) for key in keys):
        return True
    texts = [isinstance(key, str) and not isinstance(key, Number) for key in keys]
    return all(texts) or (with_scalars and None not in keys)


def _with_key_texts(sample: Sample, header_bytes: int) -> Sample:
    records = [
        record if key is None else replace(record, key=key[header_bytes:].decode(errors="replace"))
        for record, key in zip(sample.records, sample.keys, strict=True)
    ]
    return replace(sample, records=records)
