"""Compares results with the expected rows. Pure."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from job.instants import utc_text

ROWS_SHOWN = 20

Value = Mapping[str, Any]


@dataclass(frozen=True)
class Differences:
    missing: Sequence[Value]
    """Expected rows without a result."""
    unexpected: Sequence[Value]
    """Results that are not expected, or more often than expected."""

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected)

    def __str__(self) -> str:
        return "\n".join(
            [*_listed("missing", self.missing), *_listed("unexpected", self.unexpected)]
        )


def differences(expected: Sequence[Value], results: Sequence[Value]) -> Differences:
    """Compare in any order, each row as often as expected, by the named fields only.

    Rows with more fields are assigned first: a row with fewer fields could take their result.
    """
    left = list(results)
    missing = []
    for wanted in sorted(map(_as_written, expected), key=len, reverse=True):
        found = next((row for row in left if _agrees(wanted, row)), None)
        if found is None:
            missing.append(wanted)
        else:
            left.remove(found)
    return Differences(missing, left)


def _agrees(wanted: Value, row: Value) -> bool:
    return all(name in row and row[name] == value for name, value in wanted.items())


def _as_written(row: Value) -> Value:
    """The row with its times in the format of results."""
    return {
        name: utc_text(value) if isinstance(value, datetime) else value
        for name, value in row.items()
    }


def _listed(name: str, rows: Sequence[Value]) -> list[str]:
    lines = [f"  {name}: {json.dumps(row, ensure_ascii=False)}" for row in rows[:ROWS_SHOWN]]
    more = len(rows) - ROWS_SHOWN
    return [*lines, f"  {name}: and {more:,} more"] if more > 0 else lines
