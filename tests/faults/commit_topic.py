"""Checks the content of the commit topic, without code of the job.

A transaction slot has the number of its state partition, or a name. Its records have the keys
`<name>/<slot>` (marker), `<name>/<slot>/<number>` (part of an interval: the ids of its results) and
`<name>/<slot>/fence`.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.faults.oracle import SHOWN, Record

CLAIM = -1
"""Batch id of the first marker of a query in a slot."""
INTERVAL = "interval"
"""Fingerprint of the marker of an interval, which may run again. A micro-batch has another one."""


@dataclass
class SlotRecords:
    """The records of one query in one slot, in the order of their offsets."""

    markers: list[tuple[int, bool]] = field(default_factory=list)
    """Batch id, and whether the batch was an interval."""
    parts: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Numbers of the parts of each interval."""
    fences: list[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    """Ids of the results in the parts."""

    @property
    def batches(self) -> list[int]:
        """The batches that have a marker; one that ran again occurs once."""
        return list(dict.fromkeys(batch for batch, _ in self.markers))

    @property
    def ends_with_interval(self) -> bool:
        return bool(self.markers) and self.markers[-1][1]


def slot_records(records: Iterable[Record]) -> dict[tuple[str, str], SlotRecords]:
    """By query id and slot."""
    slots: dict[tuple[str, str], SlotRecords] = defaultdict(SlotRecords)
    for record in records:
        content: dict[str, Any] = json.loads(record.value or b"{}")
        _, slot, *kind = (record.key or b"").decode().split("/")
        read = slots[content["query_id"], slot]
        if not kind:
            read.markers.append((content["batch_id"], content.get("fingerprint") == INTERVAL))
        elif kind == ["fence"]:
            read.fences.append(content["number"])
        else:
            read.parts[content["batch_id"]].append(int(kind[0]))
            read.ids += content["ids"]
    return slots


def marker_problems(records: Iterable[Record], state_partitions: int) -> list[str]:
    """Markers of each query and state partition: a claim, then each batch from 0.

    Only an interval has more than one marker. All state partitions of a query end with the same
    batch, except that an interval may be ending. Other slots, such as that of the dead letters, are
    claimed too and have markers only of batches that wrote to them.
    """
    slots = slot_records(records)
    if not slots:
        return ["there are no markers"]
    wrong: list[str] = []
    for query_id in {query_id for query_id, _ in slots}:
        own = [slots[query_id, str(slot)] for slot in range(state_partitions)]
        for number, slot in enumerate(own):
            batches = slot.batches
            if batches != list(range(CLAIM, len(batches) - 1)):
                shown = f"{batches[:3]}…{batches[-3:]}"
                wrong.append(f"the markers of slot {number} are {shown}, {len(batches)} of them")
        wrong += _different_ends(own)
    for (_, name), slot in slots.items():
        wrong += (f"slot {name}: {problem}" for problem in _disorder(slot))
    return wrong


def missing_markers(records: Iterable[Record], state_partitions: int, ended: int) -> list[str]:
    """State partitions without a marker of `ended`, the last batch that Spark has committed."""
    slots = slot_records(records)
    marked = {slot for (_, slot), content in slots.items() if ended in content.batches}
    missing = {str(slot) for slot in range(state_partitions)} - marked
    return [f"slot {slot} has no marker of batch {ended}, which has ended" for slot in missing]


def _different_ends(slots: Collection[SlotRecords]) -> Iterator[str]:
    ends = {len(slot.batches) for slot in slots}
    is_ending = all(slot.ends_with_interval for slot in slots if len(slot.batches) == max(ends))
    if max(ends) - min(ends) > is_ending:
        yield f"the state partitions have different last markers: {sorted(ends)}"


def _disorder(slot: SlotRecords) -> Iterator[str]:
    for (before, is_interval), (batch, _) in zip(slot.markers, slot.markers[1:], strict=False):
        if batch < before or (batch == before and not is_interval):
            yield f"its markers repeat or go back: {batch} after {before}"
    if slot.fences != sorted(set(slot.fences)):
        yield f"its fences repeat or go back: {slot.fences}"
    for batch, numbers in slot.parts.items():
        if numbers != list(range(len(numbers))):
            yield f"the parts of interval {batch} are {numbers}"


def part_problems(commits: Iterable[Record], output: Iterable[Record]) -> list[str]:
    """Each id of a part is that of a result, and in no other part."""
    ids = Counter(identity for slot in slot_records(commits).values() for identity in slot.ids)
    written = {record.headers["streamjoin-id"].decode() for record in output}
    unknown = [identity for identity in ids if identity not in written]
    repeated = [identity for identity, count in ids.items() if count > 1]
    return [
        *(f"in a part, and not in the output: {identity}" for identity in unknown[:SHOWN]),
        *(f"in several parts: {identity}" for identity in repeated[:SHOWN]),
    ]
