"""Selects the reader schemas of a side: the newest of their subjects when the job starts."""

from collections.abc import Mapping

from job.errors import CheckpointError, Problem, SpecError
from job.formats.columns import all_columns, declared_columns
from job.formats.decoder import implementation
from job.formats.registry import RegistryAccess, latest_schema, registry_access, schema_by_id
from job.formats.schemas import (
    PARTS,
    PLAIN_COLUMN,
    IncompatibleError,
    Part,
    ReaderSchema,
    RegisteredSchema,
    Shape,
    UnknownSchemaError,
)
from job.spec.side_spec import SideSpec
from job.spec.spec import JoinSpec
from job.spec.value_format import Format
from job.spec.value_schema import Column, ValueSchema, value_schema
from job.spec.written_types import record_key_type
from job.sql.questions import SqlQuestions
from job.sql.types import TIMESTAMP, SqlType

Fields = Mapping[str, SqlType | None]


def reader_schemas(
    spec: JoinSpec, sql: SqlQuestions, *, only_missing: bool = False
) -> dict[Part, ReaderSchema]:
    """Reader schemas of the values and the keys whose format needs a registry.

    `only_missing`: only those without columns in the spec. Raises SpecError with all problems,
    RegistryError or SecurityError if the registry does not answer.
    """
    sides = {"left": spec.left, "right": spec.right}
    needed = [
        part
        for part in PARTS
        if _format(part, sides[part.side]) is not None
        and not (only_missing and _has_columns(part, sides[part.side]))
    ]
    # The password file may be missing where a spec is only validated: read it only if needed.
    access = registry_access(spec.schema_registry) if needed else None
    readers: dict[Part, ReaderSchema] = {}
    problems: list[Problem] = []
    for part in needed:
        assert access is not None  # JoinSpec requires it
        try:
            readers[part] = _reader_schema(access, part, sides[part.side], sql)
        except SpecError as error:
            problems += error.problems
    if problems:
        raise SpecError(problems)
    return readers


def _format(part: Part, written: SideSpec) -> Format | None:
    """None: the format has no schemas in the registry."""
    if part.is_key:
        return written.key_format.with_registry
    return written.format if written.format.has_registry else None


def _has_columns(part: Part, written: SideSpec) -> bool:
    return written.has_key_type if part.is_key else written.has_columns


def _reader_schema(
    access: RegistryAccess, part: Part, written: SideSpec, sql: SqlQuestions
) -> ReaderSchema:
    used = _format(part, written)
    assert used is not None, "the caller passes a part with a registry"
    subject = written.key_registry_subject if part.is_key else written.registry_subject
    version, schema = newest_schema(access, part, subject)
    if schema.type != used.upper():
        named = part.field("format").rpartition(".")[2]
        message = f"has type {schema.type} in the registry, and `{named}` is {used}"
        raise SpecError([Problem(part.field("subject"), subject, message)])
    if part.is_key:
        return key_reader(part, subject, version, schema, written.key_schema, sql)
    shape = Shape.RECORD if written.envelope is None else Shape.ENVELOPE
    fields = _fields(part, subject, schema, used, shape)
    field, text = part.field("schema"), written.schema_
    columns = (
        all_columns(fields, field, subject)
        if text is None
        else declared_columns(value_schema(text, field, sql), fields, field, subject)
    )
    return ReaderSchema(used, subject, version, schema, columns, shape)


def key_reader(
    part: Part,
    subject: str,
    version: int,
    schema: RegisteredSchema,
    declared: str | None,
    sql: SqlQuestions,
) -> ReaderSchema:
    """Reader schema of keys. `schema`: in Avro or Protobuf. `declared`: `key_schema` of the spec.

    Raises SpecError if a column cannot have the type.
    """
    used, field = Format(schema.type.lower()), part.field("schema")
    try:
        shape = implementation(used).shape_of_key(schema)
    except IncompatibleError as error:
        raise SpecError([Problem(part.field("subject"), subject, str(error))]) from error
    fields = _fields_of_key(_fields(part, subject, schema, used, shape), shape, subject, part)
    kind = _declared_key(declared, shape, field, subject, sql)
    columns = (
        all_columns(fields, field, subject)
        if kind is None
        else declared_columns(kind, fields, field, subject)
    )
    reader = ReaderSchema(used, subject, version, schema, columns, shape)
    if any(inner == TIMESTAMP for _, inner in reader.type.fields):
        message = (
            "contains a TIMESTAMP inside a key of a registry: declare it BIGINT and convert it"
        )
        raise SpecError([Problem(field, str(reader.type), message)])
    return reader


def _fields(
    part: Part, subject: str, schema: RegisteredSchema, used: Format, shape: Shape
) -> Fields:
    try:
        return implementation(used).fields(schema, shape)
    except IncompatibleError as error:
        raise SpecError([Problem(part.field("subject"), subject, str(error))]) from error


def _fields_of_key(fields: Fields, shape: Shape, subject: str, part: Part) -> Fields:
    if shape is Shape.RECORD:  # the decoders read no time in a STRUCT
        return {name: None if kind == TIMESTAMP else kind for name, kind in fields.items()}
    if fields[PLAIN_COLUMN] is None:
        message = "has a schema of an unsupported type: leave `key_format` out"
        raise SpecError([Problem(part.field("subject"), subject, message)])
    return fields


def _declared_key(
    ddl: str | None, shape: Shape, field: str, subject: str, sql: SqlQuestions
) -> ValueSchema | None:
    """The columns of a key of the type `ddl`. None: the spec has no type."""
    if ddl is None:
        return None
    kind = record_key_type(ddl, field, sql)
    if shape is Shape.PLAIN:
        return ValueSchema((Column(PLAIN_COLUMN, kind),))
    if kind.name != "STRUCT":
        message = f"must be a STRUCT: the keys of subject {subject} are records"
        raise SpecError([Problem(field, str(kind), message)])
    return ValueSchema(tuple(Column(name, of_field) for name, of_field in kind.fields))


def newest_schema(access: RegistryAccess, part: Part, subject: str) -> tuple[int, RegisteredSchema]:
    """Version and schema of a subject. Raises SpecError if it does not exist, RegistryError or
    SecurityError if the registry does not answer."""
    try:
        return latest_schema(access, subject)
    except UnknownSchemaError as error:
        field = part.field("subject")
        message = (
            f"does not exist in schema registry {access.url}: register its schema, or set "
            f"`{field.rpartition('.')[2]}`"
        )
        raise SpecError([Problem(field, subject, message)]) from error


def check_schema_evolution(
    frozen: Mapping[str, str], readers: Mapping[Part, ReaderSchema], access: RegistryAccess
) -> dict[str, str]:
    """`frozen` with the schema ids of `readers`, each of which can read all earlier records.

    Raises CheckpointError if a reader schema cannot read records of the frozen one, or if that
    cannot be determined.
    """
    updated = dict(frozen)
    for part, reader in readers.items():
        name = part.schema_id
        if name not in frozen or frozen[name] == str(reader.schema.id):
            continue
        if (why := _incompatibility(int(frozen[name]), reader, access)) is not None:
            raise CheckpointError(
                f"{part}: the query started with schema {frozen[name]}. The newest one of subject "
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
