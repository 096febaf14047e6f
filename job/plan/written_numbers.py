"""Keeps the text of a JSON number in a STRING field (1.50 stays 1.50), in Spark SQL.

from_json converts such a number to a double and formats the double: 1234567890123.25 becomes
1.23456789012325E12. A record is parsed a second time, with each number in quotes, only if a field
has the format of Java's doubles and the text has a number with a fraction or an exponent. Integers
keep their text anyway. The text of an
object or a list in a STRING field is not restored.
"""

from collections.abc import Iterator

from job.spec.value_schema import Column
from job.sql.literals import quoted
from job.sql.types import STRING, SqlType

_OF_A_DOUBLE = "'^-?[0-9]+[.][0-9]+(E-?[0-9]+)?$'"
_INFINITE = "'\"Infinity\"', '\"-Infinity\"'"
_NUMBER_IN_TEXT = r"[:,\[][ \t\r\n]*-?[0-9]+[.eE]"
# Starts at the end of the last match: whole strings and other text, then a number. Possessive, so
# that Java matches a text of any length without recursion.
_NEXT_NUMBER = r'\G((?:[^"0-9-]++|"(?:[^"\\]++|\\.)*+")*+)(-?[0-9][0-9.eE+-]*+)'


def restored(columns: tuple[Column, ...], others: list[str], options: str) -> str | None:
    """SQL over the columns `parsed` and `text`: `parsed`, but numbers in STRING fields keep their
    text. None: no column contains a STRING.

    `others`: further fields of `parsed`, which do not change. `options`: of from_json.
    """
    types = {column.name: column.type for column in columns}
    if not any(_holds_string(kind) for kind in types.values()):
        return None
    suspects = " OR ".join(
        _suspect(f"parsed.`{name}`", kind) for name, kind in types.items() if _holds_string(kind)
    )
    schema = ", ".join(f"`{name}` {_of_strings(kind)}" for name, kind in types.items())
    in_quotes = f"regexp_replace(text, {quoted(_NEXT_NUMBER)}, '$1\"$2\"')"
    exact = f"from_json({in_quotes}, {quoted(schema)}, {options})"
    fields = [
        f"{quoted(name)}, {_merged(f'parsed.`{name}`', f'e.`{name}`', kind)}"
        for name, kind in types.items()
    ]
    fields += [f"{quoted(name)}, parsed.`{name}`" for name in others]
    merged = f"transform(array({exact}), e -> named_struct({', '.join(fields)}))[0]"
    return (
        f"CASE WHEN ({suspects}) AND text RLIKE {quoted(_NUMBER_IN_TEXT)} "
        f"THEN {merged} ELSE parsed END"
    )


def _parts(kind: SqlType) -> Iterator[tuple[str, SqlType]]:
    """Name and type of the parts of a type; for a MAP only its values."""
    yield from kind.fields[1:] if kind.name == "MAP" else kind.fields


def _holds_string(kind: SqlType) -> bool:
    return kind == STRING or any(_holds_string(part) for _, part in _parts(kind))


def _of_strings(kind: SqlType) -> SqlType:
    """The type with STRING in place of each type without parts."""
    if not kind.fields:
        return STRING
    return SqlType(kind.name, fields=tuple((name, _of_strings(part)) for name, part in kind.fields))


def _suspect(value: str, kind: SqlType, depth: int = 0) -> str:
    """Condition: `value` may contain the text of a number that from_json has changed. The first
    comparison is false for nearly every text, and cheap."""
    if kind == STRING:
        number = f"contains({value}, '.') AND {value} RLIKE {_OF_A_DOUBLE}"
        return f"({value} < ':' AND ({number} OR {value} IN ({_INFINITE})))"
    parts = [(name, part) for name, part in _parts(kind) if _holds_string(part)]
    if kind.name == "STRUCT":
        return " OR ".join(_suspect(f"{value}.`{name}`", part, depth) for name, part in parts)
    values = value if kind.name == "ARRAY" else f"map_values({value})"
    each = f"v{depth}"
    return f"exists({values}, {each} -> {_suspect(each, parts[0][1], depth + 1)})"


def _merged(value: str, exact: str, kind: SqlType, depth: int = 0) -> str:
    """`value` with the texts of numbers from `exact`, which has the same shape."""
    if not _holds_string(kind):
        return value
    if kind == STRING:
        return f"CASE WHEN {_suspect(value, kind)} THEN {exact} ELSE {value} END"
    if kind.name == "STRUCT":
        fields = [
            f"{quoted(name)}, {_merged(f'{value}.`{name}`', f'{exact}.`{name}`', part, depth)}"
            for name, part in _parts(kind)
        ]
        return f"CASE WHEN {value} IS NOT NULL THEN named_struct({', '.join(fields)}) END"
    ((_, part),) = _parts(kind)
    key, a, b = f"k{depth}", f"a{depth}", f"b{depth}"
    merged = _merged(a, b, part, depth + 1)
    if kind.name == "ARRAY":
        return f"zip_with({value}, {exact}, ({a}, {b}) -> {merged})"
    return f"map_zip_with({value}, {exact}, ({key}, {a}, {b}) -> {merged})"
