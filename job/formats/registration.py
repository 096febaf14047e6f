"""Registers the schemas of the results, or looks them up. Values and keys begin with their ids."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from job.errors import Problem, SpecError
from job.formats.registry import (
    RegistryAccess,
    check_compatible,
    find_schema,
    latest_schema,
    register_schema,
)
from job.formats.schemas import (
    Difference,
    IncompatibleError,
    OutputSchema,
    RegisteredSchema,
    UnknownSchemaError,
)
from job.spec.value_format import Format

T = TypeVar("T")


def ensure_registered(schema: OutputSchema, access: RegistryAccess) -> OutputSchema:
    """Register the schema, or look it up. Returns it with its id in the registry.

    Raises SpecError if the subject refuses or lacks the schema, RegistryError or SecurityError if
    the registry does not answer.
    """
    request = register_schema if schema.registers else find_schema
    return replace(schema, id=_accepted(schema, access, request))


def check_accepted(schema: OutputSchema, access: RegistryAccess) -> int | None:
    """Id of the schema in its subject. None: the next start registers it.

    Raises the errors of `ensure_registered`, as far as the newest version of the subject shows
    them. Registers nothing.
    """
    return _accepted(schema, access, _find_or_compare if schema.registers else find_schema)


def _find_or_compare(access: RegistryAccess, schema: OutputSchema) -> int | None:
    """A version of the subject that has the schema is used, also if newer ones exist."""
    try:
        return find_schema(access, schema)
    except UnknownSchemaError:
        check_compatible(access, schema)
        return None


def expected_registration(schema: OutputSchema, access: RegistryAccess) -> str:
    """A sentence about the subject of the schema: what the next start does there. Raises as
    `check_accepted`."""
    if (number := check_accepted(schema, access)) is not None:
        return f"has the schema of {_source(schema)}, with id {number}"
    registers = f"the start registers the schema of {_source(schema)}"
    try:
        version, _ = latest_schema(access, schema.subject)
    except UnknownSchemaError:
        return f"does not exist: {registers} as its first version"
    return f"accepts the change since version {version}: {registers} as the next version"


def _accepted(
    schema: OutputSchema,
    access: RegistryAccess,
    request: Callable[[RegistryAccess, OutputSchema], T],
) -> T:
    if schema.format is Format.PROTOBUF and schema.registers:
        _check_numbers(schema, access)
    try:
        return request(access, schema)
    except IncompatibleError as error:
        message = (
            f"refuses the schema of {_source(schema)}{_changed_fields(schema, access)}. The "
            f"registry answers: {error}. {_remedy(schema)}, or change the compatibility of the "
            "subject"
        )
        raise _refusal(schema, message) from None
    except UnknownSchemaError:
        message = (
            f"does not have the schema of {_source(schema)} in schema registry {access.url}"
            f"{_changed_fields(schema, access)}, and `output.register` is false: register the "
            "schema that `streamjoin plan` shows, or omit `register`"
        )
        raise _refusal(schema, message) from None


def _check_numbers(schema: OutputSchema, access: RegistryAccess) -> None:
    """Refuse the schema if a number of the subject's newest version is missing or has another name.

    Registries accept another name if the type is equal. A consumer that reads by numbers would then
    read the value of one column as another column. Raises SpecError and the errors of
    latest_schema.
    """
    from job.formats import protobuf  # loads protoc

    try:
        version, newest = latest_schema(access, schema.subject)
        if newest.type != schema.format.upper():
            return
        changes = protobuf.renumbered(newest, _own(newest, schema))
    except (IncompatibleError, UnknownSchemaError):
        return
    if changes:
        message = (
            f"has other fields in version {version}: {'; '.join(changes)}. Fields are numbered in "
            f"the order of {_source(schema)}: add new fields at the end, write a removed field as "
            f"cast(NULL AS …), or use another {'topic' if schema.is_key else '`output.subject`'}"
        )
        raise _refusal(schema, message)


def _refusal(schema: OutputSchema, message: str) -> SpecError:
    field = "output.key_format" if schema.is_key else "output.subject"
    return SpecError([Problem(field, schema.subject, message)])


def _source(schema: OutputSchema) -> str:
    return "output.key" if schema.is_key else "the output columns"


def _remedy(schema: OutputSchema) -> str:
    if schema.is_key:
        return "Keep the type of output.key, use another topic"
    return "Keep the types of the columns, set another `output.subject`"


def _own(newest: RegisteredSchema, schema: OutputSchema) -> RegisteredSchema:
    return RegisteredSchema(0, newest.type, schema.text)


def _changed_fields(schema: OutputSchema, access: RegistryAccess) -> str:
    """The fields that differ from the newest version of the subject, as far as they are known."""
    try:
        version, newest = latest_schema(access, schema.subject)
        if newest.type != schema.format.upper():
            return f" (version {version} has type {newest.type})"
        compare, own = _comparison(schema.format), _own(newest, schema)
        changes = [*compare(newest, own), *compare(own, newest)]
    except (IncompatibleError, UnknownSchemaError):
        return ""
    messages = dict.fromkeys(change.message for change in changes)
    return f" (compared with version {version}: {'; '.join(messages)})" if messages else ""


def _comparison(
    used: Format,
) -> Callable[[RegisteredSchema, RegisteredSchema], list[Difference]]:
    """Import the module on first use: each takes half a second."""
    if used is Format.AVRO:
        from job.formats import avro

        return avro.record_differences
    from job.formats import protobuf

    return protobuf.message_differences
