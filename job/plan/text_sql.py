"""Values of a JSON text that from_json reads as STRING, as their declared types, in Spark SQL.

from_json reads a number in a TIMESTAMP as seconds, and rounds a DECIMAL (decimal_sql.py). So it
reads both as STRING, also inside of ARRAY, MAP and STRUCT. `value` converts the texts, and is null
if one of them is not of its type.
"""

from dataclasses import replace

from job.plan import decimal_sql
from job.plan.timestamp_sql import timestamp
from job.sql.literals import quoted
from job.sql.types import STRING, TIMESTAMP, SqlType


def read_as(kind: SqlType) -> SqlType:
    """The type for from_json."""
    if _is_text(kind):
        return STRING
    return replace(kind, fields=tuple((name, read_as(part)) for name, part in kind.fields))


def holds_text(kind: SqlType) -> bool:
    """Whether from_json reads a part of the type as STRING instead."""
    return read_as(kind) != kind


def value(raw: str, kind: SqlType) -> str:
    """`raw`, of type `read_as(kind)`, as `kind`. Null: a text in it is not of its type."""
    if _is_text(kind) or not holds_text(kind):
        return _converted(raw, kind)
    return f"CASE WHEN NOT {_is_lost(raw, kind)} THEN {_converted(raw, kind)} END"


def _is_text(kind: SqlType) -> bool:
    return kind.is_decimal or kind == TIMESTAMP


def _converted(raw: str, kind: SqlType, depth: int = 0) -> str:
    if not holds_text(kind):
        return raw
    if _is_text(kind):
        return timestamp(raw) if kind == TIMESTAMP else decimal_sql.value(raw, kind)
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
    """Condition that is never null: `raw` has a text that is not of its type."""
    if _is_text(kind):
        return f"({raw} IS NOT NULL AND {_converted(raw, kind)} IS NULL)"
    if kind.name == "STRUCT":
        parts = [
            _is_lost(f"{raw}.`{name}`", part, depth)
            for name, part in kind.fields
            if holds_text(part)
        ]
        return f"({' OR '.join(parts)})"
    name, (_, part) = f"d{depth}", kind.fields[-1]
    values = raw if kind.name == "ARRAY" else f"map_values({raw})"
    return f"coalesce(exists({values}, {name} -> {_is_lost(name, part, depth + 1)}), false)"
