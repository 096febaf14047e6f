"""From a JSON text to columns in Spark SQL.

from_json turns unreadable texts into nulls. The conditions here find them.
"""

from job.formats.schemas import HEADER_BYTES
from job.plan import text_sql, written_numbers
from job.spec.value_schema import Column, free_name
from job.sql.literals import quoted
from job.sql.time_zones import in_time_zone
from job.sql.types import SMALLINT, STRING, TIMESTAMP, TINYINT, SqlType

_WHITESPACE = " \t\r\n"
_BRACES_MEET = ("}{", "} {", "}\n{")
"""A text with one of these may contain two documents."""
_READ_AS = {TIMESTAMP: STRING, TINYINT: SMALLINT}
"""Column types whose JSON Spark parses as another type; then the value is converted and checked."""

_OPTIONS = "map('mode','PERMISSIVE','columnNameOfCorruptRecord','{unreadable}',"
_OPTIONS += "'allowSingleQuotes','false','allowNonNumericNumbers','false')"

Columns = tuple[Column, ...]


def parsed(columns: Columns, text: str) -> str:
    """The struct `parsed`: the columns of the text, and a column for an unreadable text."""
    name = unreadable(columns)
    fields = [f"`{column.name}` {text_sql.read_as(field_type(column))}" for column in columns]
    schema = ", ".join([*fields, f"`{name}` STRING"])
    return f"from_json({text}, {quoted(schema)}, {_OPTIONS.format(unreadable=name)})"


def restored(columns: Columns, *, text: str = "text", parsed: str = "parsed") -> str | None:
    """SQL over `parsed` and `text`: `parsed`, where a number in a STRING field has its original
    text. None: no column contains a STRING."""
    name = unreadable(columns)
    options = _OPTIONS.format(unreadable=name)
    return written_numbers.restored(columns, [name], options, text=text, parsed=parsed)


def converted(raw: str, kind: SqlType, time_zone: str) -> str:
    """A value of `parsed` as its declared type. Null if it is not of this type.

    `time_zone`: of a time without an offset.
    """
    if kind == TINYINT:
        return f"try_cast({raw} AS TINYINT)"
    if not text_sql.holds_text(kind):
        return raw
    sql = text_sql.value(raw, kind)
    return in_time_zone(sql, time_zone) if kind.holds("TIMESTAMP") else sql


def is_present(name: str, text: str = "text") -> str:
    """Condition: the JSON `text` has a value for the column, of any type."""
    return f"element_at(from_json({text}, 'MAP<STRING, STRING>'), {quoted(name)}) IS NOT NULL"


def is_unreadable(columns: Columns, parsed: str = "parsed") -> str:
    """Condition over `parsed`: from_json could not read the text as these columns."""
    return f"{parsed}.`{unreadable(columns)}` IS NOT NULL"


def is_malformed(columns: Columns) -> str:
    """Condition over `text` and `parsed`: the text is not one JSON object in UTF-8.

    from_json reads only the first of several documents and ignores text after the last brace. The
    whole text is parsed again only if two braces are adjacent, because that costs more.
    """
    cut = f"TRIM(TRAILING {quoted(_WHITESPACE)} FROM text)"
    braces_meet = " OR ".join(f"contains(text, {quoted(pair)})" for pair in _BRACES_MEET)
    two_documents = f"({braces_meet}) AND try_parse_json(concat('[', text, ']')) IS NULL"
    return (
        f"parsed IS NULL OR NOT endswith({cut}, '}}') OR NOT is_valid_utf8(text) "
        f"OR ({two_documents}) "
        f"OR ({is_unreadable(columns)} AND try_parse_json(text) IS NULL)"
    )


def field_type(column: Column) -> SqlType:
    """The type in which `converted` expects the column in `parsed`, except for a DECIMAL."""
    # from_json reads a number in a TIMESTAMP as seconds and 128 in a TINYINT as -128, and takes an
    # invalid time for an unreadable record.
    return _READ_AS.get(column.type, column.type)


def unreadable(columns: Columns) -> str:
    """Name of from_json's column for unreadable text. No column of the schema has it."""
    return free_name("unreadable", columns)


def lacks_schema_id(raw: str) -> str:
    """Condition: the bytes `raw` are not in Confluent's wire format."""
    return f"octet_length({raw}) < {HEADER_BYTES} OR substring({raw}, 1, 1) <> X'00'"


def text_after_schema_id(raw: str) -> str:
    """The JSON text in the bytes `raw`, which are in Confluent's wire format."""
    return f"cast(substring({raw}, {HEADER_BYTES + 1}) AS STRING)"
