"""Lengths of interval literals of Spark SQL, e.g. INTERVAL '1:30' MINUTE TO SECOND.

A day-time interval is a number of microseconds, a year-month interval a number of months.
"""

import re
from dataclasses import dataclass
from decimal import Decimal

from sqlglot import exp

_MICROS = {
    "MICROSECOND": 1,
    "MILLISECOND": 1_000,
    "SECOND": 1_000_000,
    "MINUTE": 60_000_000,
    "HOUR": 3_600_000_000,
    "DAY": 86_400_000_000,
    "WEEK": 604_800_000_000,
}
_MONTHS = {"MONTH": 1, "YEAR": 12}

# Units of `DAY TO SECOND`, largest first, and the separators between them.
_FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d{1,9})?)\s*([a-z]+)\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Interval:
    """Exactly one of the two is set; the other is 0."""

    months: int = 0
    micros: int = 0


def interval(node: exp.Interval) -> Interval:
    """The length of an interval literal; ValueError if it is invalid or not supported."""
    literal = node.this
    negative = isinstance(literal, exp.Neg)
    text = (literal.this if negative else literal).name
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        micros = _span(text, unit.this.name.upper(), unit.expression.name.upper())
        return Interval(micros=-micros if negative else micros)
    parts = [(text, unit.name)] if unit is not None else _parts(text)
    months = micros = 0
    for number, name in parts:
        singular = name.upper().removesuffix("S")
        if singular in _MONTHS and not set(number) & set("."):
            months += int(number) * _MONTHS[singular]
        elif singular in _MICROS:
            micros += _whole(Decimal(number) * _MICROS[singular], node)
        else:
            raise ValueError(f"{node.sql(dialect='spark')} has an unknown unit {name}")
    if months and micros:
        raise ValueError(f"{node.sql(dialect='spark')} mixes months and days")
    sign = -1 if negative else 1
    return Interval(sign * months, sign * micros)


def _whole(micros: Decimal, node: exp.Interval) -> int:
    if micros != micros.to_integral_value():
        raise ValueError(f"{node.sql(dialect='spark')} is finer than a microsecond")
    return int(micros)


def _parts(text: str) -> list[tuple[str, str]]:
    """'1 day 2 hours' as [(1, day), (2, hours)]."""
    parts, end = [], 0
    while part := _PART.match(text, end):
        parts.append((part[1], part[2]))
        end = part.end()
    if not parts or end != len(text):
        raise ValueError(f"{text!r} is not an interval")
    return parts


def _span(text: str, first: str, last: str) -> int:
    """'1 02:03:04.5' of DAY TO SECOND."""
    if first not in _FIELDS or last not in _FIELDS:
        raise ValueError(f"INTERVAL {first} TO {last} is not supported")
    fields = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
    body = text.strip()
    negative, body = body.startswith("-"), body.removeprefix("-").removeprefix("+")
    numbers = re.split(r"[ :]+", body)
    if len(numbers) != len(fields) or not all(re.fullmatch(r"\d+(\.\d{1,6})?", n) for n in numbers):
        raise ValueError(f"{text!r} is not an INTERVAL {first} TO {last}")
    micros = sum(
        int(Decimal(number) * _MICROS[field]) for number, field in zip(numbers, fields, strict=True)
    )
    return -micros if negative else micros
