"""Numbers and texts of a JSON value as DECIMAL, in Spark SQL.

from_json rounds a number to the scale of the column, and drops the commas of a text: `"12,50"`
becomes 1250.00. So it reads a DECIMAL as STRING, also inside of ARRAY, MAP and STRUCT. `value`
converts the text, and is null if the DECIMAL cannot have exactly this value.
"""

from dataclasses import replace

from job.sql.literals import quoted
from job.sql.types import STRING, SqlType

_SHOWN_CHARS = 200
_EXPONENT = "[eE][+-]?[0-9]{1,3}"
_PLAIN = f"^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)({_EXPONENT})?$"


def read_as(kind: SqlType) -> SqlType:
    """The type for from_json."""
    if kind.is_decimal:
        return STRING
    return replace(kind, fields=tuple((name, read_as(part)) for name, part in kind.fields))


def value(raw: str, kind: SqlType) -> str:
    """`raw`, of type `read_as(kind)`, as `kind`. Null: a DECIMAL in it cannot have its value."""
    if kind.is_decimal or not kind.holds("DECIMAL"):
        return _converted(raw, kind)
    return f"CASE WHEN NOT {_is_lost(raw, kind)} THEN {_converted(raw, kind)} END"


def problem(raw: str, kind: SqlType) -> str:
    """Why `value` is null for `raw`, which is not null."""
    digits = f"at most {kind.precision - kind.scale} digits before and {kind.scale} after the point"
    return (
        f"concat(left({raw}, {_SHOWN_CHARS}), if({raw} RLIKE {quoted(_PLAIN)}, "
        f"{quoted(f' does not fit: {digits}')}, ' is not a plain number'))"
    )


def _converted(raw: str, kind: SqlType, depth: int = 0) -> str:
    if not kind.holds("DECIMAL"):
        return raw
    if kind.is_decimal:
        return _exact(raw, kind)
    if kind.name == "STRUCT":
        fields = ", ".join(
            f"{quoted(name)}, {_converted(f'{raw}.`{name}`', part, depth)}"
            for name, part in kind.fields
        )
        return f"CASE WHEN {raw} IS NOT NULL THEN named_struct({fields}) END"
    name, (_, part) = f"d{depth}", kind.fields[-1]
    converted = _converted(name, part, depth + 1)
    if kind.name == "ARRAY":
        return f"transform({raw}, {name} -> {converted})"
    return f"transform_values({raw}, (k{depth}, {name}) -> {converted})"


def _is_lost(raw: str, kind: SqlType, depth: int = 0) -> str:
    """Condition that is never null: a DECIMAL in `raw` has a text, and cannot have its value."""
    if kind.is_decimal:
        return f"({raw} IS NOT NULL AND {_exact(raw, kind)} IS NULL)"
    if kind.name == "STRUCT":
        parts = [
            _is_lost(f"{raw}.`{name}`", part, depth)
            for name, part in kind.fields
            if part.holds("DECIMAL")
        ]
        return f"({' OR '.join(parts)})"
    name, (_, part) = f"d{depth}", kind.fields[-1]
    values = raw if kind.name == "ARRAY" else f"map_values({raw})"
    return f"coalesce(exists({values}, {name} -> {_is_lost(name, part, depth + 1)}), false)"


def _exact(raw: str, kind: SqlType) -> str:
    """The DECIMAL of a text. Null if it is not a plain number, or has other digits than it."""
    rounded = _rounded(raw, kind)
    fits = f"^[+-]?[0-9]*([.][0-9]{{0,{kind.scale}}}0*)?$"
    mantissa = f"substring_index(lower({raw}), 'e', 1)"
    same_digits = f"{_digits(mantissa)} = {_digits(f'cast({rounded} AS STRING)')}"
    return (
        f"CASE WHEN {raw} RLIKE {quoted(fits)} OR ({raw} RLIKE {quoted(_PLAIN)} AND {same_digits}) "
        f"THEN {rounded} END"
    )


def _rounded(raw: str, kind: SqlType) -> str:
    return f"try_cast({raw} AS {kind})"


def _digits(number: str) -> str:
    return f"trim(BOTH '0' FROM translate({number}, '+-.', ''))"
