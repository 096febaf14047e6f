"""What two samples say about a key: equal values, and the distances of their rows in time."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from datetime import timedelta
from functools import cached_property
from statistics import median

from job.spec.durations import rounded_text
from job.spec.sides import Side

_LONG = 6
"""Characters of a value that two topics do not share by chance."""
_FEW = 5
"""Fewer distances may be equal by chance."""

Keys = Sequence[tuple[Hashable, ...] | None]
"""The key of each row. None: a part of it is null."""
Times = Sequence[int | None]
"""The event time of each row, in microseconds. None: the row has none."""


class Evidence:
    """The keys and event times of the rows of two samples."""

    def __init__(self, left: Keys, left_times: Times, right: Keys, right_times: Times) -> None:
        self._left, self._left_times = left, left_times
        self._right, self._right_times = right, right_times
        self.read: dict[Side, int] = {
            "left": sum(at is not None for at in left_times),
            "right": sum(at is not None for at in right_times),
        }
        """Number of the rows that have an event time."""
        counts, others = (Counter(key for key in keys if key is not None) for keys in (left, right))
        self._values = counts.keys() & others.keys()
        self.shared = len(self._values)
        """Number of values that both samples contain."""
        self.row_pairs = sum(counts[value] * others[value] for value in self._values)
        """Number of pairs of rows with equal values."""
        self.matched = sum(
            sum(count[value] for value in self._values) / max(1, len(keys)) / 2
            for count, keys in ((counts, left), (others, right))
        )
        """Part of the rows that have a partner."""
        self.identity = max(len(count) / max(1, count.total()) for count in (counts, others))
        """Part of the rows that have different values, on the side where it is larger."""

    @cached_property
    def is_long(self) -> bool:
        """Whether the shared values are too long to be equal by chance."""
        lengths = [sum(len(str(part)) for part in value) for value in self._values]
        return bool(lengths) and median(lengths) >= _LONG

    @cached_property
    def partners(self) -> tuple[int | None, ...]:
        """For each right row, the number of the left row of its key that is nearest in time."""
        return tuple(self._partners())

    def _partners(self) -> Iterator[int | None]:
        by_key: dict[object, list[tuple[int, int]]] = defaultdict(list)
        for number, (key, at) in enumerate(zip(self._left, self._left_times, strict=True)):
            if key is not None and at is not None:
                by_key[key].append((at, number))
        for rows in by_key.values():
            rows.sort()
        for key, at in zip(self._right, self._right_times, strict=True):
            yield None if key not in by_key or at is None else _nearest(by_key[key], at)

    @cached_property
    def distances(self) -> list[int]:
        """Right minus left event time of each right row and its nearest partner, sorted."""
        return sorted(
            at - left_at
            for number, at in zip(self.partners, self._right_times, strict=True)
            if number is not None and at is not None
            if (left_at := self._left_times[number]) is not None
        )

    @property
    def closeness(self) -> float:
        """1 if all distances are equal, 0 if they vary as much as the times of the samples. Less if
        there are few."""
        times = [at for at in (*self._left_times, *self._right_times) if at is not None]
        if len(self.distances) < 2 or min(times) == max(times):
            return 0.0
        margin = len(self.distances) // 20
        spread = self.distances[-1 - margin] - self.distances[margin]
        constancy = max(0.0, 1 - 2 * spread / (max(times) - min(times)))
        return constancy * min(1.0, len(self.distances) / _FEW)

    def __str__(self) -> str:
        text = f"{self.shared} shared values, {self.row_pairs} pairs of rows"
        if not self.distances:
            return text
        first, last = (signed_text(self.distances[index]) for index in (0, -1))
        return f"{text}, right - left is {first} to {last}"


def _nearest(rows: Sequence[tuple[int, int]], at: int) -> int:
    place = bisect_left(rows, (at, 0))
    return min(rows[max(0, place - 1) : place + 1], key=lambda row: abs(row[0] - at))[1]


def signed_text(micros: int) -> str:
    """`-4 min 5 s`"""
    return f"{'-' * (micros < 0)}{rounded_text(timedelta(microseconds=micros))}"
