"""From a CSV value to its fields in Spark SQL.

from_csv splits the value into texts, because its own conversions change values: 12,50 in a DECIMAL
becomes 1250. It also accepts several lines and quotes that are not escaped. Here such a value is
broken, and a text that is not a plain value of its type is null.
"""

from job.plan import decimal_sql
from job.plan.side_plan import SidePlan
from job.spec.csv import CsvSpec
from job.spec.value_schema import Column, free_name
from job.sql.literals import quoted
from job.sql.types import BOOLEAN, DATE, DOUBLE, FLOAT, STRING, SqlType

_FIELDS_MAX = 20_000
"""The parser of Spark fails the query at a value with more fields than its maxColumns."""
_LINE_ENDS = "\r\n"


def line() -> str:
    """The value as text, without a line break at its end."""
    return f"TRIM(TRAILING {quoted(_LINE_ENDS)} FROM cast(value AS STRING))"


def fields(side: SidePlan) -> str:
    """The fields of the value as a struct of texts. Null: the value has too many fields."""
    csv = side.csv
    options = {
        "mode": "PERMISSIVE",
        "columnNameOfCorruptRecord": _other_count(side),
        "sep": csv.delimiter,
        "quote": csv.quote,
        "escape": csv.escape,
        "nullValue": csv.null_value,
        "emptyValue": "",
        "maxColumns": str(_FIELDS_MAX + 1),
        "maxCharsPerColumn": "-1",
    }
    settings = ", ".join(f"{quoted(name)}, {quoted(value)}" for name, value in options.items())
    columns = ", ".join(
        f"`{name}` STRING" for name in [*side.schema.names, options["columnNameOfCorruptRecord"]]
    )
    delimiters = f"{line()}, {quoted(csv.delimiter)}, ''"
    is_splittable = (
        f"octet_length(value) < {_FIELDS_MAX} "
        f"OR length({line()}) - length(replace({delimiters})) < {_FIELDS_MAX}"
    )
    return (
        f"from_csv(CASE WHEN {is_splittable} THEN {line()} END, {quoted(columns)}, map({settings}))"
    )


def is_broken(side: SidePlan) -> str:
    """Condition over `text` and `parsed`: the value is not one line with a field per column."""
    quote = quoted(side.csv.quote)
    return (
        f"(text = '' OR parsed IS NULL OR parsed.`{_other_count(side)}` IS NOT NULL "
        "OR contains(text, '\\n') OR contains(text, '\\r') "
        f"OR (contains(text, {quote}) AND NOT text RLIKE {quoted(_well_quoted(side.csv))}))"
    )


def broken_message(side: SidePlan) -> str:
    count = len(side.schema.columns)
    text = (
        f"the value is not one line with {count} field{'s'[: count != 1]}, or a quote in it is not "
        "escaped"
    )
    return f"CASE WHEN {is_broken(side)} THEN {quoted(text)} END"


def field_text(column: Column) -> str:
    """The text of a field. Blanks around a value of another type than STRING have no meaning."""
    raw = f"parsed.`{column.name}`"
    return raw if column.type == STRING else f"trim({raw})"


def converted(raw: str, kind: SqlType) -> str:
    """The text of a field as its type, except TIMESTAMP; null if it is not a plain value of it."""
    if kind == STRING:
        return raw
    if kind == BOOLEAN:
        return f"CASE lower({raw}) WHEN 'true' THEN true WHEN 'false' THEN false END"
    cast = f"try_cast({raw} AS {kind})"
    if kind in (FLOAT, DOUBLE):
        # Java also reads 1d, 0x1p3 and NaN, and 1e400 as infinity.
        return (
            f"CASE WHEN {raw} NOT RLIKE '[^0-9.eE+-]' "
            f"AND abs({cast}) < cast('Infinity' AS {kind}) THEN {cast} END"
        )
    if kind.is_decimal:
        return decimal_sql.value(raw, kind)
    if kind == DATE:
        # Spark also reads 2026 and 2026-01-31T12:00.
        return f"CASE WHEN {raw} RLIKE '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}$' THEN {cast} END"
    return cast


def _other_count(side: SidePlan) -> str:
    """The column of from_csv for a value with another number of fields. No column of the schema
    has its name."""
    return free_name("other_count", side.schema.columns)


def _well_quoted(csv: CsvSpec) -> str:
    """Matches a line in which a quoted field ends with its second unescaped quote. Possessive, so
    that Java matches a text of any length without recursion."""
    delimiter, quote, escape = map(_character, (csv.delimiter, csv.quote, csv.escape))
    if csv.quote == csv.escape:
        content = f"(?:[^{quote}]++|{quote}{quote})*+"
    else:
        content = f"(?:[^{quote}{escape}]++|{escape}(?s:.))*+"
    one = f"(?:{quote}{content}{quote}|(?!{quote})[^{delimiter}]*+)"
    return f"^{one}(?:{delimiter}{one})*+\\z"


def _character(character: str) -> str:
    return f"\\x{{{ord(character):x}}}"
