"""The columns of JSON values: names and Spark types that read every value of a sample."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from pydantic import TypeAdapter, ValidationError

from job.errors import SpecError
from job.formats.schemas import ReaderSchema
from job.semantics.input_records import InputRecord
from job.semantics.json_lines import Json, Members, Number, any_json
from job.spec.field_types import ColumnName
from job.spec.value_schema import RECORD_COLUMN_NAMES, Column, refuse_other_keys, schema_of
from job.sql.questions import SqlError, SqlQuestions
from job.sql.types import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    STRING,
    SqlType,
    array_of,
    struct_of,
)

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
    columns: dict[str, SqlType]
    """Type of each column, in the order of appearance."""
    left_out: list[str] = field(default_factory=list)
    """Names of members that are no columns."""
    reader: ReaderSchema | None = None
    """The schema of the values in the registry. None: the values are JSON."""

    def values(self, name: str) -> list[Json]:
        return [row.get(name) for row in self.rows]


def table_of(records: Iterable[InputRecord]) -> Table:
    """The records whose value is a JSON object. Other records are left out."""
    read = [(record, _parsed(record.value)) for record in records if record.value is not None]
    objects = [(record, value) for record, value in read if isinstance(value, Members)]
    rows: list[Row] = [dict(members) for _, members in objects]
    table = Table([record for record, _ in objects], rows, {})
    for name in dict.fromkeys(name for row in rows for name in row):
        kinds = [type_of(table.values(name)), STRING]
        kind = declarable(name, kinds, table.columns)
        if kind is None:
            table.left_out.append(name)
        else:
            table.columns[name] = kind
    return table


def _parsed(value: str | bytes) -> Json:
    """None: it is no JSON."""
    try:
        return any_json(value.decode() if isinstance(value, bytes) else value)
    except ValueError:
        return None


def quoted_names(names: Iterable[str], sql: SqlQuestions) -> dict[str, str]:
    """Names of columns as SQL: in backquotes, unless Spark reads the plain word as a name, with and
    without a side before it."""
    return {name: name if _is_plain(name, sql) else f"`{name}`" for name in names}


def _is_plain(name: str, sql: SqlQuestions) -> bool:
    if not (name.isascii() and name.isidentifier()):
        return False
    try:
        found = [sql.names(text)[1] for text in (name, f"left.{name}")]
    except SqlError:
        return False
    return [[each.parts for each in names] for names in found] == [[(name,)], [("left", name)]]


def declarable(
    name: str, kinds: Sequence[SqlType], others: Mapping[str, SqlType]
) -> SqlType | None:
    """The first of `kinds` that a column of this name can have next to the other columns. None: no
    column can have the name."""
    if name.casefold() in RECORD_COLUMN_NAMES or not _is_legible(name):
        return None
    return next((kind for kind in kinds if _is_schema({**others, name: kind})), None)


def _is_legible(name: str) -> bool:
    """Whether an output column of the spec can have the name, also behind `right_`; `${` begins a
    variable."""
    try:
        _OUTPUT_COLUMN.validate_python(f"right_{name}")
        _OUTPUT_COLUMN.validate_python(name)
    except ValidationError:
        return False
    return "${" not in name


def _is_schema(columns: Mapping[str, SqlType]) -> bool:
    try:
        schema = schema_of((Column(name, kind) for name, kind in columns.items()), "schema")
        refuse_other_keys(schema, "schema")
    except SpecError:
        return False
    return True


def type_of(values: Sequence[Json], depth: int = 0) -> SqlType:
    """The narrowest of BOOLEAN, BIGINT, DOUBLE, ARRAY and STRUCT that loses nothing, or STRING."""
    present = [value for value in values if value is not None]
    kinds = {_kind(value) for value in present}
    if depth == _DEPTH_MAX or not kinds:
        return STRING
    if kinds == {"object"}:
        return _struct([value for value in present if isinstance(value, Members)], depth)
    if kinds == {"array"}:
        elements = [each for value in present if isinstance(value, list) for each in value]
        return array_of(type_of(elements, depth + 1))
    if kinds <= {BIGINT, DOUBLE}:
        return DOUBLE if DOUBLE in kinds else BIGINT
    return BOOLEAN if kinds == {BOOLEAN} else STRING


def _kind(value: Json) -> SqlType | str:
    """The type of a value; `object` or `array` if it has elements."""
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, Number):
        return _number_kind(value)
    if isinstance(value, Members):
        return "object"
    return "array" if isinstance(value, list) else STRING


def _number_kind(number: Number) -> SqlType:
    if not set(number) & set(".eE"):
        return BIGINT if -(1 << 63) <= int(number) < 1 << 63 else STRING
    return DOUBLE if Decimal(number) == Decimal(repr(float(number))) else STRING


def _struct(objects: Sequence[Members], depth: int) -> SqlType:
    fields: dict[str, list[Json]] = {}
    for members in objects:
        for name, value in members:
            fields.setdefault(name, []).append(value)
    different = {name.casefold() for name in fields}  # Spark ignores case
    if not 0 < len(fields) <= _FIELDS_MAX or len(different) < len(fields):
        return STRING
    if not all(_is_legible(name) for name in fields):
        return STRING
    return struct_of((name, type_of(each, depth + 1)) for name, each in fields.items())
