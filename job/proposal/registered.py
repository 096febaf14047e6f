"""The columns and rows of a topic whose values or record keys have their schema in a registry."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

from job.errors import SecurityError, SpecError, StreamjoinError
from job.formats.decoder import Decoder, implementation
from job.formats.pinning import key_reader, newest_schema
from job.formats.registry import RegistryAccess
from job.formats.schemas import (
    PLAIN_COLUMN,
    IncompatibleError,
    Part,
    ReaderSchema,
    RegisteredSchema,
    Shape,
)
from job.instants import EPOCH
from job.proposal.columns import RecordKeys, Row, Table, declarable
from job.proposal.envelopes import opened
from job.proposal.json_schemas import schema_columns
from job.proposal.record_keys import with_readable_keys
from job.proposal.sample import Sample
from job.proposal.values import table_of_sample
from job.semantics.input_records import InputRecord
from job.semantics.json_lines import Json, Members, Number, compact_text
from job.spec.registry import default_subject, key_subject
from job.spec.sides import Side
from job.spec.value_format import Format, RecordKeyFormat
from job.spec.value_schema import Column, schema_of
from job.sql.questions import SqlQuestions
from job.sql.types import BIGINT, INT, STRING, TIMESTAMP, SqlType

_FORMATS = {each.upper(): each for each in Format if each.has_registry}
_JSON_SCHEMA = "JSON"
"""Type of a JSON Schema in the registry."""
_WHOLE_NUMBERS = (INT, BIGINT)


def registered_table(sample: Sample, side: Side, access: RegistryAccess) -> Table:
    """The values that the newest schema of the topic's subject can read.

    Raises SpecError if the subject does not exist, RegistryError or SecurityError if the registry
    does not answer, StreamjoinError if its schema or none of the values can be read.
    """
    subject = default_subject(sample.topic)
    version, schema = newest_schema(access, Part(side), subject)
    if schema.type == _JSON_SCHEMA:
        return table_of_sample(sample, schema_columns(schema.text))
    if schema.type not in _FORMATS:
        raise StreamjoinError(
            f"subject {subject} has a schema of type {schema.type}, and a join reads values with "
            f"a schema of type {', '.join(_FORMATS)} or {_JSON_SCHEMA}"
        )
    sample, keys = with_readable_keys(sample)
    kind = _FORMATS[schema.type]
    shape = _shape(kind, schema)
    columns, left_out = _columns(implementation(kind).fields(schema, shape))
    reads = schema_of((Column(*column) for column in columns.items()), f"{side}.schema")
    reader = ReaderSchema(kind, subject, version, schema, reads, shape)
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
    kinds = dict(reader.decoded.fields)
    rows: list[Row] = [_row(row, kinds) for _, row in read]
    records = [
        replace(record, value=compact_text(Members(row.items())))
        for (record, _), row in zip(read, rows, strict=True)
    ]
    table = Table(records, rows, columns, left_out, reader, kind, keys=keys, simulated=records)
    table = opened(table)
    if shape is Shape.ENVELOPE and table.changes is None:
        raise StreamjoinError(f"topic {sample.topic} has no envelope with a row")
    return table


def with_registered_keys(
    table: Table, sample: Sample, side: Side, access: RegistryAccess, sql: SqlQuestions
) -> Table:
    """The table with the record keys that the newest schema of the topic's subject reads.

    The same table if keys in JSON are read, or if no schema that the user may read reads all keys.
    Raises RegistryError if the registry does not answer.
    """
    if table.keys.schema_id is None or table.keys.format is not RecordKeyFormat.STRING:
        return table
    part, subject = Part(side, "key"), key_subject(sample.topic)
    try:
        version, schema = newest_schema(access, part, subject)
        if schema.type not in _FORMATS:
            return table
        reader = key_reader(part, subject, version, schema, None, sql)
    except (SpecError, SecurityError):  # no such subject, or a type that no column can have
        return table
    present = [key for key in sample.keys if key is not None]
    decoded = [each.columns for each in Decoder(reader, access).decoded(present)]
    rows = [_row(row, dict(reader.decoded.fields)) for row in decoded if row is not None]
    if len(rows) < len(present):
        return table
    plain = reader.shape is Shape.PLAIN
    texts = iter(compact_text(row[PLAIN_COLUMN] if plain else Members(row.items())) for row in rows)
    by_place = {
        (record.partition, record.offset): None if key is None else next(texts)
        for record, key in zip(sample.records, sample.keys, strict=True)
    }

    def with_keys(records: Sequence[InputRecord]) -> list[InputRecord]:
        return [replace(each, key=by_place[each.partition, each.offset]) for each in records]

    keys = RecordKeys(RecordKeyFormat(reader.format), reader.type, table.keys.schema_id, reader)
    return replace(
        table,
        records=with_keys(table.records),
        simulated=with_keys(table.simulated),
        keys=keys,
    )


def _shape(kind: Format, schema: RegisteredSchema) -> Shape:
    if kind.has_envelopes:
        with suppress(IncompatibleError):  # no envelope
            implementation(kind).fields(schema, Shape.ENVELOPE)
            return Shape.ENVELOPE
    return Shape.RECORD


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


def _row(row: dict[str, Any], kinds: dict[str, SqlType]) -> Row:
    return {name: _as_json(row[name], kind) for name, kind in kinds.items()}


def _as_json(value: Any, kind: SqlType) -> Json:
    """The value as a JSON document has it, if it can contain a key or an event time."""
    if value is None:
        return None
    if kind in _WHOLE_NUMBERS:
        return Number(value)
    if kind == STRING:
        return str(value)
    if kind == TIMESTAMP:
        return _time_text(value)
    if kind.name == "STRUCT":
        return Members((name, _as_json(value[name], inner)) for name, inner in kind.fields)
    return None


def _time_text(micros: int) -> str | None:
    try:
        return (EPOCH + timedelta(microseconds=micros)).isoformat()
    except OverflowError:  # in no year that a TIMESTAMP can have
        return None
