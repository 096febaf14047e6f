"""Lines of `streamjoin plan` about schemas of a registry: pairs of a name and a text."""

from collections.abc import Iterator
from enum import StrEnum

from job.formats.schemas import PARTS, OutputSchema, Part
from job.plan.plan import JoinPlan
from job.plan.side_plan import SidePlan
from job.spec.sides import SIDES
from job.spec.value_format import Format, RecordKeyFormat

Line = tuple[str, str]


def schema_lines(plan: JoinPlan) -> Iterator[Line]:
    """Nothing if all values are JSON."""
    for side in (plan.side(side) for side in SIDES):
        if side.format.is_text:
            yield side.side, _text_values(side)
        if side.format is Format.JSON_SCHEMA:
            yield side.side, "JSON after the id of a schema, which the job does not read"
        if side.has_typed_keys and not side.keys_have_registry:
            wire = ", after the id of a schema" * (side.key_format is RecordKeyFormat.JSON_SCHEMA)
            yield f"{side.side} keys", f"JSON{wire}, read as record_key {side.record_key.type}"
    parts = [part for part in PARTS if plan.has_registry(part)]
    for part in parts:
        yield from _read_lines(part, plan)
    if plan.schema_registry is not None:
        yield "registry", plan.schema_registry.url
    if parts:
        yield "evolution", "the job reads all records with this schema until its next start: Avro"
        yield "", "by schema resolution (added fields need a default), Protobuf by field"
        yield "", "numbers. A record that it cannot read is a bad record"
        yield "", "(incompatible_schema). A start uses the newest version if it can read all"
        yield "", "records of the previous version, and fails otherwise"
    yield from _output_lines(plan)


def _read_lines(part: Part, plan: JoinPlan) -> Iterator[Line]:
    side = plan.side(part.side)
    used, subject = side.format.value, side.subject
    columns = ", ".join(f"{column.name} {column.type}" for column in side.schema.columns)
    if part.is_key:
        used, subject = side.key_format.value, side.key_subject
        columns = f"record_key {side.record_key.type}"
    pinned = "the newest one when the job starts (the registry was not read)"
    if (reader := plan.readers.get(part)) is not None:
        pinned = f"schema {reader.schema.id} (version {reader.version})"
    yield str(part), f"{used.capitalize()}, subject {subject}, {pinned}"
    yield "", f"read as {columns}"


def _text_values(side: SidePlan) -> str:
    if side.format is Format.TEXT:
        return "text in UTF-8, read as the column value"
    columns = ", ".join(f"{column.name} {column.type}" for column in side.schema.columns)
    return f"CSV ({side.csv}), one line with the fields {columns}"


def _output_lines(plan: JoinPlan) -> Iterator[Line]:
    if plan.output.key_schema is not None:
        yield from _schema_lines("record keys", plan.output.key_schema)
        yield "", "follows from output.key. A start fails if the subject refuses the schema"
    schema = plan.output.schema
    if schema is None:
        return
    yield from _schema_lines("results", schema)
    if schema.format is Format.AVRO:
        yield "", "follows from the output columns; every field is nullable, with the default null."
        yield "", "A start fails if the subject refuses the schema"
        return
    yield "", "follows from the output columns, which are numbered in their order: add columns at"
    yield "", "the end, and keep a removed column as cast(NULL AS …). A start fails if a number of"
    yield "", "the newest version is missing or has another name, or if the subject refuses the"
    yield "", "schema"
    if any(kind.holds("ARRAY") or kind.holds("MAP") for _, kind in schema.columns):
        yield "", "Protobuf has no null for arrays, maps and their values: a null array or map"
        yield "", "becomes empty, and a null value becomes the default of its type"


def _schema_lines(name: str, schema: OutputSchema) -> Iterator[Line]:
    action = "registered at each start" if schema.registers else "must have this schema"
    yield name, f"{schema.format.capitalize()}, subject {schema.subject}, {action}"
    for line in schema.text.splitlines():
        yield "", line


def output_as_json(plan: JoinPlan) -> dict[str, object]:
    """The format of the results as JSON values."""
    return _as_json(plan.output.schema, Format.JSON)


def key_as_json(plan: JoinPlan) -> dict[str, object]:
    """The format of the keys of the results as JSON values."""
    return _as_json(plan.output.key_schema, plan.output.key_format)


def _as_json(schema: OutputSchema | None, format_without_schema: StrEnum) -> dict[str, object]:
    if schema is None:
        return {"format": format_without_schema.value}
    return {
        "format": schema.format.value,
        "subject": schema.subject,
        "register": schema.registers,
        "schema": schema.text,
    }
