"""The watermark and the order of reading, from what was read of each partition."""

import pytest

from job.event_time.fair_reading import Reading, records_max, waiting_partitions
from job.event_time.partitions import BatchRead, Partition, Partitions, RecordedEventTimes
from job.event_time.watermark import (
    SideEventTime,
    event_time_of,
    side_event_time,
    watermark_ms,
)
from job.spec.sides import Side


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
