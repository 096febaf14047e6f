"""The watermark and the order of reading, from what was read of each partition."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from job.event_time.fair_reading import Reading, records_max, waiting_partitions
from job.event_time.partitions import BatchRead, Partition, Partitions, RecordedEventTimes
from job.event_time.watermark import (
    SideEventTime,
    event_time_of,
    side_event_time,
    watermark_ms,
)
from job.spec.sides import SIDES, Side

DELAY_MS: dict[Side, int] = {"left": 10, "right": 10}


def behind(event_time_ms: int | None) -> Partition:
    return Partition(5, 9, event_time_ms)


def read(event_time_ms: int | None) -> Partition:
    return Partition(9, 9, event_time_ms)


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ({0: behind(100), 1: behind(70)}, SideEventTime(70, 1)),
        ({0: read(100), 1: read(70)}, SideEventTime(100)),
        ({0: read(100), 1: behind(120)}, SideEventTime(120, 1)),
        ({0: read(100), 1: behind(None)}, SideEventTime(None, 1)),
        ({0: read(100), 1: read(None)}, SideEventTime(100)),
        ({0: read(None)}, SideEventTime(None)),
        ({}, SideEventTime(None)),
    ],
    ids=[
        "the slowest backlog decides",
        "without a backlog the newest decides",
        "a partition read to its end holds nothing back",
        "a backlog of which nothing was read stops the side",
        "an empty partition holds nothing back",
        "a side without event time stops the watermark",
        "a side without partitions, too",
    ],
)
def test_event_time_of_a_side(partitions: dict[int, Partition], expected: SideEventTime) -> None:
    assert expected == side_event_time(partitions)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [(100, 70, 50), (70, 100, 60), (None, 100, None), (100, None, None)],
)
def test_side_that_is_further_behind_decides(
    left: int | None, right: int | None, expected: int | None
) -> None:
    sides = Partitions({0: read(left)}, {0: read(right)})

    assert expected == watermark_ms(sides, {"left": 10, "right": 20})


def test_batch_without_a_readable_record_leaves_the_event_time_of_its_partition() -> None:
    before = Partitions({0: behind(70)}, {})

    after = before.after_batch(batch_read({0: 8}, {0: 9}, {}))

    assert {0: Partition(8, 9, 70)} == after.left


def test_older_record_does_not_lower_the_event_time_of_its_partition() -> None:
    before = Partitions({0: behind(70)}, {})

    after = before.after_batch(batch_read({0: 9}, {0: 9}, {0: 60}))

    assert 70 == after.left[0].event_time_ms


def test_newest_event_time_of_a_side_counts_once_the_side_is_read_to_its_end() -> None:
    """Of a topic with many partitions only a sample of the records is observed by partition."""
    before = Partitions({0: behind(70)}, {})

    behind_still = before.after_batch(batch_read({0: 8}, {0: 9}, {0: 80}, newest_ms=85))
    at_the_end = behind_still.after_batch(batch_read({0: 9}, {0: 9}, {}, newest_ms=82))

    assert SideEventTime(80, 0) == event_time_of(behind_still, "left")
    assert SideEventTime(85) == event_time_of(at_the_end, "left")


def batch_read(
    next_offsets: dict[int, int],
    latest: dict[int, int],
    event_times: dict[int, int],
    newest_ms: int | None = None,
) -> BatchRead:
    """A batch that has read the left side."""
    return BatchRead(
        {"left": next_offsets, "right": {}},
        {"left": latest, "right": {}},
        {"left": event_times, "right": {}},
        {} if newest_ms is None else {"left": newest_ms},
    )


KNOWN = Partitions(
    {0: Partition(5, 5, 70), 1: Partition(8, 8, 90)},
    {0: Partition(3, 3, 60)},
    {"left": 90, "right": 60},
)


def test_event_times_survive_a_restart() -> None:
    offsets: dict[Side, dict[int, int]] = {"left": {0: 5, 1: 8}, "right": {0: 3}}

    assert KNOWN == Partitions.restored(KNOWN.recorded(), offsets)


def test_event_time_of_a_batch_that_the_checkpoint_does_not_contain_is_dropped() -> None:
    offsets: dict[Side, dict[int, int]] = {"left": {0: 5, 1: 7}, "right": {0: 4}}

    found = Partitions.restored(KNOWN.recorded(), offsets)

    assert {"left": {0: 70}, "right": {0: 60}} == found.event_times


def test_partition_without_an_entry_has_no_known_event_time() -> None:
    found = Partitions.restored(RecordedEventTimes(), {"left": {0: 5}, "right": {0: 3}})

    assert ({"left": {}, "right": {}}, {0}) == (found.event_times, set(found.left))


@pytest.mark.parametrize(
    ("left", "right", "waiting"),
    [
        ([behind(100), behind(111)], [behind(105)], {"left": {1}, "right": set()}),
        ([behind(100), behind(110)], [behind(110)], {"left": set(), "right": set()}),
        ([behind(100)], [behind(4_000)], {"left": set(), "right": {0}}),
        ([behind(100)], [read(4_000)], {"left": set(), "right": set()}),
        ([read(100)], [behind(4_000)], {"left": set(), "right": set()}),
        ([behind(None)], [behind(4_000)], {"left": set(), "right": set()}),
    ],
    ids=[
        "a partition ahead waits",
        "not within the slack",
        "a side ahead waits",
        "a partition without a backlog does not wait",
        "nothing waits for a partition without a backlog",
        "nothing waits for a partition without a known event time",
    ],
)
def test_partitions_that_wait(
    left: list[Partition], right: list[Partition], waiting: dict[Side, set[int]]
) -> None:
    sides = Partitions(dict(enumerate(left)), dict(enumerate(right)))

    assert waiting == waiting_partitions(sides, slack_ms=10)


def test_waiting_partition_ends_where_it_starts() -> None:
    reading = Reading({"left": {1}, "right": set()}, records_max=None)

    assert {0: 50, 1: 7} == reading.ends("left", {0: 5, 1: 7}, {0: 50, 1: 70})
    assert reading.ends("right", {0: 5, 1: 7}, {0: 50, 1: 70}) is None


def test_small_batch_takes_its_share_of_each_partition_and_at_least_one_record() -> None:
    reading = Reading({"left": set(), "right": set()}, records_max=100)

    assert {0: 89, 1: 10, 2: 1, 3: 7, 4: 70} == reading.ends(
        "left", {0: 0, 1: 1, 2: 0, 3: 7}, {0: 900, 1: 101, 2: 1, 3: 7, 4: 70}
    )


@pytest.mark.parametrize(
    ("records", "ends"), [(99, None), (100, None), (101, {0: 100}), (200, {0: 100})]
)
def test_batch_reads_up_to_its_limit(records: int, ends: dict[int, int] | None) -> None:
    reading = Reading({"left": set(), "right": set()}, records_max=100)

    assert ends == reading.ends("left", {0: 0}, {0: records})


@pytest.mark.parametrize(("limit", "expected"), [(1_999, None), (2_000, None), (2_001, 2_000)])
def test_first_batch_is_smaller_only_than_a_larger_limit_of_spark(
    limit: int, expected: int | None
) -> None:
    assert expected == records_max(0, limit)


def test_first_batches_grow_up_to_the_limit_of_spark() -> None:
    assert [2_000, 24_000, None] == [records_max(n, 100_000) for n in range(3)]


@dataclass
class Reader:
    """Two topics in event-time order in each partition, read in batches of any shape."""

    topics: dict[Side, dict[int, list[int]]]
    """Event times by offset."""
    partitions: Partitions = field(default_factory=Partitions.none)
    watermark: int = -(10**9)

    def batch(self, shares: dict[Side, dict[int, int]]) -> list[int]:
        """Read that many records of each partition; the event times of the rows that are late."""
        latest = {s: {n: len(times) for n, times in self.topics[s].items()} for s in SIDES}
        starts = {s: {n: self._next(s, n) for n in latest[s]} for s in SIDES}
        slack = 20
        reading = Reading(waiting_partitions(self.partitions, slack), None)
        ends: dict[Side, dict[int, int]] = {}
        for side in SIDES:
            limits = reading.ends(side, starts[side], latest[side]) or latest[side]
            ends[side] = {
                n: min(limits[n], starts[side][n] + shares[side].get(n, 0)) for n in latest[side]
            }
        times = {
            s: {n: self.topics[s][n][starts[s][n] : ends[s][n]] for n in ends[s]} for s in SIDES
        }
        read_now = [time for s in SIDES for some in times[s].values() for time in some]
        late = [time for time in read_now if time <= self.watermark]
        newest = {s: {n: max(some) for n, some in times[s].items() if some} for s in SIDES}
        of_sides = {s: max(newest[s].values()) for s in SIDES if newest[s]}
        self.partitions = self.partitions.after_batch(BatchRead(ends, latest, newest, of_sides))
        allowed = watermark_ms(self.partitions, DELAY_MS)
        self.watermark = max(self.watermark, self.watermark if allowed is None else allowed)
        return late

    def _next(self, side: Side, number: int) -> int:
        partition = self.partitions.side(side).get(number)
        return 0 if partition is None else partition.next_offset


_TIMES = st.lists(st.integers(1, 200), max_size=12).map(sorted)
_TOPIC = st.dictionaries(st.integers(0, 2), _TIMES, min_size=1)
_SHARES = st.dictionaries(st.integers(0, 2), st.integers(0, 5))
_BATCHES = st.lists(st.tuples(_SHARES, _SHARES), max_size=15)


@given(_TOPIC, _TOPIC, _BATCHES)
@settings(max_examples=300)
def test_no_row_of_an_ordered_backlog_is_late_however_it_is_read(
    left: dict[int, list[int]],
    right: dict[int, list[int]],
    batches: list[tuple[dict[int, int], dict[int, int]]],
) -> None:
    reader = Reader({"left": left, "right": right})

    assert [] == [
        late for shares in batches for late in reader.batch(dict(zip(SIDES, shares, strict=True)))
    ]


@given(_TOPIC, _TOPIC)
def test_fair_reading_always_reaches_the_end_of_every_partition(
    left: dict[int, list[int]], right: dict[int, list[int]]
) -> None:
    reader = Reader({"left": left, "right": right})
    records = sum(len(times) for topic in (left, right) for times in topic.values())
    for _ in range(records + 1):
        reader.batch({side: {0: 1, 1: 1, 2: 1} for side in SIDES})

    assert not any(p.has_backlog for s in SIDES for p in reader.partitions.side(s).values())
    newest = [max((max(t) for t in topic.values() if t), default=None) for topic in (left, right)]
    if None not in newest:
        assert min(time for time in newest if time is not None) - 10 == reader.watermark
