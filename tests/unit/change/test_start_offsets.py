"""Offsets from which a changed query reads again."""

from datetime import timedelta
from typing import Any

import pytest

from job.change.start_offsets import KnownOffsets, needed_from_ms, reach, start_offsets
from job.errors import RetentionError
from job.event_time.partitions import (
    OBSERVED_PARTITIONS_MAX,
    Offsets,
    RecordedEventTime,
    RecordedEventTimes,
)
from job.replay.cut import Cut, PlannedBatch
from job.spec.sides import Side
from tests.unit.specs import plan

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
WATERMARK_MS = 100 * 3_600_000


def cut(ends: Offsets, first: int = 0, watermark_ms: int = WATERMARK_MS, **more: Any) -> Cut:
    firsts = {side: dict.fromkeys(ends[side], first) for side in ends}
    batch = PlannedBatch(7, ends, watermark_ms)
    return Cut("4711", batch, watermark_ms, firsts, (), RecordedEventTimes(), **more)


def known(earliest: int, at_time: int | None) -> KnownOffsets:
    return KnownOffsets({0: earliest}, {} if at_time is None else {0: at_time})


def starts(of_cut: Cut, left: KnownOffsets, right: KnownOffsets | None = None) -> tuple[int, int]:
    new = plan()
    found = start_offsets(
        new, of_cut, needed_from_ms(new, new, WATERMARK_MS), {"left": left, "right": right or left}
    )
    return found["left"][0], found["right"][0]


ENDS: Offsets = {"left": {0: 90}, "right": {0: 80}}


@pytest.mark.parametrize(
    ("changes", "left", "right"),
    [
        # left - 1 minute <= right <= left + 1 hour
        ({"join__type": "inner"}, HOUR, MINUTE),
        # An unmatched left row needs the right rows that it has matched.
        ({"join__type": "left_outer"}, HOUR, HOUR + MINUTE),
        (
            {"join__type": "right_anti", "output__columns": {"user": "right.user"}},
            HOUR + MINUTE,
            MINUTE,
        ),
        (
            {"join__type": "left_semi", "output__columns": {"cost": "left.cost"}},
            HOUR,
            HOUR + MINUTE,
        ),
        ({"join__type": "full_outer"}, HOUR + MINUTE, HOUR + MINUTE),
        ({"join": {"type": "full_outer", "window": "5 minutes"}}, 5 * MINUTE, 5 * MINUTE),
        # left + 1 minute <= right <= left + 1 hour: left rows expire after their partners.
        (
            {
                "join": {
                    "type": "right_outer",
                    "match_window": {"before": "-1 minute", "after": "1 hour"},
                }
            },
            HOUR,
            timedelta(0),
        ),
    ],
)
def test_rows_matter_until_they_and_their_partners_have_expired(
    changes: dict[str, Any], left: timedelta, right: timedelta
) -> None:
    joined = plan(**changes)

    assert (left, right) == (reach(joined, "left"), reach(joined, "right"))


def test_records_may_be_older_than_their_event_time() -> None:
    old, new = plan(left__max_event_time_ahead="2 hours"), plan()

    assert {
        "left": WATERMARK_MS - 3 * 3_600_000,
        "right": WATERMARK_MS - 3_600_000 - 60_000,
    } == needed_from_ms(old, new, WATERMARK_MS)


def test_partitions_start_at_the_first_record_that_can_matter() -> None:
    assert (40, 30) == starts(cut(ENDS), known(0, 40), known(0, 30))


def test_idle_partition_starts_at_the_cut() -> None:
    assert (40, 80) == starts(cut(ENDS), known(0, 40), known(0, None))
    assert (40, 80) == starts(cut(ENDS), known(0, 40), known(0, 99))  # after the cut


def test_replay_begins_at_the_first_offset_of_the_old_query() -> None:
    assert (50, 50) == starts(cut(ENDS, first=50), known(0, 40))


