"""Decoded rows as JSON that Spark's from_json reads. Pure."""

import base64
import json
import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from job.instants import EPOCH
from job.sql.types import BINARY, DATE, TIMESTAMP, SqlType


def json_text(
    row: Mapping[str, Any] | None, kinds: Mapping[str, SqlType], *, for_simulation: bool = False
) -> str | None:
    """`for_simulation`: a TIMESTAMP is ISO-8601, and a number that JSON does not have, e.g. NaN, is
    null, because a simulation refuses it. Otherwise a TIMESTAMP stays epoch microseconds."""
    if row is None:
        return None
    values = {name: json_value(row[name], kind, for_simulation) for name, kind in kinds.items()}
    return json.dumps(values, allow_nan=False)


def json_value(value: Any, kind: SqlType, for_simulation: bool) -> Any:
    """A value that json.dumps accepts."""
    if value is None:
        return None
    if kind.name == "STRUCT":
        return {name: json_value(value[name], inner, for_simulation) for name, inner in kind.fields}
    if kind.name == "MAP":
        inner = kind.inside("value")
        return {name: json_value(each, inner, for_simulation) for name, each in value.items()}
    if kind.element is not None:
        return [json_value(each, kind.element, for_simulation) for each in value]
    if kind == BINARY:
        return base64.b64encode(value).decode()
    if kind == DATE:
        return _iso(timedelta(days=value), date_only=True)
    if kind == TIMESTAMP and for_simulation:
        return _iso(timedelta(microseconds=value), date_only=False)
    if isinstance(value, float) and not math.isfinite(value):
        text = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return None if for_simulation else text
    return str(value) if kind.is_decimal else value


def _iso(since_1970: timedelta, *, date_only: bool) -> str | None:
    try:
        moment = EPOCH + since_1970
    except OverflowError:  # in no year that Python has
        return None
    return moment.date().isoformat() if date_only else moment.isoformat()
