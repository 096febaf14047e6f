"""Columns of a topic's values. Spark reads them from DDL."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from job.errors import Problem, SpecError
from job.sql.json_types import Field
from job.sql.questions import SqlError, SqlQuestions
from job.sql.types import (
    BIGINT,
    INT,
    SIMPLE_TYPES,
    STRING,
    TIMESTAMP,
    SqlType,
    map_of,
    struct_of,
)

_DEEPEST = 20
_NESTED = {"ARRAY", "MAP", "STRUCT"}
_DASHED_NAME = re.compile(r"(?<![`\w-])\w+-[\w-]+(?![`\w-])")


@dataclass(frozen=True)
class Column:
    name: str
    type: SqlType
    definition: str | None = None
    """SQL of a computed column over the columns of the value and of the record. None: the value or
    the record has the column."""


RECORD_COLUMNS = (
    Column("record_key", STRING),
    Column("record_timestamp", TIMESTAMP),
    Column("record_partition", INT),
    Column("record_offset", BIGINT),
    Column("record_headers", map_of(STRING, STRING)),
)
"""Metadata of the record. Its key has another type if the side has a `key_format`."""
ENVELOPE_COLUMNS = (
    Column("record_operation", STRING),
    Column("record_source_timestamp", TIMESTAMP),
)
"""Metadata of the change, of a side with an envelope."""


def envelope_type(row: SqlType) -> SqlType:
    """The parts of Debezium's envelope of a row that are read."""
    source = struct_of([("ts_ms", BIGINT)])
    return struct_of([("before", row), ("after", row), ("op", STRING), ("source", source)])


RECORD_COLUMN_NAMES = frozenset(column.name for column in (*RECORD_COLUMNS, *ENVELOPE_COLUMNS))
"""Metadata of the record, usable like the columns of a side."""


def record_columns(key_type: SqlType, *, has_envelope: bool = False) -> tuple[Column, ...]:
    """RECORD_COLUMNS with the type of the key, and those of an envelope."""
    of_envelope = ENVELOPE_COLUMNS if has_envelope else ()
    return (Column("record_key", key_type), *RECORD_COLUMNS[1:], *of_envelope)


@dataclass(frozen=True)
class ValueSchema:
    columns: tuple[Column, ...]
    invalid: frozenset[str] = frozenset()
    """Names of computed columns that have a problem, in lower case."""

    def column(self, name: str) -> Column | None:
        """The column with that name, ignoring case as Spark does."""
        for column in self.columns:
            if column.name.casefold() == name.casefold():
                return column
        return None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)


def free_name(name: str, columns: Iterable[Column]) -> str:
    """`name`, with underscores after it if a column has this name, ignoring case."""
    taken = {column.name.casefold() for column in columns}
    while name.casefold() in taken:
        name += "_"
    return name


def value_schema(ddl: str, field: str, sql: SqlQuestions) -> ValueSchema:
    """The columns in `ddl`. SpecError with `field` if `ddl` is not a supported schema."""
    try:
        fields = sql.columns(ddl)
    except SqlError as error:
        message = f"is not Spark DDL, e.g. `id BIGINT, at TIMESTAMP`: {error}"
        if _DASHED_NAME.search(ddl):
            message += "; put a name with a dash in backquotes, e.g. `order-id` BIGINT"
        raise SpecError([Problem(field, ddl, message)]) from error
    for each in fields:
        for message in _constraints(each):
            raise _error(field, f"{each.name} {each.type}", message)
    return schema_of((Column(each.name, each.type) for each in fields), field)


def schema_of(columns: Iterable[Column], field: str) -> ValueSchema:
    """The columns as a schema. SpecError with `field` if a value cannot have them."""
    found = tuple(columns)
    if not found:
        raise SpecError([Problem(field, None, "has no columns: write e.g. `id BIGINT`")])
    for column in found:
        message = name_problem(column.name) or _type_problem(column.type)
        if message is not None:
            raise _error(field, f"{column.name} {column.type}", message)
    refuse_duplicates(found, field)
    return ValueSchema(found)


def refuse_other_keys(schema: ValueSchema, field: str) -> None:
    """Raises SpecError for a MAP whose keys are not strings: JSON has no other keys."""
    for column in schema.columns:
        for kind in _parts(column.type):
            if kind.name == "MAP" and kind.inside("key") != STRING:
                message = "has a MAP with keys that are not strings, which JSON does not support: "
                raise _error(field, f"{column.name} {kind}", f"{message}write MAP<STRING, ...>")


def _constraints(column: Field) -> Iterator[str]:
    """A COMMENT does not affect the join; everything else would."""
    if column.has_constraint:
        yield "has NOT NULL or DEFAULT: remove it, a schema contains only names and types"
    if column.has_other_text:
        yield "has CHAR, VARCHAR or a collation: write STRING"


def name_problem(name: str) -> str | None:
    """What is wrong with the name of a column, and the remedy. None: nothing."""
    if "`" in name or not name:
        return "has a name that Spark cannot resolve: rename it"
    return None


def _type_problem(kind: SqlType) -> str | None:
    if _depth(kind) > _DEEPEST:
        return f"has types nested more than {_DEEPEST} deep"
    for part in _parts(kind):
        if part.name.startswith("INTERVAL"):
            return "has an INTERVAL, which no value can contain: use STRING"
        if part.name not in {*SIMPLE_TYPES, "DECIMAL", *_NESTED}:
            return f"has {part}, which a value cannot contain: use STRING"
        if part.name == "STRUCT" and (message := _struct_problem(part)) is not None:
            return message
    return None


def _struct_problem(kind: SqlType) -> str | None:
    names = [name for name, _ in kind.fields]
    if not names:
        return "has a STRUCT without fields: write e.g. STRUCT<city: STRING>"
    if _first_duplicate(names) is not None:
        return "has a STRUCT with a field twice (ignoring case): rename one"
    return next(filter(None, map(name_problem, names)), None)


def _parts(kind: SqlType) -> Iterator[SqlType]:
    """The type and all types in it."""
    yield kind
    for _, inner in kind.fields:
        yield from _parts(inner)


def _depth(kind: SqlType) -> int:
    return 1 + max((_depth(inner) for _, inner in kind.fields), default=-1)


def refuse_duplicates(columns: tuple[Column, ...], field: str) -> None:
    """Raises SpecError for two names that Spark does not distinguish."""
    duplicate = _first_duplicate(column.name for column in columns)
    if duplicate is not None:
        raise _error(field, duplicate, "names a column twice (ignoring case): rename one")


def _first_duplicate(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        spellings = {name.lower(), name.casefold(), _java_folded(name)}
        if spellings & seen:
            return name
        seen |= spellings
    return None


def _java_folded(name: str) -> str:
    """Equal for names that are equal by Java's equalsIgnoreCase, which compares characters."""
    return "".join(_single(_single(character, str.upper), str.lower) for character in name)


def _single(character: str, change: Callable[[str], str]) -> str:
    if character == "İ":
        return "i" if change is str.lower else character
    changed = change(character)
    return changed if len(changed) == 1 else character


def _error(field: str, value: str, message: str) -> SpecError:
    return SpecError([Problem(field, value, message)])
