"""The columns of JSON values: names and Spark types that read every value of a sample."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from pydantic import TypeAdapter, ValidationError
from sqlglot import exp
from sqlglot.errors import SqlglotError

from job.errors import SpecError
from job.evaluation.sql_types import INT_RANGES
from job.formats.schemas import ReaderSchema
from job.join_spec.field_types import ColumnName
from job.join_spec.value_schema import refuse_other_keys, value_schema
from job.plan.plan import RECORD_COLUMN_NAMES
from job.semantics.json_document import Json, Members, Number, document
from job.semantics.json_records import InputRecord
from job.sql.dialect import parse

STRING = "STRING"
"""Reads every JSON value: a number, an object or an array as its text."""

_OUTPUT_COLUMN = TypeAdapter[str](ColumnName)
_FIELDS_MAX = 200
_DEPTH_MAX = 10

Row = Mapping[str, Json]


@dataclass(frozen=True)
class Table:
    """The readable records of a sample as rows."""

    records: list[InputRecord]
    rows: list[Row]
    """The members of each record's value, in the order of `records`."""
    columns: dict[str, str]
    """Spark type of each column, in the order of appearance."""
    left_out: list[str] = field(default_factory=list)
    """Names of members that are no columns."""
    reader: ReaderSchema | None = None
    """The schema of the values in the registry. None: the values are JSON."""

    def values(self, name: str) -> list[Json]:
        return [row.get(name) for row in self.rows]


def table_of(records: Iterable[InputRecord]) -> Table:
    """The records whose value is a JSON object. Other records are left out."""
    read = [(record, document(record.value)) for record in records if record.value is not None]
    objects = [(record, members) for record, members in read if members is not None]
    rows: list[Row] = [dict(members) for _, members in objects]
    table = Table([record for record, _ in objects], rows, {})
    for name in dict.fromkeys(name for row in rows for name in row):
        kind = declarable(name, [type_of(table.values(name)), STRING], table.columns)
        if kind is None:
            table.left_out.append(name)
        else:
            table.columns[name] = kind
    return table


def schema_text(columns: Mapping[str, str]) -> str:
    """The columns as Spark DDL."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in columns.items())


def quoted(name: str) -> str:
    """The name as SQL: in backquotes, unless it is a plain word that is not a keyword."""
    is_word = name.isascii() and name.isidentifier()
    is_plain = is_word and _is_schema(f"{name} {STRING}") and _is_column(name)
    return name if is_plain else f"`{name}`"


def _is_column(name: str) -> bool:
    """Whether an expression can name the column without backquotes. NOT is a name in a schema
    only."""
    try:
        return isinstance(parse(f"left.{name}"), exp.Column)
    except SqlglotError:
        return False


def declarable(name: str, kinds: Sequence[str], others: Mapping[str, str]) -> str | None:
    """The first of `kinds` that a column of this name can have next to the other columns. None: no
    column can have the name."""
    if name.casefold() in RECORD_COLUMN_NAMES or not _is_legible(name):
        return None
    before = schema_text(others) + ", " if others else ""
    return next((each for each in kinds if _is_schema(f"{before}{quoted(name)} {each}")), None)


def _is_legible(name: str) -> bool:
    """Whether an output column of the spec can have the name, also behind `right_`; `${` begins a
    variable."""
    try:
        _OUTPUT_COLUMN.validate_python(f"right_{name}")
        _OUTPUT_COLUMN.validate_python(name)
    except ValidationError:
        return False
    return "${" not in name


def _is_schema(ddl: str) -> bool:
    try:
        refuse_other_keys(value_schema(ddl, "schema"), "schema")
    except SpecError:
        return False
    return True


def type_of(values: Sequence[Json], depth: int = 0) -> str:
    """The narrowest of BOOLEAN, BIGINT, DOUBLE, ARRAY and STRUCT that loses nothing, or STRING."""
    present = [value for value in values if value is not None]
    kinds = {_kind(value) for value in present}
    if depth == _DEPTH_MAX or not kinds:
        return STRING
    if kinds == {"object"}:
        return _struct([value for value in present if isinstance(value, Members)], depth)
    if kinds == {"array"}:
        elements = [each for value in present if isinstance(value, list) for each in value]
        return f"ARRAY<{type_of(elements, depth + 1)}>"
    if kinds <= {"BIGINT", "DOUBLE"}:
        return "DOUBLE" if "DOUBLE" in kinds else "BIGINT"
    return kinds.pop() if kinds == {"BOOLEAN"} else STRING


def _kind(value: Json) -> str:
    if isinstance(value, bool):
        return "BOOLEAN"
    if isinstance(value, Number):
        return _number_kind(value)
    if isinstance(value, Members):
        return "object"
    return "array" if isinstance(value, list) else STRING


def _number_kind(number: Number) -> str:
    low, high = INT_RANGES["BIGINT"]
    if not set(number) & set(".eE"):
        return "BIGINT" if low <= int(number) <= high else STRING
    return "DOUBLE" if Decimal(number) == Decimal(repr(float(number))) else STRING


def _struct(objects: Sequence[Members], depth: int) -> str:
    fields: dict[str, list[Json]] = {}
    for members in objects:
        for name, value in members:
            fields.setdefault(name, []).append(value)
    different = {name.casefold() for name in fields}  # Spark ignores case
    if not 0 < len(fields) <= _FIELDS_MAX or len(different) < len(fields):
        return STRING
    if not all(_is_legible(name) for name in fields):
        return STRING
    types = (f"{quoted(name)}: {type_of(each, depth + 1)}" for name, each in fields.items())
    return f"STRUCT<{', '.join(types)}>"
