"""Watermarks of the sides, and the side that holds the query's watermark back."""

import pytest

from job.protocol.status import JobStatus
from tests.unit.service.builders import NOW, batch, event_times, side, status, status_after

DELAY_MS = {"left": 10_000, "right": 11_500}
NEWEST_MS = round(NOW.timestamp() * 1000)


def with_watermarks(left_ms: int | None, right_ms: int | None) -> JobStatus:
    return status_after(
        batch(left=side(event_time_max_ms=left_ms), right=side(event_time_max_ms=right_ms)),
        watermark_delay_ms=DELAY_MS,
        idle={},
    )


@pytest.mark.parametrize(
    ("left_ms", "right_ms", "expected"),
    [
        (20_000, 20_000, "right"),
        (20_000, 21_500, None),
        (20_000, 21_501, "left"),
        (None, 20_000, "left"),
        (20_000, None, "right"),
        (None, None, None),
    ],
)
def test_older_or_missing_watermark_holds_the_query_back(
    left_ms: int | None, right_ms: int | None, expected: str | None
) -> None:
    assert expected == with_watermarks(left_ms, right_ms).watermark_held_back_by


def test_no_side_holds_back_while_one_is_idle() -> None:
    idle = with_watermarks(20_000, 20_000).model_copy(update={"idle": {"left": True}})

    assert idle.watermark_held_back_by is None
    assert idle.watermark_held_back_by_partition is None


def test_partition_with_unread_records_holds_its_side_back() -> None:
    times = {"left": event_times(20_000), "right": event_times(10_000, held_back_by=1)}
    behind = with_watermarks(20_000, 20_000).model_copy(update={"event_times": times})

    assert ("right", 1) == (behind.watermark_held_back_by, behind.watermark_held_back_by_partition)
    assert behind.slowest_partition("left") is None


def test_watermarks_are_unknown_before_the_first_batch() -> None:
    starting = status()

    assert starting.watermark is None
    assert (None, None) == (starting.side_watermark("left"), starting.side_watermark("right"))
