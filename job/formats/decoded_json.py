"""Decoded rows as JSON that Spark's from_json reads. Pure."""

import base64
import json
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from job.instants import EPOCH
from job.sql.types import BINARY, DATE, SqlType


def json_text(row: Mapping[str, Any] | None, kinds: Mapping[str, SqlType]) -> str | None:
    """A TIMESTAMP stays epoch microseconds."""
    if row is None:
        return None
    values = {name: json_value(row[name], kind) for name, kind in kinds.items()}
    return json.dumps(values, allow_nan=False)


def json_value(value: Any, kind: SqlType) -> Any:
    """A value that json.dumps accepts."""
    if value is None:
        return None
    if kind.name == "STRUCT":
        return {name: json_value(value[name], inner) for name, inner in kind.fields}
    if kind.name == "MAP":
        inner = kind.inside("value")
        return {name: json_value(each, inner) for name, each in value.items()}
    if kind.element is not None:
        return [json_value(each, kind.element) for each in value]
    if kind == BINARY:
        return base64.b64encode(value).decode()
    if kind == DATE:
        return _iso(timedelta(days=value))
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return str(value) if kind.is_decimal else value


def _iso(since_1970: timedelta) -> str | None:
    try:
        return (EPOCH + since_1970).date().isoformat()
    except OverflowError:  # in no year that Python has
        return None
