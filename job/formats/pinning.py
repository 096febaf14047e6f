"""Selects the reader schema of a side: the newest of its subject when the job starts."""

from collections.abc import Mapping

from job.errors import CheckpointError, Problem, SpecError
from job.formats.columns import all_columns, declared_columns
from job.formats.decoder import implementation
from job.formats.registry import RegistryAccess, latest_schema, registry_access, schema_by_id
from job.formats.schemas import (
    IncompatibleError,
    ReaderSchema,
    RegisteredSchema,
    UnknownSchemaError,
    schema_id_of,
)
from job.spec.side_spec import SideSpec
from job.spec.sides import SIDES, Side
from job.spec.spec import JoinSpec
from job.spec.value_schema import value_schema
from job.sql.questions import SqlQuestions


def reader_schemas(
    spec: JoinSpec, sql: SqlQuestions, *, only_missing: bool = False
) -> dict[Side, ReaderSchema]:
    """Reader schema of each side whose format needs a registry.

    `only_missing`: only of sides without columns in the spec. Raises SpecError with all problems,
    RegistryError or SecurityError if the registry does not answer.
    """
    written = {"left": spec.left, "right": spec.right}
    needed = [
        side
        for side in SIDES
        if written[side].format.has_registry and not (only_missing and written[side].has_columns)
    ]
    # The password file may be missing where a spec is only validated: read it only if needed.
    access = registry_access(spec.schema_registry) if needed else None
    readers: dict[Side, ReaderSchema] = {}
    problems: list[Problem] = []
    for side in needed:
        assert access is not None  # JoinSpec requires it
        try:
            readers[side] = _reader_schema(access, side, written[side], sql)
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return readers


def _reader_schema(
    access: RegistryAccess, side: Side, written: SideSpec, sql: SqlQuestions
) -> ReaderSchema:
    subject = written.registry_subject
    version, schema = newest_schema(access, side, subject)
    if schema.type != written.format.upper():
        message = f"has type {schema.type} in the registry, and `format` is {written.format}"
        raise SpecError([Problem(f"{side}.subject", subject, message)])
    try:
        fields = implementation(written.format).fields(schema)
    except IncompatibleError as error:
        raise SpecError([Problem(f"{side}.subject", subject, str(error))]) from error
    if written.schema_ is None:
        columns = all_columns(fields, side, subject)
    else:
        declared = value_schema(written.schema_, f"{side}.schema", sql)
        columns = declared_columns(declared, fields, side, subject)
    return ReaderSchema(written.format, subject, version, schema, columns)


def newest_schema(access: RegistryAccess, side: Side, subject: str) -> tuple[int, RegisteredSchema]:
    """Version and schema of a subject. Raises SpecError if it does not exist, RegistryError or
    SecurityError if the registry does not answer."""
    try:
        return latest_schema(access, subject)
    except UnknownSchemaError as error:
        message = (
            f"does not exist in schema registry {access.url}: register its schema, or set `subject`"
        )
        raise SpecError([Problem(f"{side}.subject", subject, message)]) from error


def check_schema_evolution(
    frozen: Mapping[str, str], readers: Mapping[Side, ReaderSchema], access: RegistryAccess
) -> dict[str, str]:
    """`frozen` with the schema ids of `readers`, each of which can read all earlier records.

    Raises CheckpointError if a reader schema cannot read records of the frozen one, or if that
    cannot be determined.
    """
    updated = dict(frozen)
    for side, reader in readers.items():
        name = schema_id_of(side)
        if name not in frozen or frozen[name] == str(reader.schema.id):
            continue
        if (why := _incompatibility(int(frozen[name]), reader, access)) is not None:
            raise CheckpointError(
                f"{side}: the query started with schema {frozen[name]}. The newest one of subject "
                f"{reader.subject} is {reader.schema.id} (version {reader.version}), which cannot "
                f"read all records of the old schema: {why}. Register a compatible version (the "
                "registry checks that with compatibility BACKWARD), or set another `checkpoint` to "
                "start with empty state: unreadable records then become bad records"
            )
        updated[name] = str(reader.schema.id)
    return updated


def _incompatibility(old_id: int, reader: ReaderSchema, access: RegistryAccess) -> str | None:
    try:
        old = schema_by_id(access, old_id)
        if old.type != reader.schema.type:
            return f"it has type {old.type}"
        found = implementation(reader.format).differences(old, reader)
    except UnknownSchemaError:
        return "it is no longer in the registry"
    except IncompatibleError as error:
        return str(error)
    return "; ".join(each.message for each in found) or None
