"""Output values as Spark's to_json writes them."""

import base64
import json
import math
import struct
from collections.abc import Sequence

from job.semantics.sql_cast import cast, day, decimal_text, instant
from job.semantics.sql_types import DATE, FLOAT, STRING, TIMESTAMP, NotExactError, SqlType, Value

Column = tuple[str, SqlType]


def check_types(columns: Sequence[Column]) -> None:
    """NotExactError for an output column that JSON has no place for."""
    for name, kind in columns:
        if kind.name.startswith("INTERVAL"):
            raise NotExactError(f"output column {name}, an {kind}")


def object_text(columns: Sequence[Column], values: Sequence[Value]) -> str:
    """One JSON object without spaces; nulls are written out."""
    members = (
        f"{json.dumps(name, ensure_ascii=False)}:{_text(value, kind)}"
        for (name, kind), value in zip(columns, values, strict=True)
    )
    return "{" + ",".join(members) + "}"


def key_text(value: Value, kind: SqlType) -> str | None:
    """The record key: the value cast to a string."""
    return None if value is None else str(cast(kind, STRING)(value))


def _text(value: Value, kind: SqlType) -> str:
    if value is None:
        return "null"
    if kind == TIMESTAMP and isinstance(value, int):
        at = instant(value)
        return f'"{at.year:04}-{at:%m-%dT%H:%M:%S}.{at.microsecond // 1000:03}Z"'
    if kind == DATE and isinstance(value, int):
        return f'"{day(value).isoformat()}"'
    if isinstance(value, float):
        return _float_text(value, kind)
    if kind.is_decimal:
        return decimal_text(value)
    if isinstance(value, bytes):
        return f'"{base64.b64encode(value).decode()}"'
    return json.dumps(value, ensure_ascii=False)


def _float_text(value: float, kind: SqlType) -> str:
    if math.isnan(value):
        return '"NaN"'
    if math.isinf(value):
        return '"Infinity"' if value > 0 else '"-Infinity"'
    if kind == FLOAT:
        value = _shortest_float32(value)
    return repr(value).replace("e+", "E").replace("e", "E")


def _shortest_float32(value: float) -> float:
    """The number with the fewest digits that is the same FLOAT."""
    for digits in range(1, 10):
        candidate = float(f"{value:.{digits}g}")
        if struct.pack("<f", candidate) == struct.pack("<f", value):
            return candidate
    return value
