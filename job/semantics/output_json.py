"""Output values in the format of Spark's to_json."""

import base64
import math
from collections.abc import Sequence
from typing import Any

from job.evaluation.java_numbers import double_text, float_text
from job.evaluation.sql_cast import cast
from job.evaluation.sql_types import (
    DATE,
    FLOAT,
    STRING,
    TIMESTAMP,
    VOID,
    NotExactError,
    SqlType,
    Value,
)
from job.evaluation.time_text import date_text, json_timestamp_text
from job.semantics.json_document import string_text, without_lone_surrogates

Column = tuple[str, SqlType]


def check_types(columns: Sequence[Column]) -> None:
    """Raises NotExactError for an output column that cannot be written as JSON."""
    for name, kind in columns:
        if kind.name.startswith("INTERVAL"):
            raise NotExactError(f"output column {name}, an {kind}")


def object_text(columns: Sequence[Column], values: Sequence[Value]) -> str:
    """One JSON object without spaces, including nulls."""
    members = (
        f"{string_text(name)}:{_text(value, kind)}"
        for (name, kind), value in zip(columns, values, strict=True)
    )
    return "{" + ",".join(members) + "}"


def key_text(value: Value, kind: SqlType) -> str | None:
    """The record key or the value of a header: the value cast to a string."""
    return None if value is None else str(cast(kind, STRING)(value))


def _text(value: Value, kind: SqlType) -> str:
    if value is None:
        return "null"
    if isinstance(value, tuple):
        return _nested_text(value, kind)
    if kind == TIMESTAMP and isinstance(value, int):
        return f'"{json_timestamp_text(value)}"'
    if kind == DATE and isinstance(value, int):
        return f'"{date_text(value)}"'
    if isinstance(value, float):
        text = float_text(value) if kind == FLOAT else double_text(value)
        return text if math.isfinite(value) else f'"{text}"'
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    if isinstance(value, str):
        return string_text(without_lone_surrogates(value))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)  # str(Decimal) has an exponent where Java's BigDecimal has one


def _nested_text(value: tuple[Any, ...], kind: SqlType) -> str:
    if kind.name == "STRUCT":
        return object_text(kind.fields, value)
    element = kind.element or VOID
    if kind.name == "MAP":
        members = (f"{string_text(name)}:{_text(member, element)}" for name, member in value)
        return "{" + ",".join(members) + "}"
    return "[" + ",".join(_text(item, element) for item in value) + "]"
