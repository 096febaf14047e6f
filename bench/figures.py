"""Figures from measurements: percentiles within a run, median and spread between runs."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True)
class Spread:
    """A figure over several runs."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        return cls(statistics.median(values), min(values), max(values))


def percentile(ascending: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all values do not exceed."""
    if not ascending:
        raise ValueError("no values: a percentile needs at least one")
    return ascending[max(0, math.ceil(len(ascending) * percent / 100) - 1)]
