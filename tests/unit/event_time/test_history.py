"""The watermark history: the watermark that a row met, and the pace."""

import pytest

from job.event_time.history import (
    Bounds,
    Pace,
    WatermarkLine,
    pace,
    stands,
    watermarks_at_read,
)


def line(
    minute: int, watermark_ms: int | None, left: dict[int, int] | None = None
) -> WatermarkLine:
    return WatermarkLine(at_ms=minute * 60_000, watermark_ms=watermark_ms, left_offsets=left or {})


OF_THE_RUN_BEFORE = line(0, 50)
LINES = [line(1, None, {0: 5}), line(2, 100, {0: 10}), line(3, 200, {0: 10}), line(4, 300, {0: 12})]


@pytest.mark.parametrize(
    ("offset", "bounds"),
    [(4, None), (5, Bounds(50, 100)), (9, Bounds(50, 100)), (11, Bounds(200, 300)), (12, None)],
)
def test_watermark_of_a_record_is_between_the_lines_around_its_reading(
    offset: int, bounds: Bounds | None
) -> None:
    assert bounds == watermarks_at_read([OF_THE_RUN_BEFORE, *LINES], "left", 0, offset)


def test_row_before_the_first_watermark_has_no_bounds() -> None:
    assert watermarks_at_read(LINES, "left", 0, 5) is None


def test_partition_that_is_not_in_the_history_has_no_watermark() -> None:
    assert watermarks_at_read(LINES, "left", 1, 5) is None
    assert watermarks_at_read(LINES, "right", 0, 5) is None


def test_pace_is_that_of_the_last_three_minutes() -> None:
    lines = [line(0, 0), line(16, 700_000), line(17, 810_000), line(18, 840_000)]
    found = pace(lines, now_ms=20 * 60_000, watermark_ms=900_000)

    assert Pace(20 * 60_000, 900_000, 0.5) == found
    assert found is not None
    assert 22 * 60_000 == found.clock_ms(960_000)


def test_watermark_that_stands_reaches_no_time() -> None:
    found = pace([line(19, 100)], now_ms=20 * 60_000, watermark_ms=100)

    assert found is not None
    assert found.clock_ms(200) is None
    # It advanced for seven minutes, and has stood for three.
    lines = [line(10, 0), line(16, 360_000), line(17, 420_000), line(19, 420_000)]
    stopped = pace(lines, now_ms=20 * 60_000, watermark_ms=420_000)
    assert stopped is not None
    assert stopped.clock_ms(500_000) is None
    assert pace([line(1, 100)], now_ms=20 * 60_000, watermark_ms=100) is None
    assert pace([line(19, None)], now_ms=20 * 60_000, watermark_ms=100) is None


def test_pace_before_the_last_start_does_not_count() -> None:
    lines = [line(18, 0), line(19, 60_000), line(19, None)]
    assert pace(lines, now_ms=20 * 60_000, watermark_ms=60_000) is None

    again = pace([*lines, line(19, 60_000)], now_ms=20 * 60_000, watermark_ms=60_000)
    assert again is not None
    assert again.clock_ms(70_000) is None


def test_pace_is_that_since_the_last_jump() -> None:
    now = 20 * 60_000
    # An hour is read in the seventeenth minute.
    lines = [line(17, 0), line(18, 3_660_000), line(19, 3_720_000)]
    found = pace(lines, now_ms=now, watermark_ms=3_750_000)
    assert found is not None
    assert 0.75 == found.rate

    assert pace([line(19, 0)], now_ms=now, watermark_ms=3_600_000) is None
    steady = pace([line(18, 0), line(19, 3_600_000)], now_ms=now, watermark_ms=7_200_000)
    assert steady is not None
    assert 60.0 == steady.rate


@pytest.mark.parametrize(
    ("batches", "seconds", "standing"),
    [
        ([(0, 1, 50), (1, 1, 100)], 11, False),
        ([(0, 1, 50), (1, 1, 100)], 12, True),
        # Batches without progress of the watermark, as one side has no record.
        ([(0, 1, 50), (1, 1, 100), (10, 1, 100), (12, 1, 100)], 12, True),
        ([(0, 1, 50), (1, 1, 100), (10, 1, 110)], 12, False),
        # Three batches of a minute have not ended yet.
        ([(0, 60, 50), (60, 60, 100)], 230, False),
        ([(0, 60, 50), (60, 60, 100)], 241, True),
        ([(0, 1, 100)], 12, True),
        ([], 12, False),
    ],
)
def test_watermark_stands_if_it_has_not_advanced_for_ten_seconds_or_three_batches(
    batches: list[tuple[int, int, int]], seconds: int, standing: bool
) -> None:
    done = [(start * 1000, length * 1000, watermark) for start, length, watermark in batches]
    assert standing is stands(done, seconds * 1000)
