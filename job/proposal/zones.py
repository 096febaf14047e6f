"""The offset of texts without one: what the timestamps of their records say about it."""

from collections.abc import Sequence
from dataclasses import dataclass

_MINUTE = 60_000_000
_HOUR = 60 * _MINUTE
_CLOCKS = _MINUTE
"""How far two clocks may differ: an event is not later than its record by more than this."""
_DELAY_MAX = 5 * _MINUTE
"""Largest time from an event to its record with which an offset is certain. The offsets of two
zones differ by more."""
_RECORDS_MIN = 10
_HOURS = range(-12, 15)
_OTHER_MINUTES = (-570, -210, -150, 210, 270, 330, 345, 390, 525, 570, 630, 765, 825)
"""Offsets of zones, in minutes, that are no whole hours."""
_OFFSETS = sorted({60 * hours for hours in _HOURS} | {*_OTHER_MINUTES})


@dataclass(frozen=True)
class ZoneEvidence:
    """Texts without an offset, compared with the timestamps of their records."""

    records: int
    first_us: int
    """The smallest distance of a text, read as UTC, ahead of its record. Negative: it is before."""
    last_us: int
    """The largest."""

    @property
    def offset_minutes(self) -> int | None:
        """The offset with which all events are shortly before their records. None: there is no
        such offset, or the records are few."""
        if self.records < _RECORDS_MIN:
            return None
        possible = [each for each in _OFFSETS if each * _MINUTE >= self.last_us - _CLOCKS]
        if not possible or possible[0] * _MINUTE - self.first_us > _DELAY_MAX:
            return None
        return possible[0]

    def __str__(self) -> str:
        first, last = (_distance(each) for each in (self.first_us, self.last_us))
        distance = first if first == last else f"{first} to {last}"
        return f"read as UTC, {self.records} texts are {distance} their record timestamps"


def zone_evidence(times: Sequence[int | None], recorded: Sequence[int]) -> ZoneEvidence:
    """`times`: the texts, read as UTC. At least one is a time."""
    ahead = [at - other for at, other in zip(times, recorded, strict=True) if at is not None]
    return ZoneEvidence(len(ahead), min(ahead), max(ahead))


def offset_text(minutes: int) -> str:
    """As `time_zone` of a spec has it."""
    sign = "-" if minutes < 0 else "+"
    return f"{sign}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


def _distance(micros: int) -> str:
    size, where = abs(micros), "before" if micros < 0 else "after"
    number = f"{size / _HOUR:.2f} h" if size >= _HOUR else f"{size / 1_000_000:.0f} s"
    return f"{number} {where}"
