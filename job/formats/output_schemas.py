"""The schemas of values and keys of results, in Avro or Protobuf. They follow from SQL types."""

from collections.abc import Mapping
from typing import Protocol

from job.errors import Problem, SpecError
from job.formats import avro_schema, proto_schema
from job.formats.column_rules import ColumnRules, Columns
from job.formats.schemas import OutputSchema
from job.spec.expressions import Expression
from job.spec.spec import JoinSpec
from job.spec.value_format import Format

KEY = "key"
"""Name of the only field of a key that is not a STRUCT."""


class _Implementation(Protocol):
    """Interface of the modules avro_schema.py and proto_schema.py."""

    RULES: ColumnRules

    def record_schema(self, name: str, columns: Columns) -> str: ...


def value_schema(spec: JoinSpec, columns: Mapping[str, Expression]) -> OutputSchema | None:
    """None: the values are JSON. Raises SpecError with every column that the format cannot
    contain."""
    written = spec.output
    if not written.format.has_registry:
        return None
    types = tuple((name, column.type) for name, column in columns.items())
    problems = [
        Problem(f"output.columns.{name}", str(columns[name].type), message)
        for name, message in _implementation(written.format).RULES.problems(types)
    ]
    if problems:
        raise SpecError(problems)
    text = _implementation(written.format).record_schema(spec.name, types)
    return OutputSchema(written.format, written.registry_subject, written.register_, text, types)


def key_schema(spec: JoinSpec, key: Expression) -> OutputSchema | None:
    """None: the keys are text or JSON. Raises SpecError if the format cannot contain the key."""
    written = spec.output
    key_format = written.key_format.with_registry
    if key_format is None:
        return None
    kind = key.type
    problems = [
        Problem("output.key", str(kind), message)
        for _, message in _implementation(key_format).RULES.problems([(KEY, kind)])
    ]
    if problems:
        raise SpecError(problems)
    types = kind.fields if kind.name == "STRUCT" else ((KEY, kind),)
    if key_format is Format.AVRO and kind.name != "STRUCT":
        text = avro_schema.plain_schema(kind)
    else:
        text = _implementation(key_format).record_schema(f"{spec.name}_{KEY}", types)
    subject = written.key_registry_subject
    return OutputSchema(key_format, subject, written.register_, text, types, is_key=True)


def _implementation(written: Format) -> _Implementation:
    return avro_schema if written is Format.AVRO else proto_schema
