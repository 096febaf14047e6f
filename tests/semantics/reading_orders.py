"""Generates topics of uneven partitions, and batches that read them, from a seed.

In each partition a record is less than the side's delay behind the newest earlier one. Between
partitions there is no order: one may be minutes of event time behind another.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random

from job.semantics.backlog import PlannedBatch
from job.semantics.input_records import InputRecord
from job.spec.sides import SIDES, Side

Partitions = dict[int, list[InputRecord]]
"""Records by partition of a topic, in order."""


@dataclass(frozen=True)
class Topics:
    left: Partitions
    right: Partitions

    def of(self, side: Side) -> Partitions:
        return self.left if side == "left" else self.right


@dataclass(frozen=True)
class Reading:
    """Batches that read a backlog."""

    batches: Sequence[PlannedBatch]
    restarts: Mapping[int, bool] = field(default_factory=dict)
    """Batches followed by a restart, and whether it loses event times."""


def topics(random: Random, start_ms: int, delays_ms: Mapping[Side, int]) -> Topics:
    """Topics whose values have k INT (may be null), t, v INT; a few are unreadable."""
    sides: dict[Side, Partitions] = {"left": {}, "right": {}}
    for side in SIDES:
        offset = 0
        for partition in range(random.choice([1, 2, 2, 3])):
            times = _event_times(random, start_ms, delays_ms[side])
            records = [
                InputRecord(_value(random, at), offset + n, partition) for n, at in enumerate(times)
            ]
            sides[side][partition] = records
            offset += len(records)
    return Topics(sides["left"], sides["right"])


def _event_times(random: Random, start_ms: int, delay_ms: int) -> list[int]:
    """Event times of one partition: just in time, slightly behind, equal, ahead, far ahead."""
    steps = [0, 1, 2_500, 10_000, 30_000, 30_000, -(delay_ms - 1), -(delay_ms // 2)]
    newest = start_ms + random.choice([0, 20_000, 60_000])
    times: list[int] = []
    for _ in range(random.choice([0, 3, 6, 9, 12])):
        times.append(newest + random.choice(steps))
        newest = max(newest, times[-1])
    return times


def _value(random: Random, at_ms: int) -> str:
    if random.random() < 0.05:
        return random.choice(["{", '{"k": 1}'])
    key = random.choice([0, 0, 0, 1, None])
    return json.dumps({"k": key, "t": at_ms, "v": random.randrange(3)})


def reading(random: Random, read: Topics) -> Reading:
    """Batches with a few records of each partition, and a last one with the rest.

    All records exist from the start.
    """
    rest = {side: dict(read.of(side)) for side in SIDES}
    batches = []
    for _ in range(random.choice([0, 1, 3, 5, 9])):
        counts = {(side, n): random.choice([0, 1, 2, 4]) for side in SIDES for n in rest[side]}
        batches.append(_batch(rest, counts))
    batches.append(_batch(rest, {}))
    batches = [batch for batch in batches if not batch.is_empty]
    restarts = [n for n in range(len(batches)) if random.random() < 0.15]
    return Reading(batches, {number: random.random() < 0.5 for number in restarts})


def arrivals(
    random: Random, start_ms: int, delays_ms: Mapping[Side, int]
) -> list[tuple[Side, InputRecord]]:
    """Records of several partitions in the order in which they arrive.

    Each is less than the delay behind the newest earlier one of its side, in any partition.
    """
    times = {side: _event_times(random, start_ms, delays_ms[side]) for side in SIDES}
    order: list[Side] = [side for side in SIDES for _ in times[side]]
    random.shuffle(order)
    waiting = {side: iter(enumerate(times[side])) for side in SIDES}
    found: list[tuple[Side, InputRecord]] = []
    for side in order:
        offset, at_ms = next(waiting[side])
        record = InputRecord(_value(random, at_ms), offset, random.randrange(3))
        found.append((side, record))
    return found


def live(arrived: Sequence[tuple[Side, InputRecord]]) -> Reading:
    """One batch per arriving record."""
    return Reading(
        [PlannedBatch(*([r] if s == side else [] for s in SIDES)) for side, r in arrived]
    )


def falling_behind(random: Random, arrived: Sequence[tuple[Side, InputRecord]]) -> Reading:
    """Records arrive while others are unread; a batch reads a few of each partition."""
    rest: dict[Side, Partitions] = {"left": {}, "right": {}}
    batches = []
    come = 0
    while come < len(arrived):
        number = random.choice([0, 1, 3, 8])
        for side, record in arrived[come : come + number]:
            rest[side].setdefault(record.partition, [])
            rest[side][record.partition] = [*rest[side][record.partition], record]
        come += number
        counts = {(side, n): random.choice([0, 1, 2, 4]) for side in SIDES for n in rest[side]}
        batches.append(_batch(rest, counts))
    batches.append(_batch(rest, {}))
    return Reading([batch for batch in batches if not batch.is_empty])


def in_one_batch(read: Topics) -> Reading:
    return Reading([_batch({side: dict(read.of(side)) for side in SIDES}, {})])


def _batch(rest: dict[Side, Partitions], counts: Mapping[tuple[Side, int], int]) -> PlannedBatch:
    """Removes records from `rest`; all of a partition without a count."""
    chosen: dict[Side, list[InputRecord]] = {"left": [], "right": []}
    for side in SIDES:
        for number, waiting in rest[side].items():
            count = counts.get((side, number), len(waiting))
            chosen[side] += waiting[:count]
            rest[side][number] = waiting[count:]
    backlog = {side: frozenset(n for n, waiting in rest[side].items() if waiting) for side in SIDES}
    return PlannedBatch(chosen["left"], chosen["right"], backlog["left"], backlog["right"])
