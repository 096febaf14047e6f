"""The values of a sample as rows, by the format that reads them without a registry."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from job.errors import StreamjoinError
from job.formats.schemas import HEADER_BYTES
from job.proposal.columns import Row, Table, table_of, type_of, with_columns
from job.proposal.csv_values import csv_values
from job.proposal.envelopes import opened
from job.proposal.record_keys import has_schema_id, with_readable_keys
from job.proposal.sample import Sample
from job.semantics.input_records import InputRecord
from job.spec.value_format import Format
from job.sql.types import SqlType


def has_schema_ids(sample: Sample) -> bool:
    """Whether more than half of the values begin with the id of a schema."""
    values = [_bytes(record) for record in sample.records if record.value]
    return 2 * sum(map(has_schema_id, values)) > len(values)


def reason_for_registry(sample: Sample) -> str | None:
    """Why only a registry has the columns of the values. None: the values show them."""
    if not has_schema_ids(sample) or _json_with_id(sample).columns:
        return None
    return (
        f"the values of topic {sample.topic} begin with the id {_schema_id(sample)} of a schema, "
        "and no JSON object follows: they are Avro or Protobuf, whose columns are in a schema "
        "registry. Set --schema-registry to its URL"
    )


def table_of_sample(sample: Sample, schema: Mapping[str, SqlType] | None = None) -> Table:
    """The values of a sample in JSON, CSV or text, also in envelopes, and JSON with the id of a
    schema in front. `schema`: columns of the JSON Schema in the registry, if there is one.

    Raises StreamjoinError if the spec has no format for the values.
    """
    sample, keys = with_readable_keys(sample)
    table = _json_schema_table(sample, schema or {}) if has_schema_ids(sample) else _table(sample)
    return opened(replace(table, keys=keys))


def _table(sample: Sample) -> Table:
    table = table_of(sample.records)
    values = [_bytes(record) for record in sample.records if record.value is not None]
    if table.columns and 2 * len(table.rows) >= len(values):
        return replace(table, simulated=sample.records)
    if not values:
        raise StreamjoinError(
            f"topic {sample.topic} has only records without a value among its newest "
            f"{len(sample.records)}: write some with a value, or write the spec by hand"
        )
    return _text_table(sample)


def _json_schema_table(sample: Sample, schema: Mapping[str, SqlType]) -> Table:
    if (reason := reason_for_registry(sample)) is not None:
        raise StreamjoinError(reason)
    table = _json_with_id(sample)
    missing = {name: kind for name, kind in schema.items() if _is_missing(name, table)}
    note = (
        f"The values are JSON behind the id of a schema ({_schema_id(sample)} in the newest "
        "record). The job does not read this schema."
    )
    if missing:
        note += f" It has the columns that the sample does not show: {', '.join(missing)}."
    return replace(
        table, columns={**table.columns, **missing}, format=Format.JSON_SCHEMA, notes=(note,)
    )


def _json_with_id(sample: Sample) -> Table:
    records = [_without_id(record) for record in sample.records]
    readable = [record for record in records if record is not None]
    return replace(table_of(readable), simulated=readable)


def _is_missing(name: str, table: Table) -> bool:
    """Whether the sample does not show the type of a column."""
    return name not in table.left_out and all(value is None for value in table.values(name))


def _without_id(record: InputRecord) -> InputRecord | None:
    """None: the value has no id in front."""
    value = _bytes(record)
    if record.value is None:
        return record
    return replace(record, value=value[HEADER_BYTES:]) if has_schema_id(value) else None


def _schema_id(sample: Sample) -> int:
    values = (_bytes(record) for record in reversed(sample.records) if record.value)
    return next(int.from_bytes(value[1:HEADER_BYTES]) for value in values if has_schema_id(value))


def _text_table(sample: Sample) -> Table:
    """CSV, or else text."""
    texts = [(record, _text(record)) for record in sample.records if record.value is not None]
    read = [(record, text) for record, text in texts if text is not None]
    if 2 * len(read) < len(texts):
        raise StreamjoinError(
            f"topic {sample.topic} has values that are no text in UTF-8, and do not begin with the "
            "id of a schema: a join reads JSON, CSV, text, and Avro and Protobuf in Confluent's "
            "wire format"
        )
    found = csv_values([text for _, text in read], begins_topic=read[0][0].offset == 0)
    if found is None:
        return _plain_table(sample, read)
    rows = [(record, row) for (record, _), row in zip(read, found.rows, strict=True) if row]
    table = Table([record for record, _ in rows], [row for _, row in rows], {})
    delimiter = "a tab" if found.settings.delimiter == "\t" else f'"{found.settings.delimiter}"'
    count = f"{len(rows)} of {len(texts)} values are no JSON"
    fields = f"{found.columns_count} fields between {delimiter}"
    notes = [f"{count}, and have {fields}. `format: text` reads them whole."]
    if found.has_header:
        notes.append("The first record of the topic has the names. It is a bad record.")
    else:
        notes.append("CSV has no names: rename column_1 and so on, also in output.columns.")
    return replace(
        with_columns(table),
        format=Format.CSV,
        csv=found.settings,
        simulated=sample.records,
        notes=(*notes,),
    )


def _plain_table(sample: Sample, read: Sequence[tuple[InputRecord, str]]) -> Table:
    rows: list[Row] = [{"value": text} for _, text in read]
    note = (
        f"The {len(read)} values are neither JSON objects nor CSV: each is the column `value`. "
        "Expressions read parts of it, e.g. split(value, ' ')[0]."
    )
    return Table(
        [record for record, _ in read],
        rows,
        {"value": type_of([row["value"] for row in rows])},
        format=Format.TEXT,
        simulated=sample.records,
        notes=(note,),
    )


def _bytes(record: InputRecord) -> bytes:
    value = record.value or b""
    return value.encode(errors="surrogatepass") if isinstance(value, str) else value


def _text(record: InputRecord) -> str | None:
    """None: the value is no text in UTF-8."""
    try:
        return _bytes(record).decode()
    except UnicodeDecodeError:
        return None
