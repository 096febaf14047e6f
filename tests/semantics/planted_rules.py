"""Wrong rules for the watermark to plant in the specification; the test must detect each."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from job.event_time.partitions import Partition, Partitions
from job.event_time.watermark import watermark_ms
from job.spec.sides import SIDES, Side

Rule = Callable[[Partitions, Mapping[Side, int]], int | None]
_Side = Mapping[int, Partition]


def backlog_ignored(partitions: Partitions, delays_ms: Mapping[Side, int]) -> int | None:
    """The newest event time of a side, the rule of Spark."""
    return watermark_ms(_changed(partitions, _all_read), delays_ms)


def fastest_partition_of_a_backlog(
    partitions: Partitions, delays_ms: Mapping[Side, int]
) -> int | None:
    def fastest(side: _Side) -> _Side:
        backlog = {n: each for n, each in side.items() if each.has_backlog}
        unknown = any(each.event_time_ms is None for each in backlog.values())
        return side if unknown else _all_read(backlog or side)

    return watermark_ms(_changed(partitions, fastest), delays_ms)


def unknown_times_ignored(partitions: Partitions, delays_ms: Mapping[Side, int]) -> int | None:
    def known(side: _Side) -> _Side:
        return {n: each for n, each in side.items() if each.event_time_ms is not None}

    return watermark_ms(_changed(partitions, known), delays_ms)


def delay_forgotten(partitions: Partitions, _: Mapping[Side, int]) -> int | None:
    return watermark_ms(partitions, dict.fromkeys(SIDES, 0))


def faster_side(partitions: Partitions, delays_ms: Mapping[Side, int]) -> int | None:
    left, right = partitions.left, partitions.right
    found = [
        watermark_ms(Partitions(side, side), dict.fromkeys(SIDES, delays_ms[name]))
        for name, side in (("left", left), ("right", right))
    ]
    return max((each for each in found if each is not None), default=None)


WRONG_RULES: tuple[Rule, ...] = (
    backlog_ignored,
    fastest_partition_of_a_backlog,
    unknown_times_ignored,
    delay_forgotten,
    faster_side,
)


def _all_read(side: _Side) -> _Side:
    return {n: replace(each, latest_offset=each.next_offset) for n, each in side.items()}


def _changed(partitions: Partitions, change: Callable[[_Side], _Side]) -> Partitions:
    return replace(partitions, left=change(partitions.left), right=change(partitions.right))
