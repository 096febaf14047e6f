"""Finds damage in Spark's offset and commit logs, and what of it can safely be repaired. Pure.

    query/offsets/N   written before batch N begins: its input
    query/commits/N   written after batch N has ended

A power failure can leave the newest file of either log empty: its name was on disk before its
content. Spark 4.3.0 then refuses to start. Removing such a file is safe if it is the newest step:

- offsets/N without commits/N: batch N had not ended. It is planned again.
- commits/N: batch N had ended. It runs again from offsets/N. With exactly-once delivery its marker
  shows that the results were delivered; with at-least-once they may be delivered twice.

Any other damage means that an acknowledged entry is lost. The start is then refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# A complete entry begins with its version, `v1` or `v2`, and a line break.
_SHORTEST_ENTRY_BYTES = 3


@dataclass(frozen=True)
class Entry:
    number: int
    bytes: int

    @property
    def is_truncated(self) -> bool:
        return self.bytes < _SHORTEST_ENTRY_BYTES


@dataclass(frozen=True)
class Findings:
    repairable: tuple[str, ...] = ()
    """Files below `query/` that can be removed."""
    damage: tuple[str, ...] = ()
    """Messages about damage that cannot be repaired."""


def findings(offsets: Sequence[Entry], commits: Sequence[Entry]) -> Findings:
    """Check the entries of both logs, in any order."""
    damage, repairable = [], []
    newest_offset = max((entry.number for entry in offsets), default=-1)
    newest_commit = max((entry.number for entry in commits), default=-1)
    for entry in sorted(offsets, key=_number):
        if entry.is_truncated:
            if entry.number == newest_offset and newest_commit < newest_offset:
                repairable.append(f"offsets/{entry.number}")
            else:
                damage.append(_acknowledged("offsets", entry))
    for entry in sorted(commits, key=_number):
        if entry.is_truncated:
            if entry.number == newest_commit and newest_offset <= newest_commit:
                repairable.append(f"commits/{entry.number}")
            else:
                damage.append(_acknowledged("commits", entry))
    damage.extend(_gaps("offsets", offsets))
    damage.extend(_gaps("commits", commits))
    if newest_commit > newest_offset:
        damage.append(
            f"commits/{newest_commit} exists and offsets/{newest_commit} does not: files of the "
            "offset log were removed"
        )
    if newest_offset > newest_commit + 1:
        damage.append(
            f"offsets/{newest_offset} exists and commits/{newest_offset - 1} does not: files of "
            "the commit log were removed"
        )
    return Findings(tuple(repairable), tuple(damage))


def _acknowledged(log: str, entry: Entry) -> str:
    return f"{log}/{entry.number} is truncated to {entry.bytes} bytes, and is not the newest step"


def _gaps(log: str, entries: Sequence[Entry]) -> list[str]:
    numbers = {entry.number for entry in entries}
    missing = [
        n for n in range(min(numbers, default=0), max(numbers, default=0)) if n not in numbers
    ]
    return [f"{log}/{number} is missing" for number in missing]


def _number(entry: Entry) -> int:
    return entry.number