def test_everything_is_read_again_while_there_is_no_watermark() -> None:
    assert (5, 5) == starts(cut(ENDS, first=5, watermark_ms=0), known(0, 40))


def test_two_records_are_always_read_again() -> None:
    assert (88, 80) == starts(cut(ENDS), known(0, None))
    assert (89, 79) == starts(cut(ENDS), known(89, None), known(0, None))
    with pytest.raises(RetentionError, match="fewer than 2 of the records"):
        starts(cut({"left": {0: 1}, "right": {0: 0}}), known(0, None))


@pytest.mark.parametrize(("earliest", "read"), [(0, (90, 0)), (30, (90, 30)), (80, (88, 80))])
def test_table_is_read_from_its_beginning_and_the_stream_from_the_cut(
    earliest: int, read: tuple[int, int]
) -> None:
    """Two records are always read again: of the stream, if the table is empty."""
    table = {"topic": "users", "schema": "user STRING", "key": ["cast(record_key AS BIGINT)"]}
    new = plan(join={"type": "inner"}, right={**table, "table": "latest"})
    needed_ms = needed_from_ms(new, new, WATERMARK_MS)
    of_sides: dict[Side, KnownOffsets] = {"left": known(0, None), "right": known(earliest, None)}

    found = start_offsets(new, cut(ENDS), needed_ms, of_sides)

    assert {} == needed_ms
    assert read == (found["left"][0], found["right"][0])


@pytest.mark.parametrize(("earliest", "at_time"), [(20, 20), (90, None)])
def test_deleted_records_are_refused(earliest: int, at_time: int | None) -> None:
    with pytest.raises(
        RetentionError, match=f"impressions partition 0: begins at offset {earliest}"
    ):
        starts(cut(ENDS), known(earliest, at_time), known(0, 30))


def test_message_about_deleted_records_has_a_time_for_any_max_event_time_ahead() -> None:
    new = plan(left__max_event_time_ahead="100000000 days")
    needed_ms = needed_from_ms(new, new, WATERMARK_MS)

    with pytest.raises(RetentionError, match="records since 1970-01-01T00:00:00Z are needed"):
        start_offsets(new, cut(ENDS), needed_ms, {"left": known(20, 20), "right": known(0, 30)})


def test_deleted_records_of_the_time_before_are_not_needed() -> None:
    assert (40, 30) == starts(cut(ENDS), known(20, 40), known(20, 30))
    # The partition is empty, and its newest event time has expired.
    times = RecordedEventTimes(left={0: RecordedEventTime(90, WATERMARK_MS - 3_600_001)})
    assert (90, 30) == starts(cut(ENDS, recorded_event_times=times), known(90, None), known(0, 30))
    # Later records are unknown.
    times = RecordedEventTimes(left={0: RecordedEventTime(89, WATERMARK_MS - 3_600_001)})
    with pytest.raises(RetentionError):
        starts(cut(ENDS, recorded_event_times=times), known(90, None), known(0, 30))


def test_sampled_event_times_do_not_show_that_deleted_records_are_not_needed() -> None:
    """With more partitions than OBSERVED_PARTITIONS_MAX."""
    new = plan()
    needed_ms = needed_from_ms(new, new, WATERMARK_MS)
    for count in (OBSERVED_PARTITIONS_MAX, OBSERVED_PARTITIONS_MAX + 1):
        numbers = range(count)
        entry = RecordedEventTime(90, WATERMARK_MS - 3_600_001)
        old = cut(
            {"left": dict.fromkeys(numbers, 90), "right": {0: 30}},
            recorded_event_times=RecordedEventTimes(left=dict.fromkeys(numbers, entry)),
        )
        left = KnownOffsets(dict.fromkeys(numbers, 90), {})
        known_of_sides = {"left": left, "right": known(0, 30)}
        if count <= OBSERVED_PARTITIONS_MAX:
            start_offsets(new, old, needed_ms, known_of_sides)
            continue
        with pytest.raises(RetentionError):
            start_offsets(new, old, needed_ms, known_of_sides)
