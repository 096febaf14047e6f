"""The part of the explanation that is about schemas of a registry: pairs of a name and a line."""

from collections.abc import Iterator

from job.join_spec.sides import SIDES
from job.plan.plan import JoinPlan

Line = tuple[str, str]


def schema_lines(plan: JoinPlan) -> Iterator[Line]:
    """Nothing if all values are JSON."""
    sides = [plan.side(side) for side in SIDES if plan.side(side).format.has_registry]
    for side in sides:
        pinned = "the newest one when the job starts (the registry was not read)"
        if side.reader is not None:
            pinned = f"schema {side.reader.schema.id} (version {side.reader.version})"
        yield side.side, f"{side.format.capitalize()}, subject {side.subject}, {pinned}"
        columns = ", ".join(f"{column.name} {column.type}" for column in side.schema.columns)
        yield "", f"read as {columns}"
    if plan.schema_registry is not None:
        yield "registry", plan.schema_registry.url
    if sides:
        yield "evolution", "the job reads all records with this schema until its next start: Avro"
        yield "", "by schema resolution (added fields need a default), Protobuf by field"
        yield "", "numbers. A record that it cannot read is a bad record"
        yield "", "(incompatible_schema). A start uses the newest version if it can read all"
        yield "", "records of the previous version, and fails otherwise"
    yield from _output_lines(plan)


def _output_lines(plan: JoinPlan) -> Iterator[Line]:
    schema = plan.output.schema
    if schema is None:
        return
    action = "registered at each start" if schema.registers else "must have this schema"
    yield "results", f"{schema.format.capitalize()}, subject {schema.subject}, {action}"
    yield "", schema.text
    yield "", "follows from the output columns; every field is nullable, with the default null."
    yield "", "A start fails if the subject refuses the schema"


def output_facts(plan: JoinPlan) -> dict[str, object]:
    """The format of the results as JSON values."""
    schema = plan.output.schema
    if schema is None:
        return {"format": "json"}
    return {
        "format": schema.format.value,
        "subject": schema.subject,
        "register": schema.registers,
        "schema": schema.text,
    }
