"""Registers the schema of the results, or looks it up, for the id that each value begins with."""

from dataclasses import replace

from job.errors import Problem, SpecError
from job.formats.registry import RegistryAccess, find_schema, latest_schema, register_schema
from job.formats.schemas import (
    IncompatibleError,
    OutputSchema,
    RegisteredSchema,
    UnknownSchemaError,
)


def registered(schema: OutputSchema, access: RegistryAccess) -> OutputSchema:
    """`schema` with its id in the registry.

    Raises SpecError if the subject refuses or lacks the schema, RegistryError or SecurityError if
    the registry does not answer.
    """
    try:
        if schema.registers:
            return replace(schema, id=register_schema(access, schema))
        return replace(schema, id=find_schema(access, schema))
    except IncompatibleError as error:
        message = (
            f"refuses the schema of the output columns{_changed_fields(schema, access)}. The "
            f"registry answers: {error}. Keep the types of the columns, set another "
            "`output.subject`, or change the compatibility of the subject"
        )
        raise SpecError([Problem("output.subject", schema.subject, message)]) from None
    except UnknownSchemaError:
        message = (
            f"does not have the schema of the output columns in schema registry {access.url}"
            f"{_changed_fields(schema, access)}, and `output.register` is false: register the "
            "schema that `streamjoin plan` shows, or omit `register`"
        )
        raise SpecError([Problem("output.subject", schema.subject, message)]) from None


def _changed_fields(schema: OutputSchema, access: RegistryAccess) -> str:
    """The fields that differ from the newest version of the subject, as far as they are known."""
    from job.formats import avro  # loads fastavro, which takes half a second

    try:
        version, newest = latest_schema(access, schema.subject)
        if newest.type != schema.format.upper():
            return f" (version {version} has type {newest.type})"
        own = RegisteredSchema(0, newest.type, schema.text)
        changes = [*avro.record_differences(newest, own), *avro.record_differences(own, newest)]
    except (IncompatibleError, UnknownSchemaError):
        return ""
    messages = dict.fromkeys(change.message for change in changes)
    return f" (compared with version {version}: {'; '.join(messages)})" if messages else ""
