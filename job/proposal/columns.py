"""The columns of JSON values: names and Spark types that read every value of a sample."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from pydantic import TypeAdapter, ValidationError

from job.errors import SpecError
from job.formats.schemas import ReaderSchema
from job.semantics.input_records import InputRecord
from job.semantics.json_lines import Json, Members, Number, any_json
from job.spec.csv import CsvSpec
from job.spec.field_types import ColumnName
from job.spec.value_format import Format, Operation, RecordKeyFormat
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
PAYLOAD = "payload"
"""Member with the row in JSON of Kafka Connect, next to `schema`."""
_CONNECT = {"schema", PAYLOAD}
_FIELDS_MAX = 200
_DEPTH_MAX = 10

Row = Mapping[str, Json]


@dataclass(frozen=True)
class RecordKeys:
    """How the keys of the records of a sample are read."""

    format: RecordKeyFormat = RecordKeyFormat.STRING
    type: SqlType = STRING
    """Type of the column `record_key` in this format."""
    schema_id: int | None = None
    """Id of a schema in front of the newest key. None: keys have none."""
    reader: ReaderSchema | None = None
    """The schema of the keys in the registry. None: the spec has their type."""
    are_read: bool = True
    """False: neither a format nor a schema that `init` has read reads these keys."""


@dataclass(frozen=True)
class Changes:
    """The envelopes of a sample."""

    operations: Counter[Operation]
    """Number of the records of each operation."""
    source_ms: list[Json]
    """`source.ts_ms` of each row."""
    image_names: frozenset[str]
    """Columns of the row that a delete has in `before`. Empty: there is no delete."""

    @property
    def read(self) -> list[Operation]:
        """The operations that are proposed: those of the default, if the sample has one of them."""
        default = [Operation.CREATE, Operation.READ]
        return default if self.operations.keys() & set(default) else sorted(self.operations)


@dataclass(frozen=True)
class Table:
    """The readable records of a sample as rows."""

    records: list[InputRecord]
    """As a simulation reads them: without the id of a schema, rows of a registered schema in
    JSON."""
    rows: list[Row]
    """The members of each record's value, in the order of `records`."""
    columns: dict[str, SqlType]
    """Type of each column, in the order of appearance."""
    left_out: list[str] = field(default_factory=list)
    """Names of members that are no columns."""
    reader: ReaderSchema | None = None
    """The schema of the values in the registry. None: the spec names the columns."""
    format: Format = Format.JSON
    csv: CsvSpec | None = None
    """Settings of CSV values."""
    changes: Changes | None = None
    """Of values in the envelope of Debezium that the spec reads. None: the value is the row."""
    keys: RecordKeys = RecordKeys()
    simulated: list[InputRecord] = field(default_factory=list)
    """Records that a simulation of the sample reads: also those that are not readable."""
    notes: tuple[str, ...] = ()
    """Comments on the format, for the spec."""

    @property
    def declares_types(self) -> bool:
        """Whether the spec has the type of each column."""
        return self.reader is None and self.format is not Format.TEXT

    def values(self, name: str) -> list[Json]:
        return [row.get(name) for row in self.rows]

    @property
    def is_connect(self) -> bool:
        """Whether the values are those of Kafka Connect's JSON converter: schema and payload."""
        return all(row.keys() == _CONNECT for row in self.rows)


def table_of(records: Iterable[InputRecord]) -> Table:
    """The records whose value is a JSON object. Other records are left out."""
    read = [(record, parsed_json(record.value)) for record in records if record.value is not None]
    objects = [(record, value) for record, value in read if isinstance(value, Members)]
    rows: list[Row] = [dict(members) for _, members in objects]
    return with_columns(Table([record for record, _ in objects], rows, {}))


def with_columns(table: Table) -> Table:
    """The table with the columns of its rows."""
    table = replace(table, columns={}, left_out=[])
    names = dict.fromkeys(name for row in table.rows for name in row)
    for name in [PAYLOAD] if table.is_connect and table.rows else names:
        kinds = [type_of(table.values(name)), STRING]
        kind = declarable(name, kinds, table.columns)
        if kind is None:
            table.left_out.append(name)
        else:
            table.columns[name] = kind
    return table


def parsed_json(value: str | bytes) -> Json:
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


def is_declarable_type(kind: SqlType) -> bool:
    """Whether a column can have the type."""
    return _is_schema({"c": kind})


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
