"""Texts that are lines of CSV: the delimiter, the names and the types of their fields."""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from job.proposal.columns import Row, declarable
from job.semantics.json_lines import Json, Number
from job.spec.csv import CsvSpec
from job.sql.types import STRING

_DELIMITERS = (";", "\t", "|", ",")
"""The comma is the last: with another delimiter, numbers and texts contain it."""
_NULLS = ("\\N", "NULL", "null")
_SHARE_MIN = 0.9
"""Part of the values that must have the same number of fields."""
_RECORDS_MIN = 2
_NAME = re.compile(r"[A-Za-z_]\w*")
_WHOLE = re.compile(r"[+-]?(0|[1-9]\d{0,17})")
_NUMBER = re.compile(r"[+-]?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_TIME = re.compile(r"(\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{4})([T ]\d{2}:\S*)?")


@dataclass(frozen=True)
class CsvValues:
    settings: CsvSpec
    rows: list[Row | None]
    """The fields of each value. None: it has another number of fields, or is the header."""
    has_header: bool

    @property
    def columns_count(self) -> int:
        return max(len(row) for row in self.rows if row is not None)


def csv_values(texts: Sequence[str], *, begins_topic: bool) -> CsvValues | None:
    """The texts as CSV. `begins_topic`: the first text is the first of its topic, and may have the
    names. None: the texts are no CSV, or the evidence for it is weak."""
    found = [each for each in (_split(texts, delimiter) for delimiter in _DELIMITERS) if each]
    if not found:
        return None
    delimiter, lines = max(found, key=lambda each: sum(line is not None for line in each[1]))
    names = lines[0] if begins_topic and lines[0] and _are_names(lines[0]) else None
    rest = [line for line in lines[1 if names else 0 :] if line is not None]
    if not rest:
        return None
    null = next((text for text in _NULLS if any(text in line for line in rest)), "")
    columns = [
        [None if text in ("", null) else text for text in column]
        for column in zip(*rest, strict=True)
    ]
    typed = [_typed(column) for column in columns]
    if not any(_is_evidence(column) for column in typed):
        return None
    names = [_column_name(names, n) for n in range(len(columns))]
    rows = iter(dict(zip(names, row, strict=True)) for row in zip(*typed, strict=True))
    has_header = len(rest) < sum(line is not None for line in lines)
    read: list[Row | None] = [
        None if line is None or (has_header and number == 0) else next(rows)
        for number, line in enumerate(lines)
    ]
    return CsvValues(CsvSpec(delimiter=delimiter, null_value=null), read, has_header)


def _column_name(header: Sequence[str] | None, index: int) -> str:
    """CSV reads fields by their position: each needs a column, also one of a reserved name."""
    if header is not None and declarable(header[index], [STRING], {}) is not None:
        return header[index]
    name = f"column_{index + 1}"
    while header is not None and name in map(str.casefold, header):
        name += "_"
    return name


def _split(texts: Sequence[str], delimiter: str) -> tuple[str, list[list[str] | None]] | None:
    """The delimiter and the fields of each text. None: not all have the same number of fields."""
    lines = [_fields(text, delimiter) for text in texts]
    counts = Counter(len(line) for line in lines if line)
    [(count, number)] = counts.most_common(1) or [(0, 0)]
    if count < 2 or number < max(_RECORDS_MIN, _SHARE_MIN * len(texts)):
        return None
    return delimiter, [line if line and len(line) == count else None for line in lines]


def _fields(text: str, delimiter: str) -> list[str] | None:
    line = text.removesuffix("\n").removesuffix("\r")
    if "\n" in line or "\r" in line:
        return None
    try:
        [fields] = csv.reader([line], delimiter=delimiter, strict=True)
    except (csv.Error, ValueError):
        return None
    return fields


def _are_names(fields: Sequence[str]) -> bool:
    is_distinct = len({field.casefold() for field in fields}) == len(fields)
    return is_distinct and all(_NAME.fullmatch(field) for field in fields)


def _typed(texts: Sequence[str | None]) -> list[Json]:
    """The texts as numbers or booleans, if all of a column are."""
    present = [text for text in texts if text is not None]
    if present and (
        all(_WHOLE.fullmatch(text) for text in present)
        or all(_NUMBER.fullmatch(text) and _is_double(text) for text in present)
    ):
        return [None if text is None else Number(text) for text in texts]
    if present and {text.lower() for text in present} <= {"true", "false"}:
        return [None if text is None else text.lower() == "true" for text in texts]
    return list(texts)


def _is_double(text: str) -> bool:
    return Decimal(text) == Decimal(repr(float(text)))


def _is_evidence(column: Sequence[Json]) -> bool:
    """Whether the values are those of a table: numbers, booleans or times. Sentences with commas
    have none."""
    present = [value for value in column if value is not None]
    return bool(present) and all(
        isinstance(value, bool | Number) or (isinstance(value, str) and _TIME.fullmatch(value))
        for value in present
    )
