"""Which schema a query reads a side by: the newest of its subject when the job starts."""

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
from job.join_spec.expressions import SIDES, Side
from job.join_spec.model import JoinSpec, SideSpec
from job.join_spec.value_schema import value_schema


def reader_schemas(spec: JoinSpec, *, only_missing: bool = False) -> dict[Side, ReaderSchema]:
    """Of each side with a registry; with `only_missing` of those that say no columns themselves.

    SpecError with all that does not fit; RegistryError, SecurityError where it cannot be asked.
    """
    written = {"left": spec.left, "right": spec.right}
    asked = [
        side
        for side in SIDES
        if written[side].format.has_registry and not (only_missing and written[side].says_columns)
    ]
    # Its password is not on every machine where a spec is looked at.
    access = registry_access(spec.schema_registry) if asked else None
    found: dict[Side, ReaderSchema] = {}
    problems: list[Problem] = []
    for side in asked:
        assert access is not None  # the spec sees to it
        try:
            found[side] = _reader_schema(access, side, written[side])
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return found


def _reader_schema(access: RegistryAccess, side: Side, written: SideSpec) -> ReaderSchema:
    subject = written.subject_asked
    version, schema = _latest(access, side, subject)
    if schema.type != written.format.upper():
        message = f"is {schema.type} in the registry, and `format` says {written.format}"
        raise SpecError([Problem(f"{side}.subject", subject, message)])
    try:
        fields = implementation(written.format).fields(schema)
    except IncompatibleError as error:
        raise SpecError([Problem(f"{side}.subject", subject, str(error))]) from error
    if written.schema_ is None:
        columns = all_columns(fields, side, subject)
    else:
        declared = value_schema(written.schema_, f"{side}.schema")
        columns = declared_columns(declared, fields, side, subject)
    return ReaderSchema(written.format, subject, version, schema, columns)


def _latest(access: RegistryAccess, side: Side, subject: str) -> tuple[int, RegisteredSchema]:
    try:
        return latest_schema(access, subject)
    except UnknownSchemaError as error:
        message = (
            f"is no subject of schema registry {access.url}: register its schema, or name another "
            "one in `subject`"
        )
        raise SpecError([Problem(f"{side}.subject", subject, message)]) from error


def proven(
    frozen: Mapping[str, str], readers: Mapping[Side, ReaderSchema], access: RegistryAccess
) -> dict[str, str]:
    """`frozen` with the ids of `readers`, each of which reads what the frozen one has read.

    CheckpointError where one does not, or where that cannot be known.
    """
    renewed = dict(frozen)
    for side, reader in readers.items():
        name = schema_id_of(side)
        if name not in frozen or frozen[name] == str(reader.schema.id):
            continue
        if (why := _not_proven(int(frozen[name]), reader, access)) is not None:
            raise CheckpointError(
                f"{side}: the query was begun with schema {frozen[name]}, subject {reader.subject} "
                f"has {reader.schema.id} (version {reader.version}) now, and that does not read "
                f"all records of the old one: {why}. Register a version that does (compatibility "
                "BACKWARD of the subject asks for it), or name another folder in `checkpoint` to "
                "begin anew: what cannot be read then becomes a bad record"
            )
        renewed[name] = str(reader.schema.id)
    return renewed


def _not_proven(old_id: int, reader: ReaderSchema, access: RegistryAccess) -> str | None:
    try:
        old = schema_by_id(access, old_id)
        if old.type != reader.schema.type:
            return f"it is {old.type}"
        found = implementation(reader.format).differences(old, reader)
    except UnknownSchemaError:
        return "the registry does not know it any more"
    except IncompatibleError as error:
        return str(error)
    return "; ".join(each.message for each in found) or None
