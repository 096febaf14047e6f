"""The columns and rows of a topic whose values have their schema in a registry."""

from datetime import timedelta
from typing import Any

from job.errors import StreamjoinError
from job.formats.decoder import Decoder, implementation
from job.formats.pinning import newest_schema
from job.formats.registry import RegistryAccess
from job.formats.schemas import ReaderSchema
from job.instants import EPOCH
from job.proposal.columns import Row, Table, declarable
from job.proposal.sample import Sample
from job.semantics.json_lines import Json, Number
from job.spec.registry import default_subject
from job.spec.sides import Side
from job.spec.value_format import Format
from job.spec.value_schema import Column, schema_of
from job.sql.types import BIGINT, INT, STRING, TIMESTAMP, SqlType

_WIRE_FORMAT = b"\0"
_FORMATS = {each.upper(): each for each in Format if each.has_registry}
_WHOLE_NUMBERS = (INT, BIGINT)


def has_registered_schema(sample: Sample) -> bool:
    """Whether the values begin as in Confluent's wire format. JSON text cannot begin so."""
    values = (record.value for record in sample.records if record.value)
    return next(values, b"")[:1] == _WIRE_FORMAT


def registered_table(sample: Sample, side: Side, access: RegistryAccess) -> Table:
    """The values that the newest schema of the topic's subject can read.

    Raises SpecError if the subject does not exist, RegistryError or SecurityError if the registry
    does not answer, StreamjoinError if its schema or none of the values can be read.
    """
    subject = default_subject(sample.topic)
    version, schema = newest_schema(access, side, subject)
    if schema.type not in _FORMATS:
        raise StreamjoinError(
            f"subject {subject} has a schema of type {schema.type}, and a join reads values in "
            f"JSON, {' or '.join(_FORMATS)}"
        )
    kind = _FORMATS[schema.type]
    columns, left_out = _columns(implementation(kind).fields(schema))
    reads = schema_of((Column(*column) for column in columns.items()), f"{side}.schema")
    reader = ReaderSchema(kind, subject, version, schema, reads)
    values = [(each, each.value) for each in sample.records if isinstance(each.value, bytes)]
    decoded = list(Decoder(reader, access).decoded(value for _, value in values))
    read = [
        (record, each.columns)
        for (record, _), each in zip(values, decoded, strict=True)
        if each.columns is not None
    ]
    if not read:
        why = next((each.message for each in decoded if each.message is not None), "no record")
        raise StreamjoinError(
            f"topic {sample.topic} has no value that the newest schema of subject {subject} "
            f"(version {version}) reads: {why}"
        )
    rows: list[Row] = [_row(row, columns) for _, row in read]
    return Table([record for record, _ in read], rows, columns, left_out, reader)


def _columns(fields: dict[str, SqlType | None]) -> tuple[dict[str, SqlType], list[str]]:
    """Columns and their types, and the fields that no column can have."""
    columns: dict[str, SqlType] = {}
    left_out = []
    for name, kind in fields.items():
        column_type = None if kind is None else declarable(name, [kind], columns)
        if column_type is None:
            left_out.append(name)
        else:
            columns[name] = column_type
    return columns, left_out


def _row(row: dict[str, Any], columns: dict[str, SqlType]) -> Row:
    return {name: _as_json(row[name], kind) for name, kind in columns.items()}


def _as_json(value: Any, kind: SqlType) -> Json:
    """The value as a JSON document has it, if its column can be a key or an event time."""
    if value is None:
        return None
    if kind in _WHOLE_NUMBERS:
        return Number(value)
    if kind == STRING:
        return str(value)
    if kind == TIMESTAMP:
        return _time_text(value)
    return None


def _time_text(micros: int) -> str | None:
    try:
        return (EPOCH + timedelta(microseconds=micros)).isoformat()
    except OverflowError:  # in no year that a TIMESTAMP can have
        return None
