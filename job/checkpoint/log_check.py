"""Spark's offset and commit logs: what is in them, what is damaged, what can safely be repaired.

    query/offsets/N   written before batch N begins: what it is made from
    query/commits/N   written after batch N has ended

A power cut can leave the newest file of either empty: it was named before its bytes were on disk.
Spark 4.3.0 then refuses to start. Taking such a file away is safe where it is the very newest step:

- offsets/N without commits/N: batch N had not ended. It is planned anew.
- commits/N: batch N had ended. It runs again from offsets/N; with exactly-once delivery its marker
  tells that the results are out, with at-least-once they may come twice.

Any other damage means that something acknowledged is gone, and is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass

# A whole entry begins with its version, `v1` or `v2`, and a line break.
_SHORTEST_ENTRY_BYTES = 3


@dataclass(frozen=True)
class Entry:
    number: int
    bytes: int

    @property
    def is_cut_off(self) -> bool:
        return self.bytes < _SHORTEST_ENTRY_BYTES


@dataclass(frozen=True)
class Findings:
    repairable: tuple[str, ...] = ()
    """Files, below `query/`, that can be taken away."""
    damage: tuple[str, ...] = ()
    """What is wrong and cannot be repaired, in words."""


def findings(offsets: Sequence[Entry], commits: Sequence[Entry]) -> Findings:
    """Of the entries of both logs, in any order."""
    damage, repairable = [], []
    newest_offset = max((entry.number for entry in offsets), default=-1)
    newest_commit = max((entry.number for entry in commits), default=-1)
    for entry in sorted(offsets, key=_number):
        if entry.is_cut_off:
            if entry.number == newest_offset and newest_commit < newest_offset:
                repairable.append(f"offsets/{entry.number}")
            else:
                damage.append(_acknowledged("offsets", entry))
    for entry in sorted(commits, key=_number):
        if entry.is_cut_off:
            if entry.number == newest_commit and newest_offset <= newest_commit:
                repairable.append(f"commits/{entry.number}")
            else:
                damage.append(_acknowledged("commits", entry))
    damage.extend(_gaps("offsets", offsets))
    damage.extend(_gaps("commits", commits))
    if newest_commit > newest_offset:
        damage.append(
            f"commits/{newest_commit} is there and offsets/{newest_commit} is not: files of the "
            "offset log were taken away"
        )
    if newest_offset > newest_commit + 1:
        damage.append(
            f"offsets/{newest_offset} is there and commits/{newest_offset - 1} is not: files of "
            "the commit log were taken away"
        )
    return Findings(tuple(repairable), tuple(damage))


def _acknowledged(log: str, entry: Entry) -> str:
    return f"{log}/{entry.number} is cut off after {entry.bytes} bytes, and is not the newest step"


def _gaps(log: str, entries: Sequence[Entry]) -> list[str]:
    numbers = {entry.number for entry in entries}
    missing = [
        n for n in range(min(numbers, default=0), max(numbers, default=0)) if n not in numbers
    ]
    return [f"{log}/{number} is missing" for number in missing]


def _number(entry: Entry) -> int:
    return entry.number
