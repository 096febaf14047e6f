"""Keeps the text of a JSON number in a STRING or DECIMAL field (1.50 stays 1.50), in Spark SQL.

from_json converts such a number to a double and formats the double: 1234567890123.25 becomes
1.23456789012325E12. A record is parsed a second time, with each number in quotes, only if a field
has the format of Java's doubles and the text has a number with a fraction or an exponent. Integers
keep their text anyway. The text of an object or a list in a STRING field is not restored.

from_json reads a DECIMAL field as STRING, too (decimal_sql.py). The double of a number with at most
15 digits has the same digits. So a DECIMAL needs the second parsing only for a longer number.
"""

from collections.abc import Iterator

from job.spec.value_schema import Column
from job.sql.literals import quoted
from job.sql.types import STRING, SqlType

_OF_A_DOUBLE = "'^-?[0-9]+[.][0-9]+(E-?[0-9]+)?$'"
_INFINITE = "'\"Infinity\"', '\"-Infinity\"'"
_NUMBER_IN_TEXT = r"[:,\[][ \t\r\n]*-?[0-9]+[.eE]"
_LONG = 17
"""Characters of the shortest number whose double may have other digits."""
_LONG_NUMBER_IN_TEXT = (
    r"[:,\[][ \t\r\n]*-?(?=[0-9]+[.eE])"
    f"([0-9.eE+-]{{{_LONG}}}|[0-9.]+[eE][+-]?[0-9]{{3}})"
)
"""Also a number that may be too small or too large for a double."""
# Starts at the end of the last match: whole strings and other text, then a number. Possessive, so
# that Java matches a text of any length without recursion.
_NEXT_NUMBER = r'\G((?:[^"0-9-]++|"(?:[^"\\]++|\\.)*+")*+)(-?[0-9][0-9.eE+-]*+)'


def restored(
    columns: tuple[Column, ...],
    others: list[str],
    options: str,
    *,
    text: str = "text",
    parsed: str = "parsed",
) -> str | None:
    """SQL over the columns `parsed` and `text`: `parsed`, but numbers in STRING and DECIMAL fields
    keep their text. None: no column contains one of them.

    `others`: further fields of `parsed`, which do not change. `options`: of from_json.
    """
    types = {column.name: column.type for column in columns}
    if not any(_holds_text(kind) for kind in types.values()):
        return None
    suspects = " OR ".join(
        _suspect(f"{parsed}.`{name}`", kind) for name, kind in types.items() if _holds_text(kind)
    )
    schema = ", ".join(f"`{name}` {_of_strings(kind)}" for name, kind in types.items())
    in_quotes = f"regexp_replace({text}, {quoted(_NEXT_NUMBER)}, '$1\"$2\"')"
    exact = f"from_json({in_quotes}, {quoted(schema)}, {options})"
    fields = [
        f"{quoted(name)}, {_merged(f'{parsed}.`{name}`', f'e.`{name}`', kind)}"
        for name, kind in types.items()
    ]
    fields += [f"{quoted(name)}, {parsed}.`{name}`" for name in others]
    merged = f"transform(array({exact}), e -> named_struct({', '.join(fields)}))[0]"
    changed = f"(({suspects}) AND {text} RLIKE {quoted(_NUMBER_IN_TEXT)})"
    if any(kind.holds("DECIMAL") for kind in types.values()):
        changed += f" OR {text} RLIKE {quoted(_LONG_NUMBER_IN_TEXT)}"
    return f"CASE WHEN {changed} THEN {merged} ELSE {parsed} END"


def _parts(kind: SqlType) -> Iterator[tuple[str, SqlType]]:
    """Name and type of the parts of a type; for a MAP only its values."""
    yield from kind.fields[1:] if kind.name == "MAP" else kind.fields


def _holds_text(kind: SqlType) -> bool:
    return kind == STRING or kind.is_decimal or any(_holds_text(part) for _, part in _parts(kind))


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
    if kind.is_decimal:
        return f"(length({value}) >= {_LONG} AND contains({value}, '.'))"
    parts = [(name, part) for name, part in _parts(kind) if _holds_text(part)]
    if kind.name == "STRUCT":
        return " OR ".join(_suspect(f"{value}.`{name}`", part, depth) for name, part in parts)
    values = value if kind.name == "ARRAY" else f"map_values({value})"
    each = f"v{depth}"
    return f"exists({values}, {each} -> {_suspect(each, parts[0][1], depth + 1)})"


def _merged(value: str, exact: str, kind: SqlType, depth: int = 0) -> str:
    """`value` with the texts of numbers from `exact`, which has the same shape."""
    if not _holds_text(kind):
        return value
    if kind.is_decimal:
        return exact
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
